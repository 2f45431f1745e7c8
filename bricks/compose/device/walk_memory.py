"""Where calls find their data in a walk over a program's calls on a device.

A walk visits places of the program. At each, the call runs after the calls just before it, all on
data of their own; only what these calls made or used is what the call finds again. Must not know
caches.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bricks.compose.device.operands import (
    CallFacts,
    RegionUse,
    operands,
    size_bytes,
    storages_of,
    used,
)

if TYPE_CHECKING:
    from bricks.decompose.plan import Plan

# Calls that run before the one that is timed, and the most places at which each brick is timed
# twice: at its first occurrence, and in the middle of all.
LEAD, _MOST_PLACES = 2, 600


@dataclass(frozen=True, slots=True)
class WalkCalls:
    """The operands of all calls of a walk in order; ``timed`` are the positions for each brick."""

    operands: tuple[tuple[RegionUse, ...], ...]
    timed: Mapping[str, tuple[int, ...]]


def walk_calls(plan: Plan, facts: Sequence[CallFacts]) -> WalkCalls:
    """The calls of a walk over the places of ``plan``; calls that start no kernel are not timed."""
    storages = storages_of(plan, facts)
    calls: list[tuple[RegionUse, ...]] = []
    timed: dict[str, tuple[int, ...]] = {}
    for place in _places(plan):
        if facts[place].starts:
            calls += _calls_at(plan, place, storages, facts)
            key = plan.occurrences[place].brick
            timed[key] = (*timed.get(key, ()), len(calls) - 1)
    return WalkCalls(tuple(calls), timed)


def _places(plan: Plan) -> list[int]:
    where: dict[str, list[int]] = {}
    for position, occurrence in enumerate(plan.occurrences):
        where.setdefault(occurrence.brick, []).append(position)
    middle = {positions[len(positions) // 2] for positions in where.values()}
    both = middle | {positions[0] for positions in where.values()}
    return sorted(both if len(both) <= _MOST_PLACES else middle)


def _calls_at(
    plan: Plan, place: int, storages: Sequence[Hashable], facts: Sequence[CallFacts]
) -> Iterator[tuple[RegionUse, ...]]:
    """The operands of the call at ``place``, after those of the calls before it."""
    regions: dict[Hashable, Hashable] = {}
    for position in range(max(0, place - LEAD), place + 1):
        shared: dict[Hashable, Hashable] = {}
        reads = []
        for storage, size, value in used(plan, position, storages, facts[position]):
            name = storage if value is None else ("value", value)
            new = ("walk", place, position, storage)
            region = regions.setdefault(name, shared.get(storage, new))
            shared[storage] = region
            reads.append((region, size))
        writes = []
        for value in plan.occurrences[position].made:
            size = size_bytes(plan.types[value])
            # The allocator gives the memory of results again, from place to place.
            region = shared.get(storages[value], ("result", size))
            regions[("value", value)] = region
            writes.append((region, size))
        yield operands(facts[position], reads, writes)
