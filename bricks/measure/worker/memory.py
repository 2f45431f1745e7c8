"""Aligns memory, and returns freed memory to the system, in the worker.

It must not know what the memory is for.
"""

from __future__ import annotations

import ctypes
from contextlib import suppress

import numpy as np

# The bytes that memory needs in addition, so that it can begin at an aligned address.
ALIGNMENT_BYTES = 64


def aligned(memory: np.ndarray) -> np.ndarray:
    """``memory`` (uint8) from its first address that is aligned for vector instructions."""
    return memory[-memory.ctypes.data % ALIGNMENT_BYTES :]


def release_freed_memory() -> None:
    """Return freed memory to the system, which the C library may have kept for later use."""
    with suppress(OSError, AttributeError):  # only glibc has it
        ctypes.CDLL(None).malloc_trim(0)
