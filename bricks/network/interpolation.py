"""Times of a collective between sizes that were measured: on the straight line between neighbours.

Sizes are measured a factor apart at which a backend may change its algorithm and messages leave the
caches, and what is smooth between two neighbours is not so over all of them. Must not know which
operation the times are of.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

# A line through fewer says nothing of how far times are from it.
MIN_POINTS = 3

# Medians are known no better than this, relative to them.
_MIN_DEVIATION = 0.01


@dataclass(frozen=True, slots=True)
class Interpolation:
    """``points`` are sizes in bytes with seconds, in order of size, :data:`MIN_POINTS` at least."""

    points: tuple[tuple[int, float], ...]

    def time_s(self, num_bytes: int) -> float:
        """Seconds for so many bytes, no fewer than the first size.

        Beyond the last size the line through the last two goes on, if it rises.
        """
        above = self._above(num_bytes)
        line_s = _on_line(self.points[above - 1], self.points[above], num_bytes)
        return max(line_s, self.points[-1][1]) if num_bytes > self.points[-1][0] else line_s

    def deviation_at(self, num_bytes: int) -> float:
        """The relative standard deviation of a time.

        It is how far either neighbour is from the line through the two beside it.
        """
        above = self._above(num_bytes)
        inner = {min(max(1, at), len(self.points) - 2) for at in (above - 1, above)}
        return max(_MIN_DEVIATION, *(self._off(at) for at in inner))

    def _above(self, num_bytes: int) -> int:
        sizes = [size for size, _ in self.points]
        return min(max(1, bisect_left(sizes, num_bytes)), len(sizes) - 1)

    def _off(self, at: int) -> float:
        """How far a point is from the line through the two beside it."""
        before, (size, time_s), after = self.points[at - 1 : at + 2]
        return abs(math.log(_on_line(before, after, size) / time_s))


def _on_line(low: tuple[int, float], high: tuple[int, float], num_bytes: int) -> float:
    share = (num_bytes - low[0]) / (high[0] - low[0])
    return (1 - share) * low[1] + share * high[1]


def interpolated(points: Sequence[tuple[int, float]]) -> Interpolation | None:
    """The interpolation of ``points``, all sizes unlike; None of too few."""
    return Interpolation(tuple(sorted(points))) if len(points) >= MIN_POINTS else None
