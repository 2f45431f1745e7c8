"""Memory of a model's values while it runs: the runtime's planner, pattern and arena in turn.

In the first run, each value is allocated from the arena; from the second on, all values except the
outputs are in one block, which rarely fits into the arena's free chunks. So the second run needs
more memory than the first.

The memory pattern is one block with fixed offsets: the runtime traces the first run for it. The
arena is best fit with coalescing, over regions that grow by powers of two.

A model of the allocator ``BFCArena`` (after TensorFlow's) with its default settings, so that the
memory of a run follows from the sizes of its allocations. Only touched bytes are resident: a region
may be twice as large as its use. The arena never frees a region. Must not know weights.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING

from bricks.decompose.planned_memory import Buffer, buffers

if TYPE_CHECKING:
    from bricks.decompose.plan import Plan
    from bricks.graph.types import ValueType

# Memory does not grow after the third run.
RUNS = 3


def input_bytes(plan: Plan) -> int:
    """Bytes of the model's inputs, which the caller owns."""
    return sum(_bytes(plan.types[value]) for value in dict.fromkeys(plan.inputs))


def sizeless(plan: Plan) -> int:
    """The number of values whose size does not follow from their type."""
    return sum(not _sized(type_) for type_ in plan.types)


def _sized(type_: ValueType) -> bool:
    try:
        return type_.size_bytes >= 0
    except KeyError:
        return False


def _bytes(type_: ValueType) -> int:
    return type_.size_bytes if _sized(type_) else 0


class Activations:
    """The values of ``plan`` in the memory of a process that runs it.

    Values without a known size (texts) count as 0 bytes; see :func:`sizeless`.
    """

    def __init__(self, plan: Plan) -> None:
        shared = buffers(plan)
        self._sizes = {buffer: _bytes(buffer.type_) for buffer in shared.values()}
        self._outputs = {shared[value] for value in plan.outputs}
        self._steps = _steps(plan, shared)

    def resident_bytes(
        self, workspaces: Mapping[str, Sequence[int]] | None = None, weights: Sequence[int] = ()
    ) -> int:
        """Resident bytes of values and workspaces after :data:`RUNS` runs, without inputs.

        ``workspaces`` are the sizes of the buffers of each brick's kernel, by key. ``weights`` are
        the sizes of weights in the arena, which make it grow, but are not part of the result.
        """
        arena, pattern = Arena(), Pattern()
        for size in weights:
            _allocated(arena, size)
        for run in range(RUNS):
            self._run(arena, pattern, workspaces or {}, first=run == 0)
        return arena.resident_bytes - sum(weights)

    def _run(
        self,
        arena: Arena,
        pattern: Pattern,
        workspaces: Mapping[str, Sequence[int]],
        *,
        first: bool,
    ) -> None:
        block = None if first or not pattern.size_bytes else arena.allocate(pattern.size_bytes)
        chunks: dict[Buffer, Chunk] = {}
        for key, made, done in self._steps:
            for buffer in made:
                size = self._sizes[buffer]
                if block is not None and buffer in pattern.offsets:
                    arena.touch(block, size, pattern.offsets[buffer])
                elif size:
                    chunks[buffer] = _allocated(arena, size)
                    if first and buffer not in self._outputs:
                        pattern.allocate(buffer, size)
            for chunk in [_allocated(arena, size) for size in workspaces.get(key, ()) if size]:
                arena.free(chunk)
            for buffer in done:
                if buffer in chunks:
                    arena.free(chunks.pop(buffer))
                    if first:
                        pattern.free(buffer)
        for chunk in (*chunks.values(), *([] if block is None else [block])):
            arena.free(chunk)


def _allocated(arena: Arena, size_bytes: int) -> Chunk:
    chunk = arena.allocate(size_bytes)
    arena.touch(chunk, size_bytes)
    return chunk


_Step = tuple[str, list[Buffer], list[Buffer]]


def _steps(plan: Plan, shared: Mapping[int, Buffer]) -> Sequence[_Step]:
    """For each occurrence: its brick, the buffers that it is first and last to use."""
    steps: list[_Step] = []
    seen = {shared[value] for value in plan.inputs}  # the caller's memory
    for number, occurrence in enumerate(plan.occurrences):
        made = [b for b in dict.fromkeys(shared[v] for v in occurrence.made) if b not in seen]
        seen.update(made)
        used = dict.fromkeys(shared[v] for v in (*occurrence.inputs, *occurrence.made))
        done = [buffer for buffer in used if buffer.last == number]
        steps.append((occurrence.brick, made, done))
    return steps


ALIGNMENT = 64


