"""Metrics of simulated servers, such as percentiles, as intervals.

A server is simulated with latencies at their values and with draws of latencies, with the same
arrivals and the same noise. Must not know what is served.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from bricks.units.draws import Drawn, interval_of

if TYPE_CHECKING:
    from bricks.units.interval import Interval

# The share of requests that warm up the simulation: the server begins without a queue.
WARM_UP = 0.05

T = TypeVar("T")


def without_warm_up(values: np.ndarray) -> np.ndarray:
    """``values``, in the order of arrival, without those of the warm-up."""
    return values[int(WARM_UP * len(values)) :]


def metric(runs: Drawn[T], of: Callable[[T], float], *, unbounded: bool = False) -> Interval:
    """The metric ``of`` all runs as an interval, whose high end is infinite if ``unbounded``."""
    interval = interval_of(runs.map(of))
    return replace(interval, high=math.inf) if unbounded else interval


def percentiles(
    values: Drawn[np.ndarray], percents: Mapping[str, float], *, unbounded: bool
) -> dict[str, Interval]:
    """Percentiles of the values of each run, by the names in ``percents``."""
    return {
        name: metric(values, partial(_percentile, percent=percent), unbounded=unbounded)
        for name, percent in percents.items()
    }


def _percentile(values: np.ndarray, percent: float) -> float:
    return float(np.percentile(values, percent))


def rate(count: float, seconds: float) -> float:
    """``count`` in ``seconds``, per second; infinite where an interval's low end is no time."""
    return count / seconds if seconds > 0 else math.inf


def trimmed_mean(values: np.ndarray | Sequence[float], share: float = 0.1) -> float:
    """The mean without a ``share`` of the values at each end; NaN without values."""
    if not len(values):
        return math.nan
    cut = int(share * len(values))
    kept = np.partition(values, (cut, len(values) - cut - 1))[cut : len(values) - cut]
    return float(kept.mean())
