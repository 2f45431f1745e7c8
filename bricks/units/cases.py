"""One computation in three cases: with quantities at their values, low ends and high ends.

For what is no formula of its quantities, such as a simulation: it runs once for each case. Must not
know what is computed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from bricks.units.interval import Interval

T = TypeVar("T")
U = TypeVar("U")

# The number of an interval that counts in a case.
End = Callable[[Interval], float]


def value_of(interval: Interval) -> float:
    """The value."""
    return interval.value


def low_of(interval: Interval) -> float:
    """The low end."""
    return interval.low


def high_of(interval: Interval) -> float:
    """The high end."""
    return interval.high


@dataclass(frozen=True, slots=True)
class Cases(Generic[T]):
    """The same thing where quantities have their ``value``, their ``low`` or their ``high`` end."""

    value: T
    low: T
    high: T

    def map(self, function: Callable[[T], U]) -> Cases[U]:
        """What ``function`` gives in each case."""
        return Cases(function(self.value), function(self.low), function(self.high))


ENDS: Cases[End] = Cases(value_of, low_of, high_of)


def interval_of(cases: Cases[float]) -> Interval:
    """The value and what lies furthest on both sides: the ends of inputs may swap in a result."""
    every = (cases.value, cases.low, cases.high)
    return Interval(cases.value, min(every), max(every))
