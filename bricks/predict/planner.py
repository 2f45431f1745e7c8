"""Which bricks are worth measuring, where the others can be predicted.

A brick that is measured tells of itself and of all that are like it, as the predictor's Gaussian
process has it. That is known before anything is measured: so those are chosen that, for the time
which measuring them takes, narrow the estimates of models most (active learning after Cohn,
Ghahramani and Jordan, *Active Learning with Statistical Models*, 1996). What a kernel costs of
which nothing was measured is anyone's guess: so one brick of each comes first. It must not know
how anything is measured.
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

# How far below its goal a model is wanted, so that one is not almost known for ever.
_BELOW = 0.8


@dataclass(frozen=True, slots=True)
class Belief:
    """What is believed of a brick's latency in seconds, and whether that was measured.

    ``scale`` is how far off predictions like this are, compared to what is usual.
    """

    latency_s: float
    measured: bool = False
    scale: float = 1.0


class Planner:
    """Chooses for some models, by what is believed of their bricks.

    ``counts`` tells by model how often each brick counts. What is alike is decided at first, by
    what is believed then; how much it matters, whenever more is known (:meth:`believe`).
    ``familiar`` are kernels whose cost is known by other means.
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
        """Go on from what is known now. What was chosen before counts as measured."""
        for kind in self._kinds:
            kind.believe(beliefs, self._counts)
        self._variances = sum((k.variances() for k in self._kinds), np.zeros(len(self._counts)))

    def deviations(self) -> Array:
        """The relative standard deviations of the models' estimates, in no order."""
        return np.sqrt(np.maximum(self._variances, 0.0))

    def meets(self, goal: float, slack: float = 1.0) -> bool:
        """Whether 9 of 10 models are known to this relative deviation, or ``slack`` times it.

        The last few are those that cost most. And of every kernel something was measured.
        """
        strange = any(kind.strange for kind in self._kinds)
        return not strange and self._typical(0.9) <= goal * slack

    def _typical(self, share: float) -> float:
        return float(np.quantile(self.deviations(), share, method="lower"))

    def choose(
        self, goal: float, *, least: int = 0, most: int | None = None, max_s: float = math.inf
    ) -> list[str]:
        """The bricks to measure, the most worthwhile first, until the ``goal`` is met.

        That is a relative standard deviation (:meth:`meets`); at zero all are chosen. Not fewer
        than ``least``, if there are so many; not more than ``most``, nor than take about ``max_s``
        seconds, but one.
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
        """What to measure next, and the seconds that it takes; taken as measured from then on."""
        taken = 0
        for kind in self._kinds:
            while kind.strange:
                stranger = kind.stranger()
                yield stranger.key, stranger.cost_s
                self._variances -= kind.take(stranger.position)
                taken += 1
        aim, open_models, wanted = -1.0, np.zeros(0, bool), np.zeros(0)
        while taken < least or not self.meets(goal):
            before, aim = (aim, open_models), 0.0 if self.meets(goal) else goal
            open_models = self._variances > max(aim**2, 1e-9)
            # Found anew when another model is known well enough: that is often enough.
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
        """What a variance less is worth, by model: all that keeps it from the aim is worth one.

        So a brick that is dear and tells of one model alone comes late, however little is known of
        that one. Without an aim, the variances of all that are open count alike.
        """
        excess = np.full(len(self._variances), self._variances.max(initial=1e-9))
        if aim:
            excess = self._variances - (_BELOW * aim) ** 2
        wanted = np.zeros(len(excess))
        wanted[open_models] = 1.0 / excess[open_models]
        return wanted


class _Candidate(NamedTuple):
    """A brick to measure: its position among those of its kind, and the seconds it takes."""

    position: int
    key: str
    cost_s: float


class _Kind:
    """Bricks of one kind: what is not known of them yet, and what that does to each model.

    Nothing of one kind tells of another. ``strange`` are kernels of which nothing was measured.
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
        # Of nodes that are cut out together, the operators say little by their names.
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
        # What is known tells so much of each: rows of a square root of the covariance it explains.
        self._told = self._of_measured()
        self._left = self._like.prior - (self._told**2).sum(axis=0)

    def believe(self, beliefs: Mapping[str, Belief], counts: Sequence[Mapping[str, int]]) -> None:
        """Weigh each brick anew, by its share of each model; none that is known already."""
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
        """What is not known of each model: the variance of its estimate, relative to it."""
        found: Array = ((self._effects + self._weights * self._noise) * self._weights).sum(axis=1)
        return found

    def _worth(self, wanted: Array) -> Array:
        """What measuring each brings to the models that want it, for a second that it takes."""
        name = wanted.tobytes()
        if self._gains is None or self._gains[0] != name:
            rows = wanted > 0.0
            common = (self._effects + self._weights * self._noise)[rows]
            less = common**2 / (np.maximum(self._left, 0.0) + self._noise)
            gained = np.minimum(less * wanted[rows, None], 1.0).sum(axis=0)
            self._gains = name, np.where(self._open, gained / self._costs_s, 0.0)
        return self._gains[1]

    def best(self, wanted: Array) -> float:
        """The greatest worth of any."""
        return float(self._worth(wanted).max(initial=0.0))

    def first(self, wanted: Array) -> _Candidate:
        """The one of greatest worth."""
        return self._candidate(int(self._worth(wanted).argmax()))

    def stranger(self) -> _Candidate:
        """Of the kernels that are ``strange``, the brick that is most of a model for its cost."""
        mine = np.isin(self._kernels, sorted(self.strange))
        return self._candidate(int(np.where(mine, self._most / self._costs_s, -1.0).argmax()))

    def _candidate(self, i: int) -> _Candidate:
        return _Candidate(i, self._keys[i], float(self._costs_s[i]))

    def take(self, i: int) -> Array:
        """Take one as measured; by how much less the variance of each model is then."""
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
        """Those that are not measured, and the seconds that each takes."""
        for i in np.flatnonzero(self._open):
            yield self._keys[i], float(self._costs_s[i])
            self._open[i] = False
