"""Bytes that are touched between two uses of the same data, in a cycle of calls.

The distance decides whether a cache that displaces what was used longest ago still holds the data:
stack distances (Mattson et al., IBM Systems Journal 1970), in bytes. Must not know caches.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bricks.compose.device.operands import RegionUse


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
        """Add ``number`` at ``position``."""
        self._total += number
        at = position + 1
        while at < len(self._tree):
            self._tree[at] += number
            at += at & -at

    def after(self, position: int) -> int:
        """The sum of all numbers after ``position``."""
        at, before = position + 1, 0
        while at > 0:
            before += self._tree[at]
            at -= at & -at
        return self._total - before
