"""Instruments of a worker's device, loaded when walks first use them.

Must not know any walk.
"""

from __future__ import annotations

import numpy as np

from bricks.measure.worker.cache_evictor import CacheEvictor
from bricks.measure.worker.reference_timer import ReferenceTimer
from bricks.measure.worker.runtime import WorkerRuntime
from bricks.measure.worker.sibling import SiblingWatch


class WorkerInstruments:
    """The instruments of a worker."""

    def __init__(self, runtime: WorkerRuntime) -> None:
        self._runtime = runtime
        self._fillings: dict[bool, np.ndarray] = {}  # by whether they have both signs
        self.reference = ReferenceTimer(lambda: runtime.instruments.reference())
        self.sibling = SiblingWatch(lambda: runtime.instruments.chain())
        self.evictor = CacheEvictor(lambda memory: runtime.instruments.eviction_read(memory))

    def filling(self, *, signed: bool) -> np.ndarray:
        """Bytes to fill memory with: numbers of both signs, or positive ones."""
        if signed not in self._fillings:
            seed = self._runtime.settings.seed
            self._fillings[signed] = self._runtime.instruments.filling(seed, signed=signed)
        return self._fillings[signed]

    def unload(self) -> None:
        """Unload the instruments of the loaded pieces."""
        self._runtime.unload()
        self.evictor.unload()
