"""Small models that run beside the steps of a walk, untimed or to observe the machine.

Must not know what is walked.
"""

from __future__ import annotations

from bricks.backends.onnx_instruments.input_clamp import InputClamp
from bricks.backends.onnx_instruments.input_signs import InputSigns
from bricks.measure.worker.cache_evictor import CacheEvictor
from bricks.measure.worker.reference_timer import ReferenceTimer
from bricks.measure.worker.runtime import WorkerRuntime
from bricks.measure.worker.sibling import SiblingWatch


class Instruments:
    """All instruments of a worker, which are loaded when they are first used."""

    def __init__(self, runtime: WorkerRuntime) -> None:
        self.reference = ReferenceTimer(runtime.bound_companion)
        self.sibling = SiblingWatch(runtime.bound_companion)
        self.evictor = CacheEvictor(runtime.bound_companion)
        self.clamp = InputClamp(runtime.companion)
        self.signs = InputSigns(runtime.companion)

    def unload(self) -> None:
        """Unload what belongs to the pieces that are loaded."""
        self.clamp.unload()
        self.signs.unload()
        self.evictor.unload()
