"""State of a worker that its handlers of loading and of walking share.

Must not know what is loaded, nor how it is run.
"""

from __future__ import annotations

import gc
from dataclasses import dataclass

from bricks.measure.worker.device_heating import DeviceHeating
from bricks.measure.worker.fused_runs import FusedRuns
from bricks.measure.worker.handlers import Announce
from bricks.measure.worker.instruments import WorkerInstruments
from bricks.measure.worker.loaded_pieces import LoadedPieces
from bricks.measure.worker.memory import release_freed_memory
from bricks.measure.worker.runtime import WorkerRuntime
from bricks.measure.worker.warm_up import WarmUp


@dataclass(frozen=True, slots=True)
class WalkState:
    """Loaded ``pieces``, ``fused`` runs of their steps, and the steps that were warmed up last."""

    runtime: WorkerRuntime
    instruments: WorkerInstruments
    pieces: LoadedPieces
    fused: FusedRuns
    warm_up: WarmUp
    heating: DeviceHeating
    announce: Announce

    def unload(self) -> None:
        """Unload all pieces and instruments, and return freed memory to the system."""
        self.pieces.unload()
        self.fused.clear()
        self.warm_up.reset()
        self.heating.reset()
        self.instruments.unload()
        gc.collect()
        release_freed_memory()
