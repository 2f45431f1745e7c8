"""The memory that each call of a step touches: regions, bytes, reads and writes.

A region is memory that calls share: a storage, or one that was allocated before the step. A call
that starts no kernel touches nothing. Must not know caches, nor where storages lie.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from bricks.graph.tensor import TensorType
from bricks.operators.registry import operator_called

if TYPE_CHECKING:
    from bricks.decompose.plan import Brick, Plan
    from bricks.graph.containers import ValueType

# Names of ATen's operators that pass over lists of tensors, one tensor after the other.
_OVER_LISTS = ("_foreach", "_fused")
# Values are numbered; weights are numbered separately.
WEIGHT = "weight"


@dataclass(frozen=True, slots=True)
class RegionUse:
    """A call's use of ``size_bytes`` of ``region``, which it ``reads``, or only writes.

    ``at`` is the share of the call that has passed by then: a half for data that a call streams
    from begin to end.
    """

    region: Hashable
    size_bytes: int
    reads: bool = True
    at: float = 0.5


@dataclass(frozen=True, slots=True)
class CallFacts:
    """Facts of a call that decide which memory it touches.

    ``weights_bytes`` are the sizes of its weights. With ``selects`` its indices select a part of a
    table; with ``over_lists`` it passes over lists of tensors. ``starts`` says whether it starts a
    kernel.
    """

    weights_bytes: tuple[int, ...]
    selects: bool
    over_lists: bool
    starts: bool


def facts_of(brick: Brick, starts: bool) -> CallFacts:
    """The facts of calls of ``brick``."""
    sizes = tuple(map(size_bytes, brick.weights.values()))
    lists = any(name in operator for operator in brick.operators for name in _OVER_LISTS)
    return CallFacts(sizes, any(map(_selects, brick.operators)), lists, starts)


@cache
def _selects(operator: str) -> bool:
    """Whether an operator's indices select a part of a table."""
    return any(dependence.large_table for dependence in operator_called(operator).values)


def size_bytes(type_: ValueType) -> int:
    """Bytes of a tensor; 0 for other values."""
    sized = isinstance(type_, TensorType) and type_.dtype != "STRING"
    return type_.size_bytes if sized else 0


def storages_of(plan: Plan, facts: Sequence[CallFacts]) -> tuple[Hashable, ...]:
    """The storage of each value of ``plan``: the number of its first value, or a weight.

    A view of memory from before the step has the storage of an operand of the call that made it: of
    the next one with as many bytes, if there is one.
    """
    known: list[Hashable] = list(range(len(plan.types)))
    for position, occurrence in enumerate(plan.occurrences):
        sources = [
            (storage, size)
            for storage, size, value in used(plan, position, known, facts[position])
            if value is None or plan.memory.storage(value) < 0
        ]
        for value in occurrence.made:
            first = plan.memory.storage(value)
            if first >= 0:
                known[value] = first
            elif sources:
                known[value] = _source(size_bytes(plan.types[value]), sources)
    return tuple(known)


def _source(size: int, sources: list[tuple[Hashable, int]]) -> Hashable:
    """The storage of the first source of this size, which goes to the end, or of the first."""
    found = next((source for source in sources if source[1] == size), sources[0])
    sources.remove(found)
    sources.append(found)
    return found[0]


def operands(
    facts: CallFacts,
    reads: Sequence[tuple[Hashable, int]],
    writes: Sequence[tuple[Hashable, int]],
) -> tuple[RegionUse, ...]:
    """The operands of a call from its regions and their bytes, each region once."""
    if not facts.starts:
        return ()
    read, written = _largest(reads), _largest(writes)
    if facts.selects:
        read, written = _selected(read, written)
    at = _positions(reads, writes) if facts.over_lists else {}
    sizes = {region: max(read.get(region, 0), size) for region, size in written.items()}
    return tuple(
        RegionUse(region, size, region in read, at.get(region, 0.5))
        for region, size in {**read, **sizes}.items()
        if size
    )


def _largest(uses: Iterable[tuple[Hashable, int]]) -> dict[Hashable, int]:
    sizes: dict[Hashable, int] = {}
    for region, size in uses:
        sizes[region] = max(size, sizes.get(region, 0))
    return sizes


def _selected(
    read: Mapping[Hashable, int], written: Mapping[Hashable, int]
) -> tuple[dict[Hashable, int], dict[Hashable, int]]:
    """Of a table, no more bytes than the largest other operand has."""
    new = max((size for region, size in written.items() if region not in read), default=0)
    most = {
        region: max([new, *(size for other, size in read.items() if other != region)])
        for region in read
    }
    return (
        {region: min(size, most[region]) for region, size in read.items()},
        {region: min(size, most.get(region, size)) for region, size in written.items()},
    )


def _positions(
    reads: Sequence[tuple[Hashable, int]], writes: Sequence[tuple[Hashable, int]]
) -> dict[Hashable, float]:
    """When a call over lists touches each region; lists are as long as the list of results."""
    total = max(1, sum(size for _, size in writes))
    passed, at = 0, []
    for _, size in writes:
        at.append((passed + size / 2) / total)
        passed += size
    found = {region: at[i] for i, (region, _) in enumerate(writes)}
    aligned = bool(at) and len(reads) % len(at) == 0
    for i, (region, _) in enumerate(reads):
        found.setdefault(region, at[i % len(at)] if aligned else (i + 0.5) / len(reads))
    return found


def used(
    plan: Plan, position: int, storages: Sequence[Hashable], facts: CallFacts
) -> Iterator[tuple[Hashable, int, int | None]]:
    """Storage, bytes and value of each input and weight of an occurrence; weights are no values."""
    occurrence = plan.occurrences[position]
    for value in occurrence.inputs:
        yield storages[value], size_bytes(plan.types[value]), value
    for number, size in zip(occurrence.weights, facts.weights_bytes, strict=False):
        yield (WEIGHT, number), size, None
