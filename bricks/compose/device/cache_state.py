"""The state of a device's L2 cache at each call of a step, and the time that follows from it.

A call was measured hot (again and again), cold (after all of the cache was written) and in a walk.
In a step the cache holds a part of its data; so does it in the walk. Which part follows from the
bytes that are touched between two uses.

The distance between two uses decides whether a cache that displaces what was used longest ago still
holds the data: stack distances (Mattson et al., IBM Systems Journal 1970), in bytes. Must not know
how measurements came about.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

from bricks.compose.device.step_memory import facts_of, step_operands, walk_calls

if TYPE_CHECKING:
    from bricks.compose.device.step_memory import RegionUse
    from bricks.decompose.plan import Brick, Plan

_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class StepReuses:
    """The reuses of each occurrence of a step in order, and of each brick's calls in a walk."""

    step: tuple[tuple[Reuse, ...], ...]
    walk: Mapping[str, tuple[tuple[Reuse, ...], ...]]

    @classmethod
    def of(cls, plan: Plan, bricks: Mapping[str, Brick], starting: Sequence[bool]) -> StepReuses:
        """The reuses in ``plan``; ``starting`` says which occurrences start kernels."""
        facts = [
            facts_of(bricks[occurrence.brick], starts)
            for occurrence, starts in zip(plan.occurrences, starting, strict=True)
        ]
        walk = walk_calls(plan, facts)
        walked = reuses(walk.operands)
        by_brick = {key: tuple(walked[i] for i in at) for key, at in walk.timed.items()}
        return cls(reuses(step_operands(plan, facts)), by_brick)


@dataclass(frozen=True, slots=True)
class CacheModel:
    """How a device's L2 cache keeps data, and how a call's time depends on what is missing.

    Data are missing once about ``capacity`` of the L2's size has been touched since their last use:
    less than all of it, since each half of an H100's L2 keeps copies of what its own processors
    read. ``width`` is how gradually, in logarithms. Missing data cost their bytes, and a latency as
    long as ``latency_bytes`` take. What is only written counts ``written`` times. In a step even
    the data that the cache holds take ``floor`` of the cold time, since other processors wrote
    them. If the step misses more than the walk, a call is slower by at most ``coldest`` of the
    difference between cold and hot.
    """

    capacity: float = 0.5
    width: float = 0.05
    latency_bytes: float = 2 * _MIB
    written: float = 0.5
    floor: float = 0.12
    coldest: float = 0.8

    def missing(self, of: Sequence[Reuse], l2_bytes: int) -> float:
        """The share of a call's data, 0 to 1, that the cache does not hold when it begins."""
        cold_bytes = all_bytes = latest = 0.0
        for reuse in of:
            share = self._displaced(reuse.displaced_bytes / (self.capacity * l2_bytes))
            weight = reuse.size_bytes * (1.0 if reuse.reads else self.written)
            cold_bytes, all_bytes = cold_bytes + share * weight, all_bytes + weight
            latest = max(latest, share if reuse.reads else 0.0)
        if not all_bytes:
            return 0.0
        return (self.latency_bytes * latest + cold_bytes) / (self.latency_bytes + all_bytes)

    def _displaced(self, load: float) -> float:
        """The share that is displaced after ``load`` capacities; a logistic of its logarithm."""
        if not 0.1 < load < 10.0:
            return float(load >= 10.0)
        return float(1 / (1 + load ** (-1 / self.width)))

    def walk_missing(self, of: Sequence[Sequence[Reuse]], l2_bytes: int) -> float:
        """The mean share that is missing at a brick's places in a walk."""
        return fmean(self.missing(each, l2_bytes) for each in of)

    def device_s(self, times: CallTimes, step: float, walk: float) -> float:
        """Seconds of a call in a step that misses the share ``step`` of its data, ``walk`` there.

        Between hot and walk, or beyond the walk towards cold.
        """
        hot_s, walk_s = times.hot_s, times.walk_s
        if step <= walk:
            share = self._felt(step) / self._felt(walk) if walk else 1.0
            return hot_s + (walk_s - hot_s) * share
        more_s = max(0.0, self.coldest * (times.cold_s - hot_s) - (walk_s - hot_s))
        return walk_s + more_s * (step - walk) / max(1 - walk, _LEAST_MARGIN)

    def hot_to_cold_s(self, times: CallTimes, step: float) -> float:
        """Seconds of a call that was not walked, in a step that misses the share ``step``."""
        return times.hot_s + self.coldest * self._felt(step) * (times.cold_s - times.hot_s)

    def _felt(self, missing: float) -> float:
        return self.floor + (1 - self.floor) * missing


