"""ONNX Runtime's memory pattern: one block with fixed offsets for the values of later runs.

The runtime traces the first run, in which each value allocates from the arena, and allocates one
block for all of them from the second run on. Must not know values or the arena.
"""

from __future__ import annotations

from collections.abc import Hashable

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
