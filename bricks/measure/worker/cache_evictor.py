"""Evicts the caches before a pass: reads memory in place of the weights that a walk leaves out.

See ``backends/instruments``. The memory is kept from one walk to the next: on a virtual machine,
filling new memory as large as the caches can take half a second. It must not know any walk.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bricks.backends.base import BoundModel
from bricks.backends.instruments import ROW_BYTES
from bricks.measure.worker.memory import ALIGNMENT_BYTES, aligned

# A lack of memory for this few bytes is an error.
_MIN_BYTES = 1 << 20

# Loads a model that reads all of an array.
Load = Callable[[np.ndarray], BoundModel]


class CacheEvictor:
    """Memory to read, and a model for each size that is read."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._memory = np.zeros(0, np.uint8)
        self._max_bytes = 0  # that any walk over the loaded pieces reads
        self._tried_bytes = 0  # that were requested from the system, with or without success
        self._readers: dict[int, BoundModel] = {}  # by the bytes that they read

    def announce(self, max_bytes: int) -> None:
        """Note that walks read at most ``max_bytes``: the first read takes memory for all."""
        self._max_bytes = max_bytes

    def unload(self) -> None:
        """Unload the models that read, and keep the memory."""
        self._readers.clear()
        self._tried_bytes = len(self._memory)  # there may be more memory now

    def reader(self, size_bytes: int) -> tuple[BoundModel, bool]:
        """A model that reads ``size_bytes``, and whether it reads all of them.

        Where memory is short, it reads a half of them, or a quarter, and so on.
        """
        if size_bytes > self._tried_bytes:
            self._readers.clear()  # their memory goes first
            self._memory = np.zeros(0, np.uint8)
            self._tried_bytes = max(size_bytes, self._max_bytes)
            self._memory = _memory_of(self._tried_bytes)
        available = min(size_bytes, len(self._memory))
        if available not in self._readers:
            self._readers[available] = self._load(self._memory[: _whole_rows(available)])
        return self._readers[available], available == size_bytes


def _memory_of(size_bytes: int) -> np.ndarray:
    """Aligned memory of ``size_bytes`` in whole rows; of half the size until there is enough.

    Raises :class:`MemoryError` where there is none for ``_MIN_BYTES``.
    """
    while True:
        whole_bytes = _whole_rows(size_bytes)
        try:  # ones: for zeros the system may promise memory that it does not have
            return aligned(np.ones(whole_bytes + ALIGNMENT_BYTES, np.uint8))[:whole_bytes]
        except MemoryError:
            if size_bytes <= _MIN_BYTES:
                raise
            size_bytes //= 2


def _whole_rows(size_bytes: int) -> int:
    return max(1, -(-size_bytes // ROW_BYTES)) * ROW_BYTES
