"""The backend of this process, which the first request makes, and the memory that it may take.

With a limit (``RLIMIT_DATA``), a brick or a model that is too large fails by itself, before the
kernel starts to kill processes; a platform without such a limit limits nothing. Freed memory is
returned to the system. Must not know what the backend is used for.
"""

from __future__ import annotations

import ctypes
import gc
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import onnx

from bricks import backends
from bricks.backends.base import Backend, C, capability
from bricks.backends.instruments import Instruments
from bricks.backends.onnx_instruments import instruments_of
from bricks.errors import WorkerError
from bricks.measure.protocol.models import allowed_bytes
from bricks.measure.protocol.walking import BackendSettings, Hello, LimitMemory
from bricks.system.accelerator import CPU


class WorkerRuntime:
    """One backend, and the ``settings`` that it was made with."""

    def __init__(self) -> None:
        self._backend: Backend | None = None
        self._instruments: Instruments | None = None
        self.settings = BackendSettings("", threads=1, seed=0)

    @property
    def backend(self) -> Backend:
        """The backend; :class:`WorkerError` before it is made."""
        if self._backend is None:
            raise WorkerError("the worker was not told its backend")
        return self._backend

    def capable(self, kind: type[C]) -> C:
        """The backend, as one with this capability; :class:`BackendError` if it lacks it."""
        return capability(self.backend, kind, self.settings.backend)

    @property
    def instruments(self) -> Instruments:
        """The instruments of the backend's device; :class:`WorkerError` before it is made."""
        if self._instruments is None:
            raise WorkerError("the worker was not told its backend")
        return self._instruments

    def unload(self) -> None:
        """Unload the models that instruments loaded for pieces."""
        if self._instruments is not None:
            self._instruments.unload()

    def begin(self, request: Hello) -> int:
        """Make the backend; the number of this process."""
        settings = request.settings
        self.settings = settings
        if settings.memory_bytes is not None:
            self._limit(settings.memory_bytes)
        self._backend = backends.create(
            settings.backend,
            threads=settings.threads,
            seed=settings.seed,
            workers=settings.workers,
            optimization=settings.optimization,
            location=request.location,
            device=settings.device,
        )
        self._instruments = instruments_of(self._backend)
        gc.freeze()  # these objects live on: a garbage collection of them takes 20 ms
        return os.getpid()

    def limit(self, request: LimitMemory) -> int | None:
        """Limit the data of this process; its bytes of data now."""
        self._limit(request.memory_bytes)
        return data_bytes()

    def _limit(self, memory_bytes: int | None) -> None:
        """Limit the data of this process, unless a device's driver maps memory of its own in it."""
        if self.settings.device == CPU:
            limit_memory(memory_bytes)


def limit_memory(memory_bytes: int | None) -> None:
    """Limit this process's data to ``memory_bytes``; None: no limit."""
    with suppress(ImportError, ValueError, OSError):
        import resource

        soft = resource.RLIM_INFINITY if memory_bytes is None else memory_bytes
        resource.setrlimit(resource.RLIMIT_DATA, (soft, resource.RLIM_INFINITY))


def data_bytes() -> int | None:
    """Bytes of data of this process, as its limit counts them; None if the system has no count."""
    with suppress(OSError):
        match = re.search(r"VmData:\s+(\d+) kB", Path("/proc/self/status").read_text("ascii"))
        return None if match is None else int(match[1]) << 10
    return None


@contextmanager
def memory_limited_for(proto: onnx.ModelProto) -> Iterator[None]:
    """Limit work on ``proto`` to memory by its size, in addition to the data held already."""
    before_bytes = data_bytes()
    try:
        import resource

        before = resource.getrlimit(resource.RLIMIT_DATA)[0]
    except ImportError:
        before_bytes = None
    if before_bytes is None:  # not Linux: the system has no count
        yield
        return
    limit_bytes = before_bytes + allowed_bytes(proto)
    limited = before == resource.RLIM_INFINITY or limit_bytes < before
    try:
        if limited:
            limit_memory(limit_bytes)
        yield
    finally:
        if limited:
            limit_memory(None if before == resource.RLIM_INFINITY else before)


# The bytes that memory needs in addition, so that it can begin at an aligned address.
ALIGNMENT_BYTES = 64


def aligned(memory: np.ndarray) -> np.ndarray:
    """``memory`` (uint8) from its first address that is aligned for vector instructions."""
    return memory[-memory.ctypes.data % ALIGNMENT_BYTES :]


def release_freed_memory() -> None:
    """Return freed memory to the system, which the C library may have kept for later use."""
    with suppress(OSError, AttributeError):  # only glibc has it
        ctypes.CDLL(None).malloc_trim(0)
