"""The activation region: memory that all steps of a walk share, filled with ordinary numbers.

The bound inputs and outputs of steps are offsets into it, so that each step finds its inputs where
the step before has written them. It must not know any walk.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bricks.measure.worker.memory import ALIGNMENT_BYTES, aligned


class ActivationRegion:
    """The region; empty until :meth:`resize`."""

    def __init__(self) -> None:
        self._memory = np.zeros(0, np.uint8)

    @property
    def memory(self) -> np.ndarray:
        """Bytes of the region (uint8), from an aligned address."""
        return aligned(self._memory)

    def resize(self, size_bytes: int) -> None:
        """Allocate ``size_bytes``, and drop the old memory."""
        self._memory = np.zeros(size_bytes + ALIGNMENT_BYTES, np.uint8)

    def fill(self, filling: np.ndarray, *, parts: Sequence[tuple[int, int]] | None = None) -> None:
        """Write ``filling`` repeatedly into ``parts`` (offset and bytes); None: everywhere.

        A walk over some of a model's bricks may read values at its beginning that it wrote at its
        end. Without new numbers, such values would grow or shrink without bound.
        """
        memory, period = self.memory, len(filling)
        for begin, size_bytes in [(0, len(memory))] if parts is None else parts:
            end = min(begin + size_bytes, len(memory))
            while begin < end:
                phase = begin % period
                count = min(period - phase, end - begin)
                memory[begin : begin + count] = filling[phase : phase + count]
                begin += count
