"""Plans which bricks are worth measuring, when the others can be predicted.

Measuring a brick reduces the uncertainty of this brick and of all similar bricks, as given by the
predictor's Gaussian process. The reduction is known before the measurement: so the planner chooses
the bricks that narrow the estimates of models most for the time that measuring them takes (active
learning after Cohn, Ghahramani and Jordan, *Active Learning with Statistical Models*, 1996). The
latency of a kernel that is out of distribution cannot be predicted well: so one brick of each
kernel comes first.
Must not know how bricks are measured.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bricks.predict.cost import typical_cost_s
from bricks.predict.covariance import (
    COVARIANCE_PARAMS,
    by_kind,
    covariance,
    feature_matrix,
    noise_of,
)

if TYPE_CHECKING:
    from bricks.predict.features import BrickFeatures

Array = np.ndarray

# Models are brought to this fraction of the goal, so that none stays just above it.
_BELOW = 0.8

# The largest deviation of any model, as a multiple of the goal that most models meet.
_WORST = 2.5


@dataclass(frozen=True, slots=True)
class Posterior:
    """The latency of a brick in seconds given all measurements, and whether it was measured itself.

    ``scale`` multiplies the standard deviation of an unmeasured brick (``Predictor.scale``).
    """

    latency_s: float
    measured: bool = False
    scale: float = 1.0


class Planner:
    """Chooses the bricks of some models to measure, from posteriors of their latencies.

    ``counts`` maps a model to the number of occurrences of each brick. The covariance between
    bricks is computed once, from the initial posteriors; :meth:`update` changes the weight of each
    brick. ``known_kernels`` are kernels whose latency is known from other sources.
    """

    def __init__(
        self,
        counts: Mapping[str, Mapping[str, int]],
        features: Mapping[str, BrickFeatures],
        posteriors: Mapping[str, Posterior],
        known_kernels: Collection[str] = (),
    ) -> None:
        self._counts = [counts[model] for model in sorted(counts)]
        self._kinds = [
            _KindPosterior(kind, keys, features, posteriors, known_kernels)
            for kind, keys in by_kind(features, sorted(posteriors)).items()
        ]
        self._variances = np.zeros(len(counts))
        self.update(posteriors)

    def update(self, posteriors: Mapping[str, Posterior]) -> None:
        """Continue with new posteriors. Bricks that were chosen before count as measured."""
        for kind in self._kinds:
            kind.update(posteriors, self._counts)
        self._variances = sum((k.variances() for k in self._kinds), np.zeros(len(self._counts)))

    def deviations(self) -> Array:
        """The relative standard deviations of the models' estimates, in no particular order."""
        return np.sqrt(np.maximum(self._variances, 0.0))

    def meets(self, goal: float, slack: float = 1.0) -> bool:
        """Whether 9 of 10 models are known to the relative deviation ``goal * slack``.

        The last few models would cost most: a multiple of the goal suffices for them. Every kernel
        must also have a measured brick.
        """
        unknown = any(kind.unmeasured_kernels for kind in self._kinds)
        return not unknown and self._aim(goal * slack) is None

    def _aim(self, goal: float) -> float | None:
        """The relative deviation that the next bricks must reach; None once ``goal`` is met."""
        deviations = self.deviations()
        if float(np.quantile(deviations, 0.9, method="lower")) > goal:
            return goal
        return _WORST * goal if deviations.max(initial=0.0) > _WORST * goal else None

    def choose(
        self,
        goal: float,
        *,
        min_count: int = 0,
        max_count: int | None = None,
        max_s: float = math.inf,
    ) -> list[str]:
        """Return keys of bricks to measure, the greatest benefit first, until the ``goal`` is met.

        The goal is a relative standard deviation (:meth:`meets`); at zero all bricks are chosen.
        ``min_count`` bricks are chosen in any case, if there are as many. The choice ends at
        ``max_count`` bricks, or before measuring them takes ``max_s`` seconds, but not before one.
        """
        chosen: list[str] = []
        spent_s = 0.0
        for key, cost_s in self._candidates(goal, min_count):
            spent_s += cost_s
            if chosen and (spent_s > max_s or len(chosen) == max_count):
                break
            chosen.append(key)
        return chosen

    def _candidates(self, goal: float, min_count: int) -> Iterator[tuple[str, float]]:
        """The next brick to measure, and its cost in seconds; counts as measured afterwards."""
        count = 0
        for kind in self._kinds:
            while kind.unmeasured_kernels:
                candidate = kind.first_unmeasured()
                yield candidate.key, candidate.cost_s
                self._variances -= kind.condition_on(candidate.position)
                count += 1
        aim, open_models, benefits = -1.0, np.zeros(0, bool), np.zeros(0)
        while count < min_count or not self.meets(goal):
            before, aim = (aim, open_models), self._aim(goal) or 0.0
            open_models = self._variances > max(aim**2, 1e-9)
            # Recomputed only when a further model is known well enough, which is often enough.
            if before[0] != aim or not np.array_equal(before[1], open_models):
                benefits = self._benefits(open_models, aim)
            best = max(self._kinds, key=lambda kind: kind.best(benefits), default=None)
            if best is None or best.best(benefits) <= 0.0:
                break
            first = best.first(benefits)
            yield first.key, first.cost_s
            self._variances -= best.condition_on(first.position)
            count += 1
        more = None if goal == 0.0 else max(0, min_count - count)
        yield from islice(
            (candidate for kind in self._kinds for candidate in kind.unmeasured()), more
        )

    def _benefits(self, open_models: Array, aim: float) -> Array:
        """The benefit of each unit of variance removed from each model, per model.

        Removing a model's whole excess over the goal counts 1, so an expensive brick that informs
        one model only comes late, however uncertain this model is. Without a goal, the variances of
        all uncertain models have equal weights.
        """
        excess = np.full(len(self._variances), self._variances.max(initial=1e-9))
        if aim:
            excess = self._variances - (_BELOW * aim) ** 2
        benefits = np.zeros(len(excess))
        benefits[open_models] = 1.0 / excess[open_models]
        return benefits


