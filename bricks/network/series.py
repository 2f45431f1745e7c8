"""Times of one collective with one number of ranks over sizes, interpolated between neighbours.

Sizes are measured a factor apart at which a backend may change its algorithm and messages leave the
caches, so times that are linear between two neighbours are not so over all of them. Must not know
which operation the times are of.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from bricks.network.fit import PER_DOUBLED_SIZE, Fit, fit, rising_curve
from bricks.samples.statistics import median, pooled_deviation, pooled_spread

if TYPE_CHECKING:
    from bricks.units.curve import Curve
    from bricks.units.interval import Interval

# Fewer points have no leave-one-out error.
_MIN_POINTS = 3

# The lowest relative deviation, of rounds and of medians.
_MIN_DEVIATION = 0.01


@dataclass(frozen=True)  # without slots: cached properties
class SizeSeries:
    """Seconds of each round, by the bytes of the tensor."""

    rounds_s: Mapping[int, Sequence[float]]

    @cached_property
    def medians_s(self) -> Sequence[tuple[int, float]]:
        """Bytes with the median over rounds in seconds."""
        return [(num_bytes, median(times_s)) for num_bytes, times_s in self.rounds_s.items()]

    @cached_property
    def fit(self) -> Fit:
        """The α–β fit of the medians."""
        return fit(self.medians_s)

    def measured(self, num_bytes: int) -> Interval:
        """The median of a measured size in seconds; its deviation is pooled over all sizes."""
        deviation = max(_MIN_DEVIATION, pooled_deviation(self.rounds_s.values()))
        return pooled_spread(self.rounds_s[num_bytes], deviation)

    def estimate(self, num_bytes: int) -> tuple[float, float]:
        """Seconds of a size that was not measured, and their relative standard deviation.

        They are interpolated; below all sizes, or with few sizes, they are those of the fit.
        """
        if len(self.rounds_s) < _MIN_POINTS or num_bytes < min(self.rounds_s):
            return self.fit.estimate(num_bytes)
        curve = rising_curve(self.medians_s)
        beyond = PER_DOUBLED_SIZE * max(0.0, math.log2(num_bytes / max(self.rounds_s)))
        return curve.at(num_bytes).value, math.hypot(deviation_at(curve, num_bytes), beyond)


def deviation_at(curve: Curve, num_bytes: int) -> float:
    """The relative standard deviation between points: the leave-one-out error of the neighbours."""
    above = min(max(1, bisect_left(curve.sizes, num_bytes)), len(curve.sizes) - 1)
    inner = {min(max(1, at), len(curve.sizes) - 2) for at in (above - 1, above)}
    return max(_MIN_DEVIATION, *(abs(math.log(curve.left_out[at - 1])) for at in inner))
