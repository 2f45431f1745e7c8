"""Reads memory in place of the weights that a walk lacks, in the worker.

See ``backends/eviction_read``.

The memory stays from one walk to the next: to fill some for the first time takes a machine that is
itself virtual up to half a second for what the caches hold. Must not know what is walked.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx

from bricks.backends.base import Placed
from bricks.backends.eviction_read import EVICTION_READ, ROW_BYTES, eviction_read

# More than what is asked for: memory begins where an address is even enough.
_ALIGNING_BYTES = 64

# Less than this stands for nothing.
_MIN_BYTES = 1 << 20

# Loads a model of one input, which is where this memory begins; by its key.
Load = Callable[[onnx.ModelProto, str, np.ndarray], Placed]


class CacheEvictor:
    """Whatever has been read so far, and the memory for it."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._memory = np.zeros(0, np.uint8)
        self._max_bytes = 0  # that any walk of what is loaded may read
        self._tried_bytes = 0  # to have, in vain perhaps
        self._readers: dict[int, Placed] = {}  # of so many of its bytes

    def allow(self, max_bytes: int) -> None:
        """Walks from now on read so much at most: it is had at once when the first one reads."""
        self._max_bytes = max_bytes

    def forget(self) -> None:
        """Unload what reads, and keep the memory."""
        self._readers.clear()
        self._tried_bytes = len(self._memory)  # for there may be more memory now

    def of(self, size_bytes: int) -> tuple[Placed, bool]:
        """What reads so many bytes, and whether it does.

        Where memory is short, it reads half of that, or a quarter.
        """
        if size_bytes > self._tried_bytes:
            self._readers.clear()  # their memory goes first
            self._memory = np.zeros(0, np.uint8)
            self._tried_bytes = max(size_bytes, self._max_bytes)
            self._memory = _memory_of(self._tried_bytes)
        there = min(size_bytes, len(self._memory))
        if there not in self._readers:
            self._readers[there] = self._load(eviction_read(there), EVICTION_READ, self._memory)
        return self._readers[there], there == size_bytes


def _memory_of(size_bytes: int) -> np.ndarray:
    """Memory that a model which reads so many bytes can read, or half of that, as it must be."""
    while True:
        whole_bytes = -(-size_bytes // ROW_BYTES) * ROW_BYTES
        try:  # no zeros, for which there may be no memory
            return aligned(np.ones(whole_bytes + _ALIGNING_BYTES, np.uint8))[:whole_bytes]
        except MemoryError:
            if size_bytes <= _MIN_BYTES:
                raise
            size_bytes //= 2


def aligned(memory: np.ndarray) -> np.ndarray:
    """``memory`` from the first address on that vector instructions like."""
    return memory[-memory.ctypes.data % _ALIGNING_BYTES :]
