"""Times of a collective between sizes that were measured: on the straight line between neighbours.

Sizes are measured a factor apart at which a backend may change its algorithm and messages leave the
caches, and what is smooth between two neighbours is not so over all of them. Must not know which
operation the times are of.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence

from bricks.units.curve import Curve, Extrapolation
from bricks.units.interval import Interval

# A line through fewer says nothing of how far times are from it.
MIN_POINTS = 3

# Medians are known no better than this, relative to them.
_MIN_DEVIATION = 0.01


def interpolated(points: Sequence[tuple[int, float]]) -> Curve | None:
    """The seconds by bytes through ``points``, all sizes unlike; None of too few.

    Beyond the last size the line through the last two goes on, if it rises.
    """
    if len(points) < MIN_POINTS:
        return None
    exact = ((size, Interval.exact(time_s)) for size, time_s in points)
    return Curve.through(exact, above=Extrapolation.RISING, widens=False)


def deviation_at(curve: Curve, num_bytes: int) -> float:
    """The relative standard deviation of a time on a curve of ``MIN_POINTS`` points or more.

    It is how far either neighbour is from the line through the two beside it.
    """
    above = min(max(1, bisect_left(curve.sizes, num_bytes)), len(curve.sizes) - 1)
    inner = {min(max(1, at), len(curve.sizes) - 2) for at in (above - 1, above)}
    return max(_MIN_DEVIATION, *(abs(math.log(curve.left_out[at - 1])) for at in inner))
