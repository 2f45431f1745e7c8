"""Takes memory at aligned addresses, and gives freed memory back to the system, in the worker.

It must not know what the memory is for.
"""

from __future__ import annotations

import ctypes
from contextlib import suppress

import numpy as np

# The bytes that memory needs in addition, so that it can begin at an aligned address.
ALIGNMENT_BYTES = 64


def aligned(memory: np.ndarray) -> np.ndarray:
    """``memory`` (bytes) from the first address on that is aligned for vector instructions."""
    return memory[-memory.ctypes.data % ALIGNMENT_BYTES :]


def release_freed_memory() -> None:
    """Give freed memory that the C library keeps back: until then it counts as this process's."""
    with suppress(OSError, AttributeError):  # glibc alone has this
        ctypes.CDLL(None).malloc_trim(0)
