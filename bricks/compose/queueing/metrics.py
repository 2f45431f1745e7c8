"""What follows from simulated servers: percentiles and other figures, as intervals.

A server is simulated with latencies at their values and at both ends of their intervals, with the
same arrivals and the same noise. Must not know what is served.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TypeVar

import numpy as np

from bricks.units.cases import Cases, interval_of
from bricks.units.interval import Interval

# A server begins without a queue; what it then answers first tells little of the rest.
WARM_UP = 0.05

T = TypeVar("T")


def steady(values: np.ndarray) -> np.ndarray:
    """``values`` in the order of arrival, without those of the beginning."""
    return values[int(WARM_UP * len(values)) :]


def figure(cases: Cases[T], tell: Callable[[T], float], *, unbounded: bool = False) -> Interval:
    """What ``tell`` says in each case; ``unbounded``: there is no upper end."""
    found = interval_of(cases.map(tell))
    return replace(found, high=math.inf) if unbounded else found


def percentiles(
    cases: Cases[np.ndarray], percents: Mapping[str, float], *, unbounded: bool
) -> dict[str, Interval]:
    """The percentiles that ``percents`` names, of values in each case."""
    return {
        name: figure(cases, partial(_percentile, percent=percent), unbounded=unbounded)
        for name, percent in percents.items()
    }


def _percentile(values: np.ndarray, percent: float) -> float:
    return float(np.percentile(values, percent))


def rate(count: float, seconds: float) -> float:
    """So many in so many seconds; the low end of an interval may be none."""
    return count / seconds if seconds > 0 else math.inf
