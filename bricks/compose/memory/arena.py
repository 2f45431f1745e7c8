"""ONNX Runtime's arena: best fit with coalescing, over regions that grow by powers of two.

A model of the allocator ``BFCArena`` (after TensorFlow's) with its default settings, so that the
memory of a run follows from the sizes of its allocations. Only touched bytes are resident: a region
may be twice as large as its use. The arena never frees a region. Must not know values or weights.
"""

from __future__ import annotations

from bisect import bisect_left, insort

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
            self._extend(size)
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

    def _extend(self, size: int) -> None:
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
