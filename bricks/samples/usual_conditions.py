"""The usual conditions of a host: the distribution of all conditions in which it was watched.

Some hosts change within seconds, others from hour to hour, and many not at all. Both are learned
from the seconds in which a host was watched, against priors, since a few seconds show little. Must
not know what a latency makes of conditions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from bricks.system.host_conditions import KERNELS, HostConditions, mean_conditions

# Seconds over which conditions are averaged: a run of a few seconds, which answers are about.
BLOCK_S = 5

# Conditions within so many seconds are one period.
SAME_PERIOD_S = 600

# Priors: how much blocks of one period and how much periods differ, as standard deviations of
# logarithms that all kernels have in common, and the number of blocks or periods that each counts
# for. A host that changes within a period changes between periods too: by this share of the
# variance, if nothing else is known. Assumed, not fitted: of three virtual machines that were
# watched for hours, none differed by less than 5 % between periods; well-kept servers differ less.
_BLOCK_SD, _PERIOD_SD, _PERIODS_SHARE, _PRIOR = 0.02, 0.04, 0.25, 3.0

# How much latencies of another period differ by what kernels do not show: measured once, on an
# Intel Xeon whose networks took 15 % longer two hours later, and whose kernels 8 %
# (research/another_time.md).
_UNSHOWN_SD = 0.04

# Prior of how much each kernel of one second differs by itself from that of the next ones, and the
# number of seconds that it counts for.
_SECOND_SD, _PRIOR_SECONDS = 0.03, 10.0

_Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class UsualConditions:
    """The ``mean`` of conditions, and the ``covariance`` of those of a run: shape ``(5, 5)``.

    The covariance is of logarithms of seconds, in the order of ``KERNELS``, for the mean over a run
    of some seconds at another time. ``watched_s`` is how long the host was watched, in ``periods``
    of ten minutes. ``passing`` is the covariance of what a second has by itself, which is gone in
    the next ones. ``error`` is the covariance of the mean's error.
    """

    mean: HostConditions
    covariance: _Array
    watched_s: float = 0.0
    periods: int = 0
    passing: _Array = field(default_factory=lambda: _of_each(_SECOND_SD))
    error: _Array = field(default_factory=lambda: np.zeros((len(KERNELS),) * 2))

    @classmethod
    def seen(cls, seconds: Sequence[HostConditions]) -> UsualConditions | None:
        """From conditions of many seconds; None without any.

        Each period counts as much as any other.
        """
        by_second = {of.taken_s: of for of in seconds if None not in of.kernels_s}
        taken = sorted(second for second in by_second if second is not None)
        known = {s: np.log(np.array(by_second[s].kernels_s, float)) for s in taken}
        if not known:
            return None
        blocks: dict[int, list[_Array]] = {}
        for second, logs in known.items():
            blocks.setdefault(second // BLOCK_S, []).append(logs)
        by_period: dict[int, list[_Array]] = {}
        for block, every in blocks.items():
            period = by_period.setdefault(block * BLOCK_S // SAME_PERIOD_S, [])
            period.append(np.mean(every, axis=0))
        periods = [np.array(of) for of in by_period.values()]
        means = np.array([of.mean(axis=0) for of in periods])
        middle = means.mean(axis=0)
        of_blocks = np.concatenate([of - of.mean(axis=0) for of in periods])
        within = _learned(of_blocks, _prior(_BLOCK_SD), len(blocks) - len(periods))
        prior = _prior(_PERIOD_SD) + _PERIODS_SHARE * within
        between = _learned(means - middle, prior, len(periods) - 1)
        error = within / len(blocks) + between / len(periods)
        mean = HostConditions(tuple(map(float, np.exp(middle))))
        covariance = within + between + error
        return cls(mean, covariance, len(known), len(periods), _passing(known), error)

    @classmethod
    def assumed(cls, mean: HostConditions) -> UsualConditions:
        """Of a host that was never watched: it differs from ``mean`` as the priors say."""
        return cls(mean, 2.0 * (_prior(_PERIOD_SD) + _prior(_BLOCK_SD)))

    @property
    def steady(self) -> UsualConditions:
        """The same of a host that never changes."""
        none = np.zeros_like(self.covariance)
        return replace(self, covariance=none, error=none)

    @classmethod
    def exactly(cls, mean: HostConditions, error: _Array | None = None) -> UsualConditions:
        """Known conditions, as of a run; ``error`` is the covariance of their error, if any."""
        none = np.zeros((len(KERNELS),) * 2)
        return cls(mean, none, error=none if error is None else error)

    def from_now(self, every: Sequence[HostConditions]) -> UsualConditions:
        """The conditions of the next seconds, where ``every`` are those of this one.

        A second differs from usual by what lasts and by what passes: as much of its deviation is
        believed as the one is larger than the other (the gain of a Kalman filter).
        """
        now = mean_conditions(every)
        if now is None:
            return self
        of_run = self.passing / BLOCK_S
        lasting = _nonnegative(self.covariance - of_run)
        gain = lasting @ np.linalg.inv(lasting + self.passing)
        deviation = gain @ np.array(self.mean.changes_to(now))
        logs = np.log(np.array(self.mean.kernels_s, float)) + deviation
        mean = HostConditions(tuple(map(float, np.exp(logs))), now.taken_s)
        ahead = _nonnegative(lasting - gain @ lasting) + of_run
        return UsualConditions(mean, ahead, self.watched_s, self.periods)

    def unshown_sd(self, measured: HostConditions) -> float:
        """How much a latency ``measured`` in those conditions differs that kernels do not show."""
        if not self.covariance.any():
            return 0.0
        now, then = self.mean.taken_s, measured.taken_s
        together = now is not None and then is not None and abs(now - then) < SAME_PERIOD_S
        return 0.0 if together else _UNSHOWN_SD

    def relative_sd(self, sensitivity: _Array) -> float:
        """How much a latency of this ``sensitivity`` differs: the sd of its logarithm."""
        return math.sqrt(max(0.0, float(sensitivity @ self.covariance @ sensitivity)))


def mean_error(every: Sequence[HostConditions | None]) -> _Array:
    """The covariance of the error of a mean over conditions; zeros where they are not known.

    Rounds that were sampled within a moment have the same conditions, which count once.
    """
    known = [of for of in dict.fromkeys(every) if of is not None and None not in of.kernels_s]
    if len(known) < 2:
        return np.zeros((len(KERNELS),) * 2)
    logs = np.log(np.array([of.kernels_s for of in known], float))
    return np.asarray(np.cov(logs, rowvar=False)) / len(known)


def _passing(known: Mapping[int, _Array]) -> _Array:
    """The covariance of what a second has by itself, from its difference to the next ones."""
    seen, count = _PRIOR_SECONDS * _of_each(_SECOND_SD), _PRIOR_SECONDS
    for second, logs in known.items():
        after = [known[s] for s in range(second + 1, second + BLOCK_S) if s in known]
        if after:
            difference = logs - np.mean(after, axis=0)
            seen = seen + np.outer(difference, difference) / (1 + 1 / len(after))
            count += 1
    return seen / count


def _learned(deviations: _Array, prior: _Array, freedom: float) -> _Array:
    """The covariance of ``deviations``, which count for ``freedom`` ones, against the prior."""
    count = max(1, len(deviations))
    seen = deviations.T @ deviations / count * max(0.0, freedom)
    learned: _Array = (_PRIOR * prior + seen) / (_PRIOR + max(0.0, freedom) - 1.0)
    return learned


def _prior(deviation: float) -> _Array:
    return np.full((len(KERNELS),) * 2, deviation**2)


def _of_each(deviation: float) -> _Array:
    return np.eye(len(KERNELS)) * deviation**2


def _nonnegative(covariance: _Array) -> _Array:
    """The nearest covariance: without what rounding and subtraction make negative."""
    values, vectors = np.linalg.eigh((covariance + covariance.T) / 2)
    nearest: _Array = (vectors * np.maximum(values, 0.0)) @ vectors.T
    return nearest
