"""Evicts the caches before a pass: reads memory in place of the weights that a walk leaves out.

See ``backends/instruments``. The memory is kept from one walk to the next: on a virtual machine,
filling new memory as large as the caches can take half a second. It must not know what is walked.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bricks.backends.base import BoundModel
from bricks.backends.instruments import ROW_BYTES
from bricks.measure.worker.memory import ALIGNMENT_BYTES, aligned

# Where there is no memory for so few bytes, that is an error.
_MIN_BYTES = 1 << 20

# Loads what reads all of some memory.
Load = Callable[[np.ndarray], BoundModel]


class CacheEvictor:
    """The memory to read, and what reads so much of it."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._memory = np.zeros(0, np.uint8)
        self._max_bytes = 0  # that any walk over what is loaded reads
        self._tried_bytes = 0  # that were asked of the system, with or without success
        self._readers: dict[int, BoundModel] = {}  # by the bytes that they read

    def announce(self, max_bytes: int) -> None:
        """Note that walks read at most ``max_bytes``: the first read takes memory for all."""
        self._max_bytes = max_bytes

    def unload(self) -> None:
        """Unload what reads, and keep the memory."""
        self._readers.clear()
        self._tried_bytes = len(self._memory)  # for there may be more memory now

    def reader(self, size_bytes: int) -> tuple[BoundModel, bool]:
        """What reads ``size_bytes``, and whether it does.

        Where memory is short, it reads half of that, or a quarter, and so on.
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
    """Aligned memory of ``size_bytes`` in whole rows, or of half of that as often as need be.

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