class _Candidate(NamedTuple):
    """A brick to measure: its position among the bricks of its kind, and its cost in seconds."""

    position: int
    key: str
    cost_s: float


class _KindPosterior:
    """The joint posterior of all bricks of one kind, and its effect on each model's variance.

    Bricks of different kinds are independent. ``unmeasured_kernels`` are out of distribution: no
    brick of theirs was measured.
    """

    def __init__(
        self,
        kind: str,
        keys: list[str],
        features: Mapping[str, BrickFeatures],
        posteriors: Mapping[str, Posterior],
        known_kernels: Collection[str],
    ) -> None:
        self._keys = keys
        self._params = COVARIANCE_PARAMS[kind]
        self._open = np.array([not posteriors[key].measured for key in keys])
        # For nodes that are cut out together, operator names carry little information.
        kernels = [features[key].kernel for key in keys]
        self._kernels = np.array(["" if "+" in name else name for name in kernels])
        self.unmeasured_kernels = set(self._kernels) - {
            "",
            *known_kernels,
            *self._kernels[~self._open],
        }
        latency_s = np.array([max(posteriors[key].latency_s, 1e-7) for key in keys])
        self._noise = noise_of(self._params, latency_s)
        self._weight_bytes = np.array([features[key].weight_bytes for key in keys])
        self._rows = feature_matrix([features[key] for key in keys], latency_s, self._params)
        half = covariance(self._rows, self._rows, self._params, lower=True).astype(np.float32)
        self._prior = np.tril(half)
        self._prior += np.tril(half, -1).T
        # Rows of a square root of the covariance that measured bricks explain.
        self._explained = self._of_measured()
        self._remaining = self._params.prior - (self._explained**2).sum(axis=0)

    def update(
        self, posteriors: Mapping[str, Posterior], counts: Sequence[Mapping[str, int]]
    ) -> None:
        """Update the weight of each brick: its share of each model; zero for measured bricks."""
        ordered = [posteriors[key] for key in self._keys]
        column = {key: i for i, key in enumerate(self._keys)}
        shares = np.zeros((len(counts), len(self._keys)))
        for row, count in enumerate(counts):
            total_s = (
                sum(abs(n) * posteriors[key].latency_s for key, n in count.items()) or math.inf
            )
            for key, n in count.items():
                if key in column:
                    shares[row, column[key]] = abs(n) * posteriors[key].latency_s / total_s
        latency_s = np.array([b.latency_s for b in ordered])
        self._largest_shares = shares.max(axis=0, initial=0.0)
        self._costs_s = typical_cost_s(self._weight_bytes, latency_s, self._largest_shares)
        self._weights = np.where(self._open, shares * [b.scale for b in ordered], 0.0)
        self._effects = self._weights.astype(np.float32) @ self._prior
        self._effects = self._effects - (self._weights @ self._explained.T) @ self._explained
        self._cached_gains: tuple[bytes, Array] | None = None

    def _of_measured(self) -> Array:
        known = np.flatnonzero(~self._open)
        if not len(known):
            return np.zeros((0, len(self._keys)))
        observed = self._prior[np.ix_(known, known)].astype(float)
        observed[np.diag_indices(len(known))] += self._noise[known]
        cross = self._prior[known].astype(float)
        from scipy.linalg import solve_triangular

        explained: Array = solve_triangular(np.linalg.cholesky(observed), cross, lower=True)
        return explained

    def variances(self) -> Array:
        """The remaining variance of each model's estimate, relative to the estimate."""
        variances: Array = ((self._effects + self._weights * self._noise) * self._weights).sum(
            axis=1
        )
        return variances

    def _gains_per_s(self, benefits: Array) -> Array:
        """The benefit of measuring each brick, per second of measuring."""
        name = benefits.tobytes()
        if self._cached_gains is None or self._cached_gains[0] != name:
            rows = benefits > 0.0
            common = (self._effects + self._weights * self._noise)[rows]
            reductions = common**2 / (np.maximum(self._remaining, 0.0) + self._noise)
            benefit = np.minimum(reductions * benefits[rows, None], 1.0).sum(axis=0)
            self._cached_gains = name, np.where(self._open, benefit / self._costs_s, 0.0)
        return self._cached_gains[1]

    def best(self, benefits: Array) -> float:
        """The greatest benefit per second of any brick."""
        return float(self._gains_per_s(benefits).max(initial=0.0))

    def first(self, benefits: Array) -> _Candidate:
        """The brick of greatest benefit per second."""
        return self._candidate(int(self._gains_per_s(benefits).argmax()))

    def first_unmeasured(self) -> _Candidate:
        """Of the unmeasured kernels, the brick with the largest share of a model for its cost."""
        members = np.isin(self._kernels, sorted(self.unmeasured_kernels))
        worth = np.where(members, self._largest_shares / self._costs_s, -1.0)
        return self._candidate(int(worth.argmax()))

    def _candidate(self, i: int) -> _Candidate:
        return _Candidate(i, self._keys[i], float(self._costs_s[i]))

    def condition_on(self, i: int) -> Array:
        """Count a brick as measured; returns the reduction of each model's variance."""
        observed_variance = max(self._remaining[i], 0.0) + self._noise[i]
        reductions: Array = (
            self._effects[:, i] + self._weights[:, i] * self._noise[i]
        ) ** 2 / observed_variance
        covariances = self._prior[i].astype(float)
        covariances -= self._explained[:, i] @ self._explained
        self._effects -= np.outer(self._weights[:, i], covariances)
        self._weights[:, i] = 0.0
        direction = covariances / math.sqrt(observed_variance)
        self._effects -= np.outer(self._weights @ direction, direction)
        self._remaining = self._remaining - direction**2
        self._explained = np.vstack([self._explained, direction])
        self._open[i] = False
        self.unmeasured_kernels.discard(self._kernels[i])
        self._cached_gains = None
        return reductions

    def unmeasured(self) -> Iterator[tuple[str, float]]:
        """Keys of unmeasured bricks with their costs in seconds; each counts as measured then."""
        for i in np.flatnonzero(self._open):
            yield self._keys[i], float(self._costs_s[i])
            self._open[i] = False
