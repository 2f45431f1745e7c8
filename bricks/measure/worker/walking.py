"""Handles requests to load pieces, and to run walks over them: warm-up, timed passes, conditions.

Both share a state. The contents that a walk leaves in the caches of each core settle within some
untimed passes; a device is heated before the walks of a worker. Must not know of the store, of how
walks are chosen, or of why a walk is run.
"""

from __future__ import annotations

import gc
import os
import time
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from bricks.backends.heating import Heating
from bricks.backends.kernel_timing import KernelTimer
from bricks.backends.programs import Recorder
from bricks.measure.protocol.request import Announce
from bricks.measure.protocol.walking import (
    BindPiece,
    LoadPiece,
    LoadPieces,
    MakeRegion,
    RunRepeatedly,
    RunWalk,
    TimeKernels,
    UnloadAll,
    WalkConditions,
    Walked,
)
from bricks.measure.worker.instruments import ConditionWatch, WorkerInstruments
from bricks.measure.worker.load_server import LoadServer
from bricks.measure.worker.loaded_pieces import BoundPiece, LoadedPieces
from bricks.measure.worker.passes import (
    DevicePasses,
    FusedRuns,
    FusedSteps,
    Pass,
    StepRun,
    allocating,
    announced,
    between_stops,
    ending,
    evicting,
    one_by_one,
    together,
)
from bricks.measure.worker.runtime import WorkerRuntime, release_freed_memory
from bricks.system.host_conditions import HostConditions
from bricks.system.limits import is_throttled
from bricks.units.sample import Sample


@dataclass(frozen=True, slots=True)
class WalkState:
    """Loaded ``pieces``, ``fused`` runs of their steps, and the steps that were warmed up last."""

    runtime: WorkerRuntime
    instruments: WorkerInstruments
    pieces: LoadedPieces
    fused: FusedRuns
    warm_up: WarmUp
    announce: Announce
    heating: defaultdict[Hashable, Heating] = field(default_factory=lambda: defaultdict(Heating))

    def unload(self) -> None:
        """Unload all pieces and instruments, and return freed memory to the system."""
        self.pieces.unload()
        self.fused.clear()
        self.warm_up.reset()
        self.heating.clear()
        self.instruments.unload()
        gc.collect()
        release_freed_memory()


# Untimed passes before the timed ones, unless they take this many seconds for each step, or in all:
# long walks keep little in the caches from pass to pass, and long steps depend little on caches.
# After other steps, BERT mini's second pass takes 17 % more than its last ones, the sixth 3 %, the
# tenth 1 %.
_PASSES, _ENOUGH_STEP_S, _ENOUGH_S = 10, 0.2e-3, 0.03


class WarmUp:
    """Remembers which steps ran last: they need one pass to warm up, others need several."""

    def __init__(self) -> None:
        self._steps: Sequence[Any] = []
        self._rehearsed_s: float | None = None  # the time of the last pass, if it was a rehearsal

    def reset(self) -> None:
        """Forget the steps that ran last: other models are loaded."""
        self._steps, self._rehearsed_s = [], None

    def rehearse(self, steps: Sequence[Any], one_pass: Callable[[], object]) -> None:
        """Run the steps once, which warms up as well."""
        started = time.perf_counter()
        one_pass()
        self._steps, self._rehearsed_s = steps, time.perf_counter() - started

    def warm_up(self, steps: Sequence[Any], one_pass: Callable[[], object]) -> None:
        """Run passes until the contents of the caches no longer change from pass to pass."""
        enough_s = _ENOUGH_S
        if len(steps) > 1:  # a single step may be a whole model, which has many nodes
            enough_s = min(enough_s, _ENOUGH_STEP_S * len(steps))
        passes, spent_s = 0, 0.0
        if steps == self._steps and self._rehearsed_s is not None:
            passes, spent_s = 1, self._rehearsed_s
        elif steps == self._steps:
            passes = _PASSES - 1
        self._steps, self._rehearsed_s = steps, None
        while passes < _PASSES and spent_s < enough_s:
            started = time.perf_counter()
            one_pass()
            passes, spent_s = passes + 1, spent_s + time.perf_counter() - started


# Bytes that are read between reference kernels where nothing else runs.
_OTHER_WORK_BYTES = 1 << 25

# Seconds between announcements of a step that runs repeatedly.
_ANNOUNCE_S = 1.0


