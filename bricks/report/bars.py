"""Positions of bars and of intervals on a scale that several share, as styles of HTML elements.

Must not know what they show.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bricks.units.interval import Interval

# Wider ranges are drawn on a logarithmic scale.
_MOST_LINEAR = 8.0


@dataclass(frozen=True, slots=True)
class Scale:
    """A scale from ``low`` to ``high``, logarithmic where it would else hide small values."""

    low: float
    high: float
    logarithmic: bool

    @classmethod
    def of(cls, intervals: Iterable[Interval]) -> Scale:
        """The scale of ``intervals``: from zero, or from the lowest end if they differ much."""
        every = list(intervals)
        ends = [max(each.high if math.isfinite(each.high) else each.value, each.value)
                for each in every]  # fmt: skip
        high = max(ends, default=1.0) or 1.0
        values = [each.value for each in every if each.value > 0]
        if not values or high / min(values) <= _MOST_LINEAR:
            return cls(0.0, high, logarithmic=False)
        lowest = min(max(each.low, each.value / 2) for each in every if each.value > 0)
        return cls(lowest / 1.1, high, logarithmic=True)

    def style(self, of: Interval) -> str:
        """The positions of an interval's ends and of its value in percent, as CSS variables."""
        low, value, high = map(self._percent, (of.low, of.value, of.high))
        return f"--l:{low:.1f}%;--w:{max(0.0, high - low):.1f}%;--v:{value:.1f}%"

    def _percent(self, value: float) -> float:
        if not self.logarithmic:
            return 100 * min(1.0, max(0.0, value / self.high))
        bounded = min(max(value, self.low), self.high)
        return 100 * math.log(bounded / self.low) / math.log(self.high / self.low)


def share_style(share: float) -> str:
    """The length of a bar that shows a share of the longest one."""
    return f"--s:{100 * max(0.0, min(1.0, share)):.1f}%"
