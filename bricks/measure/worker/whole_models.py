"""Handles requests about a whole model: a profile by the runtime, peaks of memory.

Must not know how a model is cut.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from bricks.backends.base import Profiler, StandaloneLoader
from bricks.graph.view import parse_model
from bricks.measure.protocol.whole_models import MeasureMemory, ProfileModel
from bricks.measure.worker.memory_peaks import memory_peaks
from bricks.measure.worker.profiling import typical_run
from bricks.measure.worker.runtime import WorkerRuntime
from bricks.samples.memory_peaks import MemoryPeaks
from bricks.samples.profile import TypicalRun


class WholeModelRequests:
    """Runs models with the backend of ``runtime``; ``unload`` unloads everything else."""

    def __init__(self, runtime: WorkerRuntime, unload: Callable[[], None]) -> None:
        self._runtime, self._unload = runtime, unload

    def profile(self, request: ProfileModel) -> TypicalRun:
        """Profile a typical run."""
        profiler = self._runtime.capable(Profiler)
        self._unload()
        try:
            proto = parse_model(request.model)
            profiled = profiler.profiled(proto, key=request.key, streams=request.streams)
            return typical_run(profiled)
        finally:
            self._unload()

    def measure_memory(self, request: MeasureMemory) -> MemoryPeaks:
        """Measure the peaks of this fresh process; see :func:`memory_peaks`."""
        isolated = self._runtime.capable(StandaloneLoader)
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name).resolve()
            written = isolated.standalone(
                parse_model(request.model), key=request.key, folder=folder, inline=request.inline
            )
            return memory_peaks(written, folder)
