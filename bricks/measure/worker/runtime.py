"""The backend of this process, which the first request makes.

Must not know what the backend is used for.
"""

from __future__ import annotations

import gc
import os

from bricks import backends
from bricks.backends.base import Backend, C, capability
from bricks.backends.instruments import Instruments
from bricks.backends.onnx_instruments import instruments_of
from bricks.errors import WorkerError
from bricks.measure.protocol.process import BackendSettings, Hello, LimitMemory
from bricks.measure.worker.process_limits import data_bytes, limit_memory
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
