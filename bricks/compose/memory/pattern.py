"""ONNX Runtime's memory pattern: one block in which the values of later runs have fixed places.

The runtime traces the first run, in which each value asks the arena for memory, and takes one block
for all of them from the second run on. Must not know values, or what the block is taken from.
"""

from __future__ import annotations

from collections.abc import Hashable

ALIGNMENT = 64


class Pattern:
    """Offsets by what was traced; ``size_bytes`` is the size of the block."""

    def __init__(self) -> None:
        self.size_bytes = 0
        self.offsets: dict[Hashable, int] = {}
        self._blocks: list[tuple[int, int, Hashable]] = []  # now in use: (begin, end, what)

    def take(self, what: Hashable, size_bytes: int) -> None:
        """Give ``what`` the smallest gap between blocks that it fits into, or the end."""
        size = -(-size_bytes // ALIGNMENT) * ALIGNMENT
        begin = self._blocks[-1][1] if self._blocks else 0
        position, best, reached = len(self._blocks), -1, 0
        for number, (other_begin, other_end, _) in enumerate(self._blocks):
            gap = other_begin - reached
            if gap >= size and (best < 0 or gap < best):
                position, best, begin = number, gap, reached
            reached = other_end
        self._blocks.insert(position, (begin, begin + size, what))
        self.offsets[what] = begin
        self.size_bytes = max(self.size_bytes, begin + size)

    def give(self, what: Hashable) -> None:
        """``what`` is not needed any more."""
        self._blocks = [block for block in self._blocks if block[2] is not what]
