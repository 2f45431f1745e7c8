"""Where a step's calls find their data: addresses that a caching allocator gives again.

A storage that is freed gives its address to the next storage of the same size, as PyTorch's caching
allocator does, so new results often lie where a cache still holds something. Must not know caches.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING

from bricks.compose.device.operands import (
    CallFacts,
    RegionUse,
    operands,
    size_bytes,
    storages_of,
    used,
)
from bricks.decompose.allocated import Allocated

if TYPE_CHECKING:
    from bricks.decompose.plan import Plan

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
                self._allocate(value)
        writes = [
            (self._of.get(storages[v], storages[v]), self._size(v, size_bytes(plan.types[v])))
            for v in made
        ]
        return operands(facts, reads, writes)

    def _size(self, value: int | None, size: int) -> int:
        """The bytes of a value, at most those of its storage: an expanded view has more."""
        first = -1 if value is None else self._plan.memory.storage(value)
        return size if first < 0 else min(size, size_bytes(self._plan.types[first]))

    def _allocate(self, value: int) -> None:
        free = self._free[self._blocks(value)]
        if not free:
            self._count += 1
            free.append(("address", self._count))
        self._of[value] = free.pop()

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
