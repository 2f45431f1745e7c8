"""Plans which bricks are worth measuring, when the others can be predicted.

Measuring a brick reduces the uncertainty of that brick and of all similar ones, as given by the
predictor's Gaussian process. The reduction is known before the measurement: so the planner chooses
the bricks that narrow the estimates of models most for the time that measuring them takes (active
learning after Cohn, Ghahramani and Jordan, *Active Learning with Statistical Models*, 1996). The
latency of an unmeasured kernel cannot be predicted well: so one brick of each kernel comes first.
Must not know how bricks are measured.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular

from bricks.predict.cost import usual_s
from bricks.predict.covariance import (
    COVARIANCE_PARAMS,
    by_kind,
    covariance,
    feature_matrix,
    noise_of,
)
from bricks.predict.features import BrickFeatures

Array = np.ndarray

# Models are brought to this fraction of the goal, so that none stays just above it.
_BELOW = 0.8

# No model may be more uncertain than so many times the goal, which most of them meet.
_WORST = 2.5


@dataclass(frozen=True, slots=True)
class Belief:
    """The believed latency of a brick in seconds, and whether it was measured.

    ``scale`` is the error of such predictions relative to the usual one.
    """

    latency_s: float
    measured: bool = False
    scale: float = 1.0


class Planner:
    """Chooses bricks to measure for some models, given beliefs about their latencies.

    ``counts`` gives by model how often each brick counts. The covariance between bricks is computed
    once, from the initial beliefs; the weight of each brick is updated by :meth:`believe`.
    ``familiar`` are kernels whose latency is known from other sources.
    """

    def __init__(
        self,
        counts: Mapping[str, Mapping[str, int]],
        features: Mapping[str, BrickFeatures],
        beliefs: Mapping[str, Belief],
        familiar: Collection[str] = (),
    ) -> None:
        self._counts = [counts[model] for model in sorted(counts)]
        self._kinds = [
            _Kind(kind, keys, features, beliefs, familiar)
            for kind, keys in by_kind(features, sorted(beliefs)).items()
        ]
        self._variances = np.zeros(len(counts))
        self.believe(beliefs)

    def believe(self, beliefs: Mapping[str, Belief]) -> None:
        """Continue with updated beliefs. Bricks that were chosen before count as measured."""
        for kind in self._kinds:
            kind.believe(beliefs, self._counts)
        self._variances = sum((k.variances() for k in self._kinds), np.zeros(len(self._counts)))

    def deviations(self) -> Array:
        """The relative standard deviations of the models' estimates, in no particular order."""
        return np.sqrt(np.maximum(self._variances, 0.0))

    def meets(self, goal: float, slack: float = 1.0) -> bool:
        """Whether 9 of 10 models are known to this relative deviation, or ``slack`` times it.

        The last few models would cost most: they are known to a multiple of it. Every kernel must
        also have a measured brick.
        """
        strange = any(kind.strange for kind in self._kinds)
        return not strange and self._aim(goal * slack) is None

    def _aim(self, goal: float) -> float | None:
        """The deviation to which uncertain models must come next; None once ``goal`` is met."""
        deviations = self.deviations()
        if float(np.quantile(deviations, 0.9, method="lower")) > goal:
            return goal
        return _WORST * goal if deviations.max(initial=0.0) > _WORST * goal else None

    def choose(
        self, goal: float, *, least: int = 0, most: int | None = None, max_s: float = math.inf
    ) -> list[str]:
        """The bricks to measure, the most worthwhile first, until the ``goal`` is met.

        The goal is a relative standard deviation (:meth:`meets`); at zero all bricks are chosen. At
        least ``least`` bricks are chosen, if there are that many; at most ``most``, and at most as
        many as take about ``max_s`` seconds, but at least one.
        """
        chosen: list[str] = []
        spent_s = 0.0
        for key, cost_s in self._worthwhile(goal, least):
            spent_s += cost_s
            if chosen and (spent_s > max_s or len(chosen) == most):
                break
            chosen.append(key)
        return chosen

    def _worthwhile(self, goal: float, least: int) -> Iterator[tuple[str, float]]:
        """The next brick to measure, and its cost in seconds; counts as measured afterwards."""
        taken = 0
        for kind in self._kinds:
            while kind.strange:
                stranger = kind.stranger()
                yield stranger.key, stranger.cost_s
                self._variances -= kind.take(stranger.position)
                taken += 1
        aim, open_models, wanted = -1.0, np.zeros(0, bool), np.zeros(0)
        while taken < least or not self.meets(goal):
            before, aim = (aim, open_models), self._aim(goal) or 0.0
            open_models = self._variances > max(aim**2, 1e-9)
            # Recomputed only when a further model is known well enough, which is often enough.
            if before[0] != aim or not np.array_equal(before[1], open_models):
                wanted = self._wanted(open_models, aim)
            best = max(self._kinds, key=lambda kind: kind.best(wanted), default=None)
            if best is None or best.best(wanted) <= 0.0:
                break
            first = best.first(wanted)
            yield first.key, first.cost_s
            self._variances -= best.take(first.position)
            taken += 1
        more = None if goal == 0.0 else max(0, least - taken)
        yield from islice((each for kind in self._kinds for each in kind.left()), more)

    def _wanted(self, open_models: Array, aim: float) -> Array:
        """The value of reducing each model's variance; removing the excess over the goal counts 1.

        So an expensive brick that informs one model only comes late, however uncertain that model
        is. Without a goal, the variances of all uncertain models count alike.
        """
        excess = np.full(len(self._variances), self._variances.max(initial=1e-9))
        if aim:
            excess = self._variances - (_BELOW * aim) ** 2
        wanted = np.zeros(len(excess))
        wanted[open_models] = 1.0 / excess[open_models]
        return wanted


