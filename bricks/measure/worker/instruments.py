"""Instruments of a worker's device, loaded when walks first use them.

Must not know any walk.
"""

from __future__ import annotations

from contextlib import suppress

import numpy as np

from bricks.backends.base import Binding, BoundModel
from bricks.backends.onnx_instruments import KERNEL, reference_kernels
from bricks.errors import BackendError
from bricks.measure.worker.cache_evictor import CacheEvictor
from bricks.measure.worker.reference_kernels import ReferenceKernels
from bricks.measure.worker.runtime import WorkerRuntime


class WorkerInstruments:
    """The instruments of a worker."""

    def __init__(self, runtime: WorkerRuntime) -> None:
        self._runtime = runtime
        self._fillings: dict[bool, np.ndarray] = {}  # by whether they have both signs
        self.kernels = ReferenceKernels(self._load_kernels)
        self.evictor = CacheEvictor(lambda memory: runtime.instruments.eviction_read(memory))

    def filling(self, *, signed: bool) -> np.ndarray:
        """Bytes to fill memory with: numbers of both signs, or positive ones."""
        if signed not in self._fillings:
            seed = self._runtime.settings.seed
            self._fillings[signed] = self._runtime.instruments.filling(seed, signed=signed)
        return self._fillings[signed]

    def _load_kernels(self) -> dict[str, BoundModel]:
        """Load the reference kernels that the runtime takes, each with memory of its own."""
        backend, binding = self._runtime.backend, Binding((None,), (None,))
        kernels = dict[str, BoundModel]()
        for name, model in reference_kernels().items():
            with suppress(BackendError):  # conditions then lack that kernel
                loaded = backend.load(model, key=KERNEL.format(name), optimize=False)
                kernels[name] = loaded.bind(binding, np.zeros(0, np.uint8))
        return kernels

    def unload(self) -> None:
        """Unload the instruments of the loaded pieces."""
        self._runtime.unload()
        self.evictor.unload()
