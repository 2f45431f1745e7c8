"""The backend of this process, which the first request makes, with its settings.

Must not know what the backend is asked for.
"""

from __future__ import annotations

import gc
import os

import numpy as np
import onnx

from bricks import backends
from bricks.backends.base import Backend, Loaded, Placed, Placement
from bricks.backends.capability import C, capability
from bricks.errors import WorkerError
from bricks.measure.protocol.process import Hello, LimitMemory
from bricks.measure.worker.handlers import Handlers
from bricks.measure.worker.process_limits import held_bytes, limit_memory


class WorkerRuntime:
    """One backend, and the :class:`Hello` that it was made by."""

    def __init__(self) -> None:
        self._backend: Backend | None = None
        self.settings = Hello("", threads=1, seed=0)

    def handlers(self) -> Handlers:
        """The requests about the process itself."""
        return {Hello: self.begin, LimitMemory: self.limit}

    @property
    def backend(self) -> Backend:
        """The backend; :class:`WorkerError` before there is one."""
        if self._backend is None:
            raise WorkerError("the worker was not told its backend")
        return self._backend

    def capable(self, kind: type[C]) -> C:
        """The backend, as one with this capability; :class:`BackendError` if it lacks it."""
        return capability(self.backend, kind, self.settings.backend)

    def begin(self, hello: Hello) -> int:
        """Make the backend; the number of this process."""
        if hello.memory_bytes is not None:
            limit_memory(hello.memory_bytes)
        self.settings = hello
        self._backend = backends.create(
            hello.backend,
            threads=hello.threads,
            seed=hello.seed,
            workers=hello.workers,
            optimization=hello.optimization,
            location=hello.location,
        )
        gc.freeze()  # these objects stay: searching them for garbage takes 20 ms each time
        return os.getpid()

    def limit(self, request: LimitMemory) -> int | None:
        """Limit the data of this process; the bytes that it holds."""
        limit_memory(request.memory_bytes)
        return held_bytes()

    def companion(self, model: onnx.ModelProto, key: str) -> Loaded:
        """A small model that is loaded along with pieces, as it is."""
        return self.backend.load(model, key=key, optimize=False)

    def bound_companion(
        self, model: onnx.ModelProto, key: str, region: np.ndarray | None = None
    ) -> Placed:
        """A companion of one input and one output, ready to run.

        The input is at the beginning of ``region``, or has memory of its own.
        """
        loaded = self.companion(model, key)
        if region is None:
            return loaded.place(Placement((None,), (None,)), np.zeros(0, np.uint8))
        return loaded.place(Placement((0,), (None,)), region)
