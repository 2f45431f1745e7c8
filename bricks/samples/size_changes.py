"""Runs of a model whose sizes change from run to run, in one session with open dimensions.

A runtime prepares for sizes that it has not run before: its arena grows, kernels are compiled for
the new shapes. Plain data. Must not know how runs are timed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb
from statistics import median

from bricks.units.interval import Interval


@dataclass(frozen=True, slots=True)
class SizeTimes:
    """Seconds of runs of one size.

    ``first_s`` is the first run of the size in its session; None for the size that the session ran
    before all others, since that run prepares everything. ``changed_s`` are later runs right after
    a run of another size, and ``settled_s`` the median of the runs of the same size that followed
    each. ``open_ratios`` are such settled runs relative to runs of a session for this size alone,
    in turn with them.
    """

    first_s: float | None
    changed_s: tuple[float, ...]
    settled_s: tuple[float, ...]
    open_ratios: tuple[float, ...]

    @property
    def open_ratio(self) -> float:
        """How many times as long as a session for this size alone one with open dimensions takes.

        The median over pairs of runs in turn.
        """
        return median(self.open_ratios)

    @property
    def change_s(self) -> Interval:
        """How many seconds longer than settled runs the run after another size takes.

        The median over pairs of runs in turn, both of which other load slows down.
        """
        pairs = zip(self.changed_s, self.settled_s, strict=True)
        return _median_of([changed - settled for changed, settled in pairs])

    @property
    def new_s(self) -> float | None:
        """How many seconds longer than settled runs the very first run of the size takes."""
        return None if self.first_s is None else self.first_s - median(self.settled_s)


@dataclass(frozen=True, slots=True)
class SizeChanges:
    """The runs of each of several sizes, in order."""

    sizes: tuple[SizeTimes, ...]


def _median_of(values: Sequence[float]) -> Interval:
    """The median and its 95 % interval, between two of the values: no distribution is assumed."""
    ordered, count = sorted(values), len(values)
    beyond, rank = 0.0, 0
    while rank < count // 2 and beyond + comb(count, rank) / 2**count <= 0.025:
        beyond += comb(count, rank) / 2**count
        rank += 1
    last = max(rank - 1, 0)
    return Interval(median(ordered), ordered[last], ordered[count - 1 - last])