@dataclass(frozen=True, slots=True)
class WalkRequests:
    """Runs the bound steps of ``state``."""

    state: WalkState

    def time_kernels(self, request: TimeKernels) -> tuple[HostConditions, ...]:
        """Time the reference kernels."""
        # Kernels that follow one another find their data cached, as they do not after other work.
        read, _ = self.state.instruments.evictor.reader(_OTHER_WORK_BYTES)
        return tuple(self.state.instruments.kernels.over(request.seconds, read.sample))

    def run(self, request: RunWalk) -> Walked:
        """Run a walk; see :class:`RunWalk`."""
        names = [name for name, _ in request.steps]
        steps = [self.state.pieces.steps[name] for name in names]
        # The runtime's clock of a step in a joint call has the stops of a quota.
        apart = request.announce or request.memory or is_throttled()
        fused = None
        if not apart:
            bound = {name: step.bound for name, step in self.state.pieces.steps.items()}
            fused = self.state.fused.of(
                self.state.runtime.backend, bound, names, request.eviction_bytes
            )
        on_device = self._on_device(request, steps)
        one_pass = self._pass(request, steps, fused, on_device)
        self.state.pieces.refill(request.used)
        complete = True
        size_bytes = request.eviction_bytes if fused is None else fused.eviction_bytes
        if steps and not request.announce and size_bytes:
            # Incomplete where there is no memory for all of the eviction read.
            read, complete = self.state.instruments.evictor.reader(size_bytes)
            one_pass = evicting(read, one_pass)
        passes, idle_s, conditions = self._sampled(request, steps, one_pass)
        if on_device is not None and passes and request.kernels:
            passes = on_device.with_kernels(passes)
        columns = list(zip(*passes, strict=True)) or [()] * len(steps)
        timed = [is_timed for _, is_timed in request.steps]
        return Walked(
            tuple(c if is_timed else () for c, is_timed in zip(columns, timed, strict=True)),
            conditions,
            eviction_short=not complete,
            separate=tuple(n for n, name in enumerate(names) if fused and name in fused.separate),
            idle_s=tuple(idle_s),
        )

    def run_repeatedly(self, request: RunRepeatedly) -> int:
        """Run a step until a file is removed; see :class:`RunRepeatedly`."""
        run = self.state.pieces.steps[request.step].runner(sampled=False)
        runs, announced_s = 0, -_ANNOUNCE_S
        while os.path.exists(request.while_exists):
            run()
            runs += 1
            if time.monotonic() - announced_s >= _ANNOUNCE_S:
                announced_s = time.monotonic()
                self.state.announce(runs)
        return runs

    def _pass(
        self,
        request: RunWalk,
        steps: Sequence[BoundPiece],
        fused: FusedSteps | None,
        on_device: DevicePasses | None,
    ) -> Pass:
        """A pass over the steps, without the eviction read before it."""
        announce = partial(announced, announce=self.state.announce)
        if on_device is not None:
            return on_device.announced(announce) if request.announce else on_device.one_pass
        if fused is not None:
            return together(fused, [name for name, _ in request.steps], steps)
        runs = [
            step.runner(sampled=timed and not request.announce)
            for step, (_, timed) in zip(steps, request.steps, strict=True)
        ]
        if is_throttled():
            runs = list(map(between_stops, runs))
        runs, end = self._allocating(request, runs)
        one_pass = announce(runs) if request.announce else one_by_one(runs)
        return one_pass if end is None else ending(one_pass, end)

    def _on_device(self, request: RunWalk, steps: Sequence[BoundPiece]) -> DevicePasses | None:
        """The passes over steps that start kernels on a device; None without one."""
        timer = self.state.runtime.backend
        if not isinstance(timer, KernelTimer):
            return None
        # A step that is repeated would find its data in the device's cache.
        runs, end = self._allocating(request, [step.runner(sampled=False) for step in steps])
        return DevicePasses(timer, runs, end or (lambda: None), request.displaced_bytes)

    def _allocating(
        self, request: RunWalk, runs: list[StepRun]
    ) -> tuple[list[StepRun], Callable[[], None] | None]:
        """Runs with the allocations of a recorded program, and what follows the last."""
        if not request.memory:
            return runs, None
        return allocating(self.state.runtime.capable(Recorder), runs, request.memory)

    def _sampled(
        self, request: RunWalk, steps: Sequence[BoundPiece], one_pass: Pass
    ) -> tuple[list[list[Sample]], list[float], WalkConditions]:
        """Samples of each timed pass, idle seconds before each pass, and the conditions."""
        watch = ConditionWatch(
            self.state.runtime,
            self.state.instruments,
            announced=request.announce or not steps,
            parallel=any(step.parallel for step in steps),
        )
        watch.before()
        if request.announce:
            self.state.warm_up.rehearse(request.steps, one_pass)
        else:
            self.state.warm_up.warm_up(request.steps, one_pass)
            # A device comes to the clock that it keeps under these steps.
            timer = self.state.runtime.backend
            if request.steps and isinstance(timer, KernelTimer):
                walk = request.steps, request.displaced_bytes
                self.state.heating[walk].heat(one_pass, timer.device_state)
        gc.disable()
        watch.begin()
        try:
            if request.served_at is None:
                samples, idle_s = [one_pass() for _ in range(request.passes)], list[float]()
            else:
                server = LoadServer(self.state.announce)
                samples, idle_s = server.serve_passes(request.served_at, one_pass)
        finally:
            gc.enable()
        return samples, idle_s, watch.end()


@dataclass(frozen=True, slots=True)
class LoadingRequests:
    """Loads and binds the pieces of ``state``."""

    state: WalkState

    def make_region(self, request: MakeRegion) -> None:
        """Make the region, and drop the old one."""
        self.state.instruments.evictor.announce(request.eviction_bytes)
        self.state.pieces.region.resize(request.size_bytes)
        self.state.pieces.refill(request.used)

    def load(self, request: LoadPiece) -> None:
        """Load a piece."""
        self.state.pieces.load(request)

    def load_several(self, request: LoadPieces) -> tuple[float, ...]:
        """Load pieces at once, in as many threads as the runtime allows; seconds of each."""

        def load(piece: LoadPiece) -> float:
            started = time.perf_counter()
            self.state.pieces.load(piece)
            return time.perf_counter() - started

        loads_s: list[float] = []
        with ThreadPoolExecutor(self.state.runtime.backend.loaders) as pool:  # ends before timing
            for load_s in pool.map(load, request.pieces):
                self.state.announce(len(loads_s))
                loads_s.append(load_s)
        return tuple(loads_s)

    def bind(self, request: BindPiece) -> None:
        """Bind a piece as a step."""
        self.state.fused.clear()
        self.state.pieces.bind(request)

    def unload(self, request: UnloadAll) -> None:
        """Unload all pieces and instruments."""
        self.state.unload()