# Walks that miss nearly everything tell little about how cold a step can be.
_LEAST_MARGIN = 0.3


@dataclass(frozen=True, slots=True)
class CallTimes:
    """Seconds of a call's kernels in a walk, hot and cold."""

    walk_s: float
    hot_s: float
    cold_s: float

    @property
    def spread_s(self) -> float:
        """Seconds between hot and cold."""
        return max(0.0, self.cold_s - self.hot_s)


@dataclass(frozen=True, slots=True)
class Reuse:
    """``size_bytes`` of an operand that come again after ``displaced_bytes`` of other data."""

    size_bytes: int
    displaced_bytes: float
    reads: bool


def reuses(calls: Sequence[Sequence[RegionUse]]) -> tuple[tuple[Reuse, ...], ...]:
    """The reuses of each call's operands, where the calls run again and again in this order.

    A use of more bytes of a region than the last one has several parts.
    """
    cycle = _Cycle(calls)
    for position, call in enumerate(calls):
        cycle.touch(position, call)
    return tuple(cycle.next(len(calls) + position, call) for position, call in enumerate(calls))


@dataclass(frozen=True, slots=True)
class _Use:
    """The last use of the first ``size_bytes`` of a region, at a position of the sequence."""

    position: int
    size_bytes: int
    at: float


class _Cycle:
    """The last uses of all regions, and the bytes in them by position."""

    def __init__(self, calls: Sequence[Sequence[RegionUse]]) -> None:
        self._totals = [sum(operand.size_bytes for operand in call) for call in calls]
        self._bytes = _Sums(2 * len(calls))
        self._uses: dict[Hashable, list[_Use]] = {}

    def next(self, position: int, call: Sequence[RegionUse]) -> tuple[Reuse, ...]:
        """The reuses of the call at ``position``, which is noted."""
        own = self._totals[position % len(self._totals)]
        found = tuple(reuse for operand in call for reuse in self._reuses(operand, own))
        self.touch(position, call)
        return found

    def _reuses(self, operand: RegionUse, own_bytes: int) -> list[Reuse]:
        found, passed = [], 0
        for use in self._uses[operand.region]:
            size = min(operand.size_bytes, use.size_bytes) - passed
            if size > 0:
                between = self._bytes.after(use.position) + operand.at * own_bytes
                rest = (1 - use.at) * self._totals[use.position % len(self._totals)]
                found.append(Reuse(size, between + rest, operand.reads))
                passed += size
        return found

    def touch(self, position: int, call: Sequence[RegionUse]) -> None:
        """Note a call's operands as used at ``position``; larger older uses stay in part."""
        for operand in call:
            older = self._uses.get(operand.region, [])
            self._add(older, -1)
            kept = [use for use in older if use.size_bytes > operand.size_bytes]
            uses = [_Use(position, operand.size_bytes, operand.at), *kept]
            self._add(uses, 1)
            self._uses[operand.region] = uses

    def _add(self, uses: Sequence[_Use], sign: int) -> None:
        passed = 0
        for use in uses:
            self._bytes.add(use.position, sign * (use.size_bytes - passed))
            passed = use.size_bytes


class _Sums:
    """Numbers by position, with sums of all later ones in logarithmic time (Fenwick 1994)."""

    def __init__(self, positions: int) -> None:
        self._tree = [0] * (positions + 1)
        self._total = 0

    def add(self, position: int, number: int) -> None:
        self._total += number
        at = position + 1
        while at < len(self._tree):
            self._tree[at] += number
            at += at & -at

    def after(self, position: int) -> int:
        at, before = position + 1, 0
        while at > 0:
            before += self._tree[at]
            at -= at & -at
        return self._total - before
