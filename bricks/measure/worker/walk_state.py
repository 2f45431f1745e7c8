"""The state of a worker that requests to load and requests to walk share.

Must not know what is loaded, nor how it is run.
"""

from __future__ import annotations

import gc
from dataclasses import dataclass

from bricks.measure.worker.fused_runs import FusedRuns
from bricks.measure.worker.handlers import Announce
from bricks.measure.worker.instruments import WorkerInstruments
from bricks.measure.worker.loaded_pieces import LoadedPieces
from bricks.measure.worker.memory import release_freed_memory
from bricks.measure.worker.runtime import WorkerRuntime
from bricks.measure.worker.warm_up import WarmUp


@dataclass(frozen=True, slots=True)
class WalkState:
    """Loaded ``pieces``, the fused runs and the warm-up of their steps, and what runs them."""

    runtime: WorkerRuntime
    instruments: WorkerInstruments
    pieces: LoadedPieces
    joints: FusedRuns
    warmth: WarmUp
    announce: Announce

    def unload(self) -> None:
        """Unload everything, and give its memory back."""
        self.pieces.unload()
        self.joints.forget()
        self.warmth.reset()
        self.instruments.unload()
        gc.collect()
        release_freed_memory()
