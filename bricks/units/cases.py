"""Selects a number of an interval: its value or one of its ends. Must not know what is computed."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter

from bricks.units.interval import Interval

End = Callable[[Interval], float]

value_of: End = attrgetter("value")
low_of: End = attrgetter("low")
high_of: End = attrgetter("high")
