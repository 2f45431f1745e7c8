from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from bricks.compose.memory.activations import UNIT_BYTES, Arena, Chunk, Pattern

MIB = 1 << 20

# A region has a table of eight bytes for each unit.
TABLE = 8 / UNIT_BYTES


def allocated_chunk(arena: Arena, size_bytes: int) -> Chunk:
    chunk = arena.allocate(size_bytes)
    arena.touch(chunk, size_bytes)
    return chunk


def test_only_what_is_touched_is_resident() -> None:
    arena = Arena()
    chunk = arena.allocate(3 * MIB)  # of a region of four
    assert arena.resident_bytes == 4 * MIB * TABLE
    arena.touch(chunk, MIB)
    arena.touch(chunk, MIB, MIB // 2)
    assert arena.resident_bytes == 4 * MIB * TABLE + 1.5 * MIB


def test_memory_that_is_given_back_stays_resident_and_is_taken_again() -> None:
    arena = Arena()
    first = allocated_chunk(arena, MIB)
    before = arena.resident_bytes
    arena.free(first)
    assert allocated_chunk(arena, MIB).offset == first.offset
    assert arena.resident_bytes == before


def test_regions_double_and_suffice_for_what_is_asked() -> None:
    arena = Arena()
    for size, region in ((MIB, 1), (MIB, 2), (16 * MIB, 16), (16 * MIB, 16), (16 * MIB, 32)):
        before = arena.resident_bytes
        arena.allocate(size)
        assert arena.resident_bytes - before == region * MIB * TABLE


def test_a_chunk_is_split_only_if_half_of_it_or_more_is_left() -> None:
    arena = Arena()
    whole = arena.allocate(4 * MIB)
    arena.free(whole)
    most = arena.allocate(3 * MIB)
    assert most.size == 4 * MIB
    arena.free(most)
    assert arena.allocate(2 * MIB).size == 2 * MIB


def test_the_smallest_chunk_that_fits_is_taken() -> None:
    arena = Arena()
    chunks = [arena.allocate(size * MIB) for size in (4, 1, 2, 1)]  # the first in its own region
    arena.free(chunks[0])
    arena.free(chunks[2])
    assert arena.allocate(2 * MIB).offset == chunks[2].offset


def test_a_chunk_grows_together_with_free_neighbours_on_both_sides() -> None:
    arena = Arena()
    chunks = [arena.allocate(MIB // 4) for _ in range(2)]
    before = arena.resident_bytes
    for chunk in chunks:
        arena.free(chunk)
    assert arena.allocate(MIB).offset == 0
    assert arena.resident_bytes == before  # no region was added


@given(st.lists(st.tuples(st.integers(1, 4 * MIB), st.booleans()), max_size=40))
def test_chunks_that_are_taken_never_overlap(requests: list[tuple[int, bool]]) -> None:
    arena = Arena()
    allocated: list[Chunk] = []
    for size, back in requests:
        chunk = arena.allocate(size)
        assert chunk.size >= size
        for other in allocated:
            assert (
                other.region != chunk.region
                or other.offset + other.size <= chunk.offset
                or chunk.offset + chunk.size <= other.offset
            )
        allocated.append(chunk)
        if back:
            arena.free(allocated.pop(len(allocated) // 2))
    before = arena.resident_bytes
    for chunk in allocated:
        arena.free(chunk)
    assert arena.resident_bytes == before
    # Free neighbours have grown together: each region is one chunk again.
    regions = {chunk.region: chunk for chunk in allocated}
    for _ in regions:
        assert arena.allocate(1).offset % UNIT_BYTES == 0


@given(st.lists(st.tuples(st.integers(1, 1000), st.booleans()), max_size=40))
def test_what_a_pattern_holds_at_the_same_time_never_overlaps(
    requests: list[tuple[int, bool]],
) -> None:
    pattern = Pattern()
    allocated: list[tuple[int, int]] = []  # (name, size)
    for name, (size, back) in enumerate(requests):
        pattern.allocate(name, size)
        allocated.append((name, size))
        ranges = sorted((pattern.offsets[w], pattern.offsets[w] + s) for w, s in allocated)
        assert all(a[1] <= b[0] for a, b in pairwise(ranges))
        assert ranges[-1][1] <= pattern.size_bytes
        if back:
            freed, _ = allocated.pop(0)
            pattern.free(freed)


def test_a_pattern_fills_the_smallest_gap() -> None:
    pattern = Pattern()
    for name, size in enumerate((256, 64, 128, 64)):
        pattern.allocate(name, size)
    pattern.free(0)
    pattern.free(2)
    pattern.allocate("new", 100)
    assert pattern.offsets["new"] == pattern.offsets[2]
    assert pattern.size_bytes == 512
