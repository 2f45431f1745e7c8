"""The state of a worker that requests to load and requests to walk share.

Must not know what is loaded, nor how it is run.
"""

from __future__ import annotations

import gc
from dataclasses import dataclass

from bricks.measure.worker.handlers import Announce
from bricks.measure.worker.instruments import WorkerInstruments
from bricks.measure.worker.joints import Joints
from bricks.measure.worker.memory import release_freed_memory
from bricks.measure.worker.pieces import Pieces
from bricks.measure.worker.runtime import WorkerRuntime
from bricks.measure.worker.warmth import Warmth


@dataclass(frozen=True, slots=True)
class WalkState:
    """Loaded ``pieces``, the fused runs and the warm-up of their steps, and what runs them."""

    runtime: WorkerRuntime
    instruments: WorkerInstruments
    pieces: Pieces
    joints: Joints
    warmth: Warmth
    announce: Announce

    def unload(self) -> None:
        """Unload everything, and give its memory back."""
        self.pieces.unload()
        self.joints.forget()
        self.warmth.reset()
        self.instruments.unload()
        gc.collect()
        release_freed_memory()