class Pattern:
    """Offsets in bytes by traced value; ``size_bytes`` is the size of the block."""

    def __init__(self) -> None:
        self.size_bytes = 0
        self.offsets: dict[Hashable, int] = {}
        self._blocks: list[tuple[int, int, Hashable]] = []  # in use: (begin, end, value)

    def allocate(self, value: Hashable, size_bytes: int) -> None:
        """Assign ``value`` an offset in the smallest gap that it fits into, or at the end."""
        size = -(-size_bytes // ALIGNMENT) * ALIGNMENT
        begin = self._blocks[-1][1] if self._blocks else 0
        position, best, reached = len(self._blocks), -1, 0
        for number, (other_begin, other_end, _) in enumerate(self._blocks):
            gap = other_begin - reached
            if gap >= size and (best < 0 or gap < best):
                position, best, begin = number, gap, reached
            reached = other_end
        self._blocks.insert(position, (begin, begin + size, value))
        self.offsets[value] = begin
        self.size_bytes = max(self.size_bytes, begin + size)

    def free(self, value: Hashable) -> None:
        """Free the memory of ``value``, which keeps its offset."""
        self._blocks = [block for block in self._blocks if block[2] is not value]


# The allocator's unit; the size of the first region; the limit of doubling; and the surplus of a
# chunk that is always split off. A region has a table of eight bytes for each unit.
UNIT_BYTES = 256
_FIRST_BYTES, _MAX_GROWTH_BYTES = 1 << 20, 1 << 30
_MAX_SURPLUS_BYTES = 128 << 20
_TABLE_BYTES = 8

_Key = tuple[int, int, int]


class Chunk:
    """A part of a region, allocated or free; ``before`` and ``after`` are its neighbours."""

    __slots__ = ("after", "before", "free", "offset", "region", "size")

    def __init__(self, region: int, offset: int, size: int) -> None:
        self.region, self.offset, self.size = region, offset, size
        self.before: Chunk | None = None
        self.after: Chunk | None = None
        self.free = False

    @property
    def key(self) -> _Key:
        """Its rank among free chunks: by size, then by address.

        The operating system maps each new region below the earlier regions.
        """
        return self.size, -self.region, self.offset


class Arena:
    """An arena, empty at first."""

    def __init__(self) -> None:
        self._growth = _FIRST_BYTES
        self._regions: list[int] = []
        self._touched: list[list[tuple[int, int]]] = []  # by region: ranges, merged and in order
        self._keys: list[_Key] = []  # of the free chunks, in order
        self._free: dict[_Key, Chunk] = {}

    @property
    def resident_bytes(self) -> int:
        """Bytes that were touched at any time, and the tables of all regions."""
        tables = sum(self._regions) // UNIT_BYTES * _TABLE_BYTES
        return tables + sum(end - begin for ranges in self._touched for begin, end in ranges)

    def allocate(self, size_bytes: int) -> Chunk:
        """Return a chunk of at least ``size_bytes``, untouched."""
        size = max(UNIT_BYTES, -(-size_bytes // UNIT_BYTES) * UNIT_BYTES)
        at = bisect_left(self._keys, (size, -len(self._regions), 0))
        if at == len(self._keys):
            grown = False
            while size > self._growth:
                self._growth *= 2
                grown = True
            region = self._growth
            if not grown:
                self._growth = min(2 * self._growth, _MAX_GROWTH_BYTES)
            self._regions.append(region)
            self._touched.append([])
            self._list(Chunk(len(self._regions) - 1, 0, region))
            at = bisect_left(self._keys, (size, -len(self._regions), 0))
        chunk = self._unlist(self._keys[at])
        if chunk.size >= 2 * size or chunk.size - size >= _MAX_SURPLUS_BYTES:
            rest = Chunk(chunk.region, chunk.offset + size, chunk.size - size)
            rest.before, rest.after = chunk, chunk.after
            if chunk.after is not None:
                chunk.after.before = rest
            chunk.after, chunk.size = rest, size
            self._list(rest)
        return chunk

    def touch(self, chunk: Chunk, size_bytes: int, offset: int = 0) -> None:
        """Write to ``size_bytes`` of a chunk, from ``offset`` bytes after its beginning."""
        begin = chunk.offset + offset
        end = begin + size_bytes
        separate = []
        for other_begin, other_end in self._touched[chunk.region]:
            if other_end < begin or other_begin > end:
                separate.append((other_begin, other_end))
            else:
                begin, end = min(begin, other_begin), max(end, other_end)
        insort(separate, (begin, end))
        self._touched[chunk.region] = separate

    def free(self, chunk: Chunk) -> None:
        """Free a chunk and merge it with free neighbours."""
        if chunk.after is not None and chunk.after.free:
            self._merge(chunk, self._unlist(chunk.after.key))
        if chunk.before is not None and chunk.before.free:
            before = self._unlist(chunk.before.key)
            self._merge(before, chunk)
            chunk = before
        self._list(chunk)

    @staticmethod
    def _merge(chunk: Chunk, after: Chunk) -> None:
        chunk.size += after.size
        chunk.after = after.after
        if after.after is not None:
            after.after.before = chunk

    def _list(self, chunk: Chunk) -> None:
        chunk.free = True
        insort(self._keys, chunk.key)
        self._free[chunk.key] = chunk

    def _unlist(self, key: _Key) -> Chunk:
        del self._keys[bisect_left(self._keys, key)]
        chunk = self._free.pop(key)
        chunk.free = False
        return chunk
