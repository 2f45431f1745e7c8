"""A quantity over a size (a batch, a length, bytes, ranks): points with linear interpolation.

The error of interpolation is a leave-one-out error: each inner point is left out in turn and
interpolated from its two neighbours. Must not know what the size is of.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property

from bricks.units.interval import Interval

# A size and the quantity at it.
Point = tuple[float, Interval]


class Extrapolation(Enum):
    """The rule by which a curve continues below its first or above its last point."""

    REFUSED = "not at all"
    CONSTANT = "as at the last point"
    PROPORTIONAL = "in proportion to the size"
    RISING = "along the line through the last two points, if it rises: above the last point alone"


@dataclass(frozen=True)  # without slots: cached properties
class Curve:
    """A quantity at ``points`` (size, interval), in order of size, at least one.

    Intervals are exact at the points; with ``widens``, all others are wider by the relative
    :attr:`error`. ``below`` and ``above`` are the rules of extrapolation.
    """

    points: tuple[Point, ...]
    below: Extrapolation = Extrapolation.REFUSED
    above: Extrapolation = Extrapolation.REFUSED
    widens: bool = True

    def __post_init__(self) -> None:
        """Raise :class:`ValueError` without points, or for a curve that rises below the first."""
        if not self.points or self.below is Extrapolation.RISING:
            raise ValueError("a curve has points, and does not rise below the first of them")

    @classmethod
    def through(
        cls,
        points: Iterable[Point],
        *,
        below: Extrapolation = Extrapolation.REFUSED,
        above: Extrapolation = Extrapolation.REFUSED,
        widens: bool = True,
    ) -> Curve:
        """Return the curve through ``points`` in any order, all sizes distinct."""
        return cls(tuple(sorted(points, key=lambda point: point[0])), below, above, widens)

    def at(self, size: float) -> Interval:
        """Return the quantity at ``size``; :class:`ValueError` where extrapolation is refused."""
        index = bisect_left(self.sizes, size)
        if index < len(self.sizes) and self.sizes[index] == size:
            return self.points[index][1]
        estimate = self._estimate(index, size)
        return estimate.stretched(self.error) if self.widens else estimate

    def covers(self, size: float) -> bool:
        """Whether ``size`` lies between points, or is one of them."""
        return self.sizes[0] <= size <= self.sizes[-1]

    @cached_property
    def sizes(self) -> tuple[float, ...]:
        """The sizes of the points."""
        return tuple(size for size, _ in self.points)

    @cached_property
    def left_out(self) -> tuple[float, ...]:
        """For each inner point, its value interpolated from its neighbours over its own value."""
        return tuple(
            _on_line(before, after, size).value / known.value
            for before, (size, known), after in zip(
                self.points, self.points[1:], self.points[2:], strict=False
            )
        )

    @cached_property
    def error(self) -> float:
        """The worst relative leave-one-out error."""
        return max((abs(ratio - 1) for ratio in self.left_out), default=0.0)

    def map(self, function: Callable[[Interval], Interval]) -> Curve:
        """Return the curve with ``function`` applied to the quantity of each point."""
        return replace(self, points=tuple((size, function(known)) for size, known in self.points))

    def _estimate(self, index: int, size: float) -> Interval:
        """Interpolate or extrapolate at ``size``, which sorts before the point at ``index``."""
        if 0 < index < len(self.points):
            return _on_line(self.points[index - 1], self.points[index], size)
        last_size, known = self.points[max(0, index - 1)]
        match self.below if index == 0 else self.above:
            case Extrapolation.REFUSED:
                first, end = self.sizes[0], self.sizes[-1]
                raise ValueError(f"a size of {size:g} is not between {first:g} and {end:g}")
            case Extrapolation.PROPORTIONAL:
                return known.map(lambda number: number * size / last_size)
            case Extrapolation.RISING if len(self.points) > 1:
                line = _on_line(self.points[-2], self.points[-1], size)
                return line if line.value > known.value else known
        return known


def _on_line(one: Point, other: Point, size: float) -> Interval:
    """Return value, low and high end at ``size`` on the three lines through two points."""
    (first, a), (last, b) = one, other
    share = (size - first) / (last - first)
    return Interval(
        a.value + share * (b.value - a.value),
        a.low + share * (b.low - a.low),
        a.high + share * (b.high - a.high),
    )
