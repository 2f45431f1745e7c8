"""The usual conditions of a host: the distribution of all conditions in which it was watched.

A host that was watched for a few minutes may be another one hours later: how much conditions differ
between periods of ten minutes is learned from as many periods as there are, against a prior. Must
not know what a latency makes of conditions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bricks.samples.host_conditions import KERNELS, HostConditions, mean_conditions

# Timings one after the other of which one is new: conditions last for some tenths of a second.
_RELATED = 8.0

# Seconds over which conditions are averaged: a run of a few seconds, which answers are about.
BLOCK_S = 5

# Conditions within so many seconds are one period.
_PERIOD_S = 600

# Prior: how much periods differ, as a standard deviation of logarithms that all kernels have in
# common; and the number of periods that it counts for. Assumed, not fitted: a few per cent are what
# well-kept servers differ by from hour to hour.
_PERIOD_SD, _PRIOR_PERIODS = 0.02, 3.0


@dataclass(frozen=True, slots=True)
class UsualConditions:
    """The ``mean`` of conditions, and their ``covariance`` at another time: shape ``(5, 5)``.

    The covariance is of logarithms of seconds, in the order of ``KERNELS``, for the mean of a run
    of some seconds. ``watched_s`` is how long the host was watched, in ``periods`` of ten minutes.
    """

    mean: HostConditions
    covariance: NDArray[np.float64]
    watched_s: float = 0.0
    periods: int = 0

    @classmethod
    def seen(cls, seconds: Sequence[HostConditions]) -> UsualConditions | None:
        """From conditions of many seconds; None without any.

        Each period counts as much as any other.
        """
        by_block: dict[int, list[HostConditions]] = {}
        for of in seconds:
            if None not in of.kernels_s:
                by_block.setdefault((of.taken_s or 0) // BLOCK_S, []).append(of)
        if not by_block:
            return None
        logs = np.array([_logs(every).mean(axis=0) for every in by_block.values()])
        period = [block * BLOCK_S // _PERIOD_S for block in by_block]
        of_period = [logs[np.array(period) == name] for name in dict.fromkeys(period)]
        means = np.array([of.mean(axis=0) for of in of_period])
        middle, count = means.mean(axis=0), len(means)
        within = np.mean([_covariance(of) for of in of_period], axis=0)
        between = _PRIOR_PERIODS * np.full((len(KERNELS),) * 2, _PERIOD_SD**2)
        between = between + (means - middle).T @ (means - middle)
        between *= (1.0 + 1.0 / count) / (_PRIOR_PERIODS + count - 1)
        mean = HostConditions(tuple(map(float, np.exp(middle))))
        return cls(mean, within + between, BLOCK_S * len(by_block), count)

    @classmethod
    def assumed(cls, mean: HostConditions) -> UsualConditions:
        """Of a host that was never watched: it differs from ``mean`` as the prior says."""
        return cls(mean, 2.0 * np.full((len(KERNELS),) * 2, _PERIOD_SD**2))

    @classmethod
    def now(cls, every: Sequence[HostConditions]) -> UsualConditions | None:
        """The conditions of this moment, from some that were timed one after the other."""
        mean = mean_conditions(every)
        if mean is None:
            return None
        logs = _logs(every)
        return cls(mean, _covariance(logs) / max(1.0, len(logs) / _RELATED))

    @classmethod
    def exactly(cls, mean: HostConditions) -> UsualConditions:
        """Known conditions, as of a run."""
        return cls(mean, np.zeros((len(KERNELS),) * 2))

    def relative_sd(self, sensitivity: NDArray[np.float64]) -> float:
        """How much a latency of this ``sensitivity`` differs: the sd of its logarithm."""
        return math.sqrt(max(0.0, float(sensitivity @ self.covariance @ sensitivity)))


def _logs(every: Sequence[HostConditions]) -> NDArray[np.float64]:
    return np.log(np.array([of.kernels_s for of in every], float))


def _covariance(logs: NDArray[np.float64]) -> NDArray[np.float64]:
    if len(logs) < 2:
        return np.zeros((len(KERNELS),) * 2)
    return np.asarray(np.cov(logs, rowvar=False))
