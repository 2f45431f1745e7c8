"""Ratios of estimated over measured latencies, and their errors."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import geometric_mean

from bricks.samples.statistics import median
from bricks.units.interval import Interval


@dataclass(frozen=True, slots=True)
class Ratios:
    """Ratios of estimated over measured latency; there must be one at least to sum them up."""

    values: tuple[float, ...]

    @classmethod
    def of(cls, pairs: Iterable[tuple[float, float]]) -> Ratios:
        """The ratios of pairs of an estimated and a measured latency."""
        return cls(tuple(estimate / measured for estimate, measured in pairs))

    @property
    def errors(self) -> list[float]:
        """|ratio - 1| of each."""
        return [abs(ratio - 1) for ratio in self.values]

    @property
    def median_error(self) -> float:
        """The median of |ratio - 1|."""
        return median(self.errors)

    @property
    def p95_error(self) -> float:
        """The 95th percentile of |ratio - 1|, by :func:`quantile`."""
        return quantile(self.errors, 0.95)

    @property
    def worst_error(self) -> float:
        """The largest |ratio - 1|."""
        return max(self.errors)

    @property
    def geomean(self) -> float:
        """The geometric mean: the factor by which estimates are off together."""
        return geometric_mean(self.values)


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least ``share`` of all values do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1)]


def digits(value: float, count: int) -> float:
    """``value`` to ``count`` significant digits, as results keep it."""
    return float(f"{value:.{count}g}")


def shortened(figure: Interval) -> Interval:
    """An interval with its ends to four significant digits."""
    return Interval(*(digits(end, 4) for end in (figure.value, figure.low, figure.high)))


def microseconds(latency_s: float) -> float:
    """A latency in microseconds, to four digits."""
    return digits(latency_s * 1e6, 4)
