"""A quantity with its interval, and how intervals add up. Plain data.

The unit stands in the name of what holds the quantity: ``latency_s: Interval``. Must not know what
is estimated, nor why it is uncertain.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate ``value``, and the ends of an interval that is meant to hold the truth with 95 %.

    All three are in the same unit.
    """

    value: float
    low: float
    high: float

    @classmethod
    def exact(cls, value: float) -> Interval:
        """A number without an error."""
        return cls(value, value, value)

    @classmethod
    def around(cls, value: float, half_width: float) -> Interval:
        """``value`` plus and minus ``half_width``."""
        return cls(value, value - half_width, value + half_width)

    @classmethod
    def within_factor(cls, value: float, factor: float) -> Interval:
        """``value`` divided by ``factor`` to ``value`` times ``factor``, which is 1 or more."""
        return cls(value, value / factor, value * factor)

    @classmethod
    def deviating(cls, value: float, sources: Iterable[Interval]) -> Interval:
        """``value``, off by as much as each of ``sources`` is, whose errors are independent.

        Distances between value and end add up as squares do, on each side.
        """
        every = list(sources)
        below = math.hypot(*(each.value - each.low for each in every))
        above = math.hypot(*(each.high - each.value for each in every))
        return cls(value, value - below, value + above)

    @property
    def half_width(self) -> float:
        """Half the distance of the ends."""
        return (self.high - self.low) / 2

    @property
    def relative(self) -> float:
        """Half the width, relative to the value; infinite unless the value is positive."""
        return self.half_width / self.value if self.value > 0 else math.inf

    def holds(self, number: float) -> bool:
        """Whether ``number`` lies between the ends, or is one of them."""
        return self.low <= number <= self.high

    def map(self, function: Callable[[float], float]) -> Interval:
        """The interval of ``function``, which rises or falls: a falling one swaps the ends."""
        value, low, high = function(self.value), function(self.low), function(self.high)
        return Interval(value, min(value, low, high), max(value, low, high))

    def scaled(self, factor: float) -> Interval:
        """The interval times an exact ``factor``, such as a number of equal parts in a row."""
        low, high = sorted((factor * self.low, factor * self.high))
        return Interval(factor * self.value, low, high)

    def shifted(self, by: float) -> Interval:
        """The interval of the same width, ``by`` further up."""
        return Interval(self.value + by, self.low + by, self.high + by)

    def times(self, other: Interval) -> Interval:
        """The product of two quantities from 0 on: ends are products of ends."""
        return Interval(self.value * other.value, self.low * other.low, self.high * other.high)

    def over(self, other: Interval) -> Interval:
        """The ratio of two positive quantities: the low end is over the high one of ``other``."""
        return Interval(self.value / other.value, self.low / other.high, self.high / other.low)

    def widened(self, by: float) -> Interval:
        """Wider by an independent error ``by`` on each side: squares add up."""
        return Interval.deviating(self.value, (self, Interval.around(0.0, by)))

    def stretched(self, share: float) -> Interval:
        """Ends moved apart by a ``share`` of themselves; the low end of a positive stays so."""
        return replace(self, low=self.low * (1 - min(share, 1.0)), high=self.high * (1 + share))

    def at_least(self, bound: float) -> Interval:
        """Nothing of it below ``bound``."""
        return Interval(max(bound, self.value), max(bound, self.low), max(bound, self.high))

    def positive(self) -> Interval:
        """The interval of a quantity that cannot be negative.

        Where the low end is further than half of the value below it, the distance is one of
        logarithms: it leaves some of the value, however wide the interval is.
        """
        below = self.value - self.low
        if below <= self.value / 2:
            return replace(self, low=max(0.0, self.low))
        low = self.value / 2 * math.exp(1.0 - 2.0 * below / self.value) if self.value > 0 else 0.0
        return replace(self, low=low)


def common_sum(parts: Iterable[Interval]) -> Interval:
    """The sum of quantities with one error in common: ends add up."""
    every = list(parts)
    return Interval(
        sum((each.value for each in every), 0.0),
        sum((each.low for each in every), 0.0),
        sum((each.high for each in every), 0.0),
    )


def independent_sum(parts: Sequence[Interval]) -> Interval:
    """The sum of quantities whose errors are independent: distances add up as squares do."""
    return Interval.deviating(sum((each.value for each in parts), 0.0), parts)
