"""A quantity with its 95 % interval, and the propagation of errors through sums and products.

The unit stands in the name of a field: ``latency_s: Interval``. Must not know what is estimated,
nor why it is uncertain.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from statistics import NormalDist

# The ends of a 95 % interval in standard deviations of a normal distribution.
_END = NormalDist().inv_cdf(0.975)


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate ``value`` with the ends of its 95 % interval, all three in one unit."""

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
        """``value`` / ``factor`` to ``value`` · ``factor``; ``factor`` is 1 or more."""
        return cls(value, value / factor, value * factor)

    @classmethod
    def deviating(cls, value: float, sources: Iterable[Interval]) -> Interval:
        """``value`` with the independent errors of ``sources``, in quadrature on each side."""
        parts = list(sources)
        below = math.hypot(*(part.value - part.low for part in parts))
        above = math.hypot(*(part.high - part.value for part in parts))
        return cls(value, value - below, value + above)

    @property
    def half_width(self) -> float:
        """Half the distance between the ends."""
        return (self.high - self.low) / 2

    @property
    def relative(self) -> float:
        """The half width over the value; infinite unless the value is positive."""
        return self.half_width / self.value if self.value > 0 else math.inf

    def holds(self, number: float) -> bool:
        """Whether ``number`` lies between the ends, or is one of them."""
        return self.low <= number <= self.high

    def map(self, function: Callable[[float], float]) -> Interval:
        """Apply a monotonic ``function`` to value and ends; a falling one swaps the ends."""
        value, low, high = function(self.value), function(self.low), function(self.high)
        return Interval(value, min(value, low, high), max(value, low, high))

    def scaled(self, factor: float) -> Interval:
        """The interval times an exact ``factor``, such as the number of equal parts of a sum."""
        low, high = sorted((factor * self.low, factor * self.high))
        return Interval(factor * self.value, low, high)

    def shifted(self, by: float) -> Interval:
        """The interval plus an exact number."""
        return Interval(self.value + by, self.low + by, self.high + by)

    def deviated(self, by: float) -> float:
        """The quantity ``by`` standard deviations above its value; below it if negative.

        Each side is the half of a log-normal distribution: an end lies 1.96 deviations away. For
        quantities that are not negative; a negative low end counts as 0.
        """
        end = max(0.0, self.low if by < 0 else self.high)
        return self.value * (end / self.value) ** (abs(by) / _END) if self.value > 0 else end

    def times(self, other: Interval) -> Interval:
        """The product of two non-negative quantities: ends are products of ends."""
        return Interval(self.value * other.value, self.low * other.low, self.high * other.high)

    def widened(self, by: float) -> Interval:
        """Add an independent error ``by`` on each side, in quadrature."""
        return Interval.deviating(self.value, (self, Interval.around(0.0, by)))

    def stretched(self, share: float) -> Interval:
        """Move each end outwards by its ``share``; a positive low end stays non-negative."""
        return replace(self, low=self.low * (1 - min(share, 1.0)), high=self.high * (1 + share))

    def at_least(self, bound: float) -> Interval:
        """Clip value and ends to ``bound`` from below."""
        return Interval(max(bound, self.value), max(bound, self.low), max(bound, self.high))

    def positive(self) -> Interval:
        """Return an interval whose low end is positive.

        A low end less than half the value is replaced by an exponential that approaches 0 as the
        interval widens.
        """
        below = self.value - self.low
        if below <= self.value / 2:
            return replace(self, low=max(0.0, self.low))
        low = self.value / 2 * math.exp(1.0 - 2.0 * below / self.value) if self.value > 0 else 0.0
        return replace(self, low=low)


def common_sum(parts: Iterable[Interval]) -> Interval:
    """The sum of quantities with a common error: ends add up."""
    terms = list(parts)
    return Interval(
        sum((term.value for term in terms), 0.0),
        sum((term.low for term in terms), 0.0),
        sum((term.high for term in terms), 0.0),
    )


def independent_sum(parts: Sequence[Interval]) -> Interval:
    """The sum of quantities with independent errors, which add up in quadrature."""
    return Interval.deviating(sum((part.value for part in parts), 0.0), parts)


End = Callable[[Interval], float]

value_of: End = attrgetter("value")
low_of: End = attrgetter("low")
high_of: End = attrgetter("high")
