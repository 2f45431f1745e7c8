"""The memory that calls touch, and where they find their data: in a step, and in a walk.

A region is memory that calls share: a storage, or one that was allocated before the step. A call
that starts no kernel touches nothing.

A storage that is freed gives its address to the next storage of the same size, as PyTorch's caching
allocator does, so new results often lie where a cache still holds something.

A walk visits places of the program. At each, the call runs after the calls just before it, all on
data of their own; only what these calls made or used is what the call finds again. Must not know
caches.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from bricks.decompose.allocated import Allocated
from bricks.graph.types import TensorType
from bricks.operators.registry import operator_called

if TYPE_CHECKING:
    from bricks.decompose.plan import Brick, Plan
    from bricks.graph.types import ValueType

# The allocator rounds sizes up to this.
_BLOCK_BYTES = 512


def step_operands(plan: Plan, facts: Sequence[CallFacts]) -> tuple[tuple[RegionUse, ...], ...]:
    """The operands of each occurrence in a step that follows an equal one."""
    memory = _Addresses(plan, facts)
    memory.step()  # fills the lists of free addresses
    return memory.step()


class _Addresses:
    """The addresses of a plan's storages, step after step."""

    def __init__(self, plan: Plan, facts: Sequence[CallFacts]) -> None:
        self._plan, self._facts, self._storages = plan, facts, storages_of(plan, facts)
        self._ends = _ends(plan)
        self._free: dict[int, list[Hashable]] = defaultdict(list)
        self._count = 0
        self._of: dict[Hashable, Hashable] = {}

    def step(self) -> tuple[tuple[RegionUse, ...], ...]:
        """The operands of each occurrence; all memory of the step is free afterwards."""
        self._of = {}
        found = []
        for position, of in enumerate(self._facts):
            found.append(self._operands(position, of))
            self._release(position)
        self._release(len(self._facts))
        return tuple(found)

    def _operands(self, position: int, facts: CallFacts) -> tuple[RegionUse, ...]:
        plan, storages = self._plan, self._storages
        reads = [
            (self._of.get(storage, storage), self._size(value, size))
            for storage, size, value in used(plan, position, storages, facts)
        ]
        made = plan.occurrences[position].made
        for value in made:
            if storages[value] == value and plan.memory.storage(value) == value:
                free = self._free[self._blocks(value)]
                if not free:
                    self._count += 1
                    free.append(("address", self._count))
                self._of[value] = free.pop()
        writes = [
            (self._of.get(storages[v], storages[v]), self._size(v, size_bytes(plan.types[v])))
            for v in made
        ]
        return operands(facts, reads, writes)

    def _size(self, value: int | None, size: int) -> int:
        """The bytes of a value, at most those of its storage: an expanded view has more."""
        first = -1 if value is None else self._plan.memory.storage(value)
        return size if first < 0 else min(size, size_bytes(self._plan.types[first]))

    def _release(self, position: int) -> None:
        for value in self._ends.get(position, ()):
            if value in self._of:
                self._free[self._blocks(value)].append(self._of[value])

    def _blocks(self, value: int) -> int:
        return max(1, -(-size_bytes(self._plan.types[value]) // _BLOCK_BYTES))


def _ends(plan: Plan) -> Mapping[int, Sequence[int]]:
    """The storages that are free after each position; what stays is free after the step."""
    memory, last = plan.memory, len(plan.occurrences)
    freed = memory.freed if isinstance(memory, Allocated) else (None,) * len(plan.types)
    ends: dict[int, int] = {}
    for value, at in enumerate(freed):
        first = memory.storage(value)
        if first >= 0:
            ends[first] = max(ends.get(first, 0), last if at is None else at)
    by_position: dict[int, list[int]] = defaultdict(list)
    for first, at in ends.items():
        by_position[at].append(first)
    return by_position


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
        # Of a table, no more bytes than the largest other operand has.
        new = max((size for region, size in written.items() if region not in read), default=0)
        most = {
            region: max([new, *(size for other, size in read.items() if other != region)])
            for region in read
        }
        read, written = (
            {region: min(size, most[region]) for region, size in read.items()},
            {region: min(size, most.get(region, size)) for region, size in written.items()},
        )
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
    where: dict[str, list[int]] = {}
    for position, occurrence in enumerate(plan.occurrences):
        where.setdefault(occurrence.brick, []).append(position)
    middle = {positions[len(positions) // 2] for positions in where.values()}
    both = middle | {positions[0] for positions in where.values()}
    for place in sorted(both if len(both) <= _MOST_PLACES else middle):
        if facts[place].starts:
            calls += _calls_at(plan, place, storages, facts)
            key = plan.occurrences[place].brick
            timed[key] = (*timed.get(key, ()), len(calls) - 1)
    return WalkCalls(tuple(calls), timed)


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
