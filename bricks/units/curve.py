"""A quantity over a size (a batch, a length, bytes, ranks): known at points, interpolated between.

How wrong that is, the points tell: each that has two neighbours is left out in turn and
interpolated from them. Must not know what the size is of.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

from bricks.units.interval import Interval


class Between(Enum):
    """What is straight between two points."""

    LINEAR = "both as they are"
    LOG_SIZE = "the logarithm of the size"
    LOG_BOTH = "the logarithms of size and quantity"


class Extrapolation(Enum):
    """How a curve goes on beyond its first or last point."""

    REFUSED = "not at all"
    CONSTANT = "as at the last point"
    PROPORTIONAL = "in proportion to the size"
    RISING = "along the line through the last two points, if it rises: above the last point alone"


@dataclass(frozen=True)  # without slots: what follows from the points is kept
class Curve:
    """``points`` are sizes with quantities, in order of size, at least one.

    With ``widens``, intervals between and beyond the points are wider by :attr:`error`; at points
    they are exact. Beyond the points the curve goes on as ``below`` and ``above`` say.
    """

    points: tuple[tuple[float, Interval], ...]
    between: Between = Between.LINEAR
    below: Extrapolation = Extrapolation.REFUSED
    above: Extrapolation = Extrapolation.REFUSED
    widens: bool = True

    def __post_init__(self) -> None:
        """Raise :class:`ValueError` for a curve that is none."""
        if not self.points or self.below is Extrapolation.RISING:
            raise ValueError("a curve has points, and does not rise below the first of them")

    @classmethod
    def through(
        cls,
        points: Iterable[tuple[float, Interval]],
        between: Between = Between.LINEAR,
        *,
        below: Extrapolation = Extrapolation.REFUSED,
        above: Extrapolation = Extrapolation.REFUSED,
        widens: bool = True,
    ) -> Curve:
        """The curve through ``points`` in any order, all sizes unlike."""
        return cls(tuple(sorted(points, key=_size)), between, below, above, widens)

    def at(self, size: float) -> Interval:
        """The quantity at ``size``; :class:`ValueError` where the curve does not go on."""
        place = bisect_left(self.sizes, size)
        if place < len(self.sizes) and self.sizes[place] == size:
            return self.points[place][1]
        found = self._beside(place, size)
        return found.stretched(self.error) if self.widens else found

    def covers(self, size: float) -> bool:
        """Whether ``size`` lies between points, or is one of them."""
        return self.sizes[0] <= size <= self.sizes[-1]

    @cached_property
    def sizes(self) -> tuple[float, ...]:
        """The sizes of the points."""
        return tuple(size for size, _ in self.points)

    @cached_property
    def left_out(self) -> tuple[float, ...]:
        """Each inner point as interpolated from the two beside it, relative to itself."""
        return tuple(
            self._on_line(before, after, size).value / known.value
            for before, (size, known), after in zip(
                self.points, self.points[1:], self.points[2:], strict=False
            )
        )

    @cached_property
    def error(self) -> float:
        """The worst relative error of a point that is interpolated from the two beside it."""
        return max((abs(ratio - 1) for ratio in self.left_out), default=0.0)

    def map(self, function: Callable[[Interval], Interval]) -> Curve:
        """The curve through what ``function`` makes of each point's quantity."""
        points = tuple((size, function(known)) for size, known in self.points)
        return Curve(points, self.between, self.below, self.above, self.widens)

    def _beside(self, place: int, size: float) -> Interval:
        """At a size that is no point, before the point at ``place``."""
        if 0 < place < len(self.points):
            return self._on_line(self.points[place - 1], self.points[place], size)
        how = self.below if place == 0 else self.above
        last, known = self.points[max(0, place - 1)]
        match how:
            case Extrapolation.REFUSED:
                first, end = self.sizes[0], self.sizes[-1]
                raise ValueError(f"a size of {size:g} is not between {first:g} and {end:g}")
            case Extrapolation.PROPORTIONAL:
                return known.map(lambda number: number * size / last)
            case Extrapolation.RISING if len(self.points) > 1:
                line = self._on_line(self.points[-2], self.points[-1], size)
                return line if line.value > known.value else known
        return known

    def _on_line(
        self, one: tuple[float, Interval], other: tuple[float, Interval], size: float
    ) -> Interval:
        """At ``size`` on the line through two points, each of the three numbers by itself."""
        (first, a), (last, b) = one, other
        if self.between is not Between.LINEAR:
            first, last, size = math.log(first), math.log(last), math.log(size)
        share = (size - first) / (last - first)
        mix = _geometric if self.between is Between.LOG_BOTH else _straight
        return Interval(
            mix(a.value, b.value, share), mix(a.low, b.low, share), mix(a.high, b.high, share)
        )


def _size(point: tuple[float, Interval]) -> float:
    return point[0]


def _straight(one: float, other: float, share: float) -> float:
    return one + share * (other - one)


def _geometric(one: float, other: float, share: float) -> float:
    return math.exp(_straight(math.log(one), math.log(other), share))