class _Candidate(NamedTuple):
    """A brick to measure: its position among those of its kind, and its cost in seconds."""

    position: int
    key: str
    cost_s: float


class _Kind:
    """Bricks of one kind: their remaining uncertainty, and its effect on each model.

    Bricks of different kinds are independent. ``strange`` are kernels without a measured brick.
    """

    def __init__(
        self,
        kind: str,
        keys: list[str],
        features: Mapping[str, BrickFeatures],
        beliefs: Mapping[str, Belief],
        familiar: Collection[str],
    ) -> None:
        self._keys = keys
        self._like = COVARIANCE_PARAMS[kind]
        self._open = np.array([not beliefs[key].measured for key in keys])
        # For nodes that are cut out together, operator names carry little information.
        kernels = [features[key].kernel for key in keys]
        self._kernels = np.array(["" if "+" in name else name for name in kernels])
        self.strange = set(self._kernels) - {"", *familiar, *self._kernels[~self._open]}
        latency_s = np.array([max(beliefs[key].latency_s, 1e-7) for key in keys])
        self._noise = noise_of(self._like, latency_s)
        self._weight_bytes = np.array([features[key].weight_bytes for key in keys])
        self._places = feature_matrix([features[key] for key in keys], latency_s, self._like)
        half = covariance(self._places, self._places, self._like, lower=True).astype(np.float32)
        self._prior = np.tril(half)
        self._prior += np.tril(half, -1).T
        # The explained part of each variance: rows of a square root of the explained covariance.
        self._told = self._of_measured()
        self._left = self._like.prior - (self._told**2).sum(axis=0)

    def believe(self, beliefs: Mapping[str, Belief], counts: Sequence[Mapping[str, int]]) -> None:
        """Update the weight of each brick: its share of each model; zero for measured bricks."""
        believed = [beliefs[key] for key in self._keys]
        column = {key: i for i, key in enumerate(self._keys)}
        shares = np.zeros((len(counts), len(self._keys)))
        for row, count in enumerate(counts):
            total_s = sum(abs(n) * beliefs[key].latency_s for key, n in count.items()) or math.inf
            for key, n in count.items():
                if key in column:
                    shares[row, column[key]] = abs(n) * beliefs[key].latency_s / total_s
        latency_s = np.array([b.latency_s for b in believed])
        self._most = shares.max(axis=0, initial=0.0)
        self._costs_s = usual_s(self._weight_bytes, latency_s, self._most)
        self._weights = np.where(self._open, shares * [b.scale for b in believed], 0.0)
        self._effects = self._weights.astype(np.float32) @ self._prior
        self._effects = self._effects - (self._weights @ self._told.T) @ self._told
        self._gains: tuple[bytes, Array] | None = None

    def _of_measured(self) -> Array:
        known = np.flatnonzero(~self._open)
        if not len(known):
            return np.zeros((0, len(self._keys)))
        held = self._prior[np.ix_(known, known)].astype(float)
        held[np.diag_indices(len(known))] += self._noise[known]
        across = self._prior[known].astype(float)
        told: Array = solve_triangular(np.linalg.cholesky(held), across, lower=True)
        return told

    def variances(self) -> Array:
        """The remaining variance of each model's estimate, relative to the estimate."""
        found: Array = ((self._effects + self._weights * self._noise) * self._weights).sum(axis=1)
        return found

    def _worth(self, wanted: Array) -> Array:
        """The benefit of measuring each brick to the wanted models, per second that it takes."""
        name = wanted.tobytes()
        if self._gains is None or self._gains[0] != name:
            rows = wanted > 0.0
            common = (self._effects + self._weights * self._noise)[rows]
            less = common**2 / (np.maximum(self._left, 0.0) + self._noise)
            gained = np.minimum(less * wanted[rows, None], 1.0).sum(axis=0)
            self._gains = name, np.where(self._open, gained / self._costs_s, 0.0)
        return self._gains[1]

    def best(self, wanted: Array) -> float:
        """The greatest worth of any brick."""
        return float(self._worth(wanted).max(initial=0.0))

    def first(self, wanted: Array) -> _Candidate:
        """The brick of greatest worth."""
        return self._candidate(int(self._worth(wanted).argmax()))

    def stranger(self) -> _Candidate:
        """Of the ``strange`` kernels, the brick with the largest share of a model for its cost."""
        mine = np.isin(self._kernels, sorted(self.strange))
        return self._candidate(int(np.where(mine, self._most / self._costs_s, -1.0).argmax()))

    def _candidate(self, i: int) -> _Candidate:
        return _Candidate(i, self._keys[i], float(self._costs_s[i]))

    def take(self, i: int) -> Array:
        """Count a brick as measured; returns the reduction of each model's variance."""
        held = max(self._left[i], 0.0) + self._noise[i]
        less: Array = (self._effects[:, i] + self._weights[:, i] * self._noise[i]) ** 2 / held
        mine = self._prior[i].astype(float)
        mine -= self._told[:, i] @ self._told
        self._effects -= np.outer(self._weights[:, i], mine)
        self._weights[:, i] = 0.0
        told = mine / math.sqrt(held)
        self._effects -= np.outer(self._weights @ told, told)
        self._left = self._left - told**2
        self._told = np.vstack([self._told, told])
        self._open[i] = False
        self.strange.discard(self._kernels[i])
        self._gains = None
        return less

    def left(self) -> Iterator[tuple[str, float]]:
        """The bricks that are not measured, and the seconds that each takes."""
        for i in np.flatnonzero(self._open):
            yield self._keys[i], float(self._costs_s[i])
            self._open[i] = False
