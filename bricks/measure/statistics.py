"""Statistics of latency samples, computed when they are read; what is stored stays raw.

Medians, because disturbances on a shared machine only ever make a run slower; intervals from order
statistics, because nothing is known of how latencies are distributed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache


@dataclass(frozen=True, slots=True)
class Spread:
    """A median in seconds with its interval, and how many values it stands on."""

    median_s: float
    low_s: float
    high_s: float
    count: int

    @property
    def relative(self) -> float:
        """Half the interval's width, relative to the median."""
        return (self.high_s - self.low_s) / 2 / self.median_s if self.median_s > 0 else math.inf


def median(values: Sequence[float]) -> float:
    """The middle value, or the mean of the two in the middle; ``values`` must not be empty."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[middle]
    return (ordered[middle - 1] + ordered[middle]) / 2


def spread(values: Sequence[float], confidence: float = 0.95) -> Spread:
    """The median of ``values`` with its distribution-free confidence interval.

    The interval runs between two order statistics (binomial argument; David and Nagaraja, *Order
    Statistics*, section 7.1). Under six values none of 95 % exists: it is then their range.
    """
    ordered = sorted(values)
    rank = _rank(len(ordered), confidence)
    return Spread(median(ordered), ordered[rank], ordered[-1 - rank], len(ordered))


@lru_cache(maxsize=4096)
def _rank(count: int, confidence: float) -> int:
    """Greatest r for which [x(r), x(count-1-r)] (from 0) covers the median this surely."""
    outside, rank = 0.0, 0
    for r in range(count // 2):
        outside += math.comb(count, r) / 2**count
        if 1 - 2 * outside < confidence:
            break
        rank = r
    return rank
