"""One computation in three cases: with quantities at their values, low ends and high ends.

For computations that are no formula of their quantities, such as a simulation. Must not know what
is computed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import Generic, TypeVar

from bricks.units.interval import Interval

T = TypeVar("T")
U = TypeVar("U")

# Selects a number of an interval: its value or one of its ends.
End = Callable[[Interval], float]


@dataclass(frozen=True, slots=True)
class Cases(Generic[T]):
    """Three results: with quantities at their ``value``, their ``low`` or their ``high`` end."""

    value: T
    low: T
    high: T

    def map(self, function: Callable[[T], U]) -> Cases[U]:
        """Apply ``function`` to each result."""
        return Cases(function(self.value), function(self.low), function(self.high))


value_of: End = attrgetter("value")
low_of: End = attrgetter("low")
high_of: End = attrgetter("high")
ENDS: Cases[End] = Cases(value_of, low_of, high_of)


def interval_of(cases: Cases[float]) -> Interval:
    """Return the interval from the smallest to the largest result; ends of inputs may swap."""
    results = (cases.value, cases.low, cases.high)
    return Interval(cases.value, min(results), max(results))
