"""Handles requests about a whole model: a profile by the runtime, peaks of memory, its sizes.

Of memory, all pages of mapped weights count, even those that these inputs do not touch. The C
library of this process should return freed memory at once (``measure.worker_process.Freed``), so
that only memory of the runtime counts. Must not know how a model is cut.
"""

from __future__ import annotations

import ctypes
import gc
import random
import re
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import astuple
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from bricks.backends.base import (
    Binding,
    BoundModel,
    ProfiledModel,
    Profiler,
    SizeLoader,
    StandaloneLoader,
    StandaloneModel,
)
from bricks.errors import WorkerError
from bricks.graph.shapes import with_sizes
from bricks.graph.view import parse_model
from bricks.measure.protocol.models import MeasureMemory, ProfileModel, RunSizes
from bricks.measure.worker.runtime import WorkerRuntime, release_freed_memory
from bricks.samples.whole_models import MemoryPeaks, NodeRun, SizeChanges, SizeTimes, TypicalRun

if TYPE_CHECKING:
    import onnx

# Rounds in which each size takes its turn, and seconds after which only the fewest are run: their
# extremes are then a 95 % interval of the median.
_ROUNDS, _MIN_ROUNDS, _ENOUGH_S = 24, 6, 4.0
# Runs that follow the first after a change: their median is a settled run.
_SETTLED = 3

# The first runs allocate memory and fill the caches. A slow model gets the fewest runs.
WARM_UPS, RUNS, MIN_RUNS, ENOUGH_S = 2, 9, 3, 5.0
# A loop can have a great many inner nodes: more than these are counted only.
MAX_INNER = 1000

_PROC = Path("/proc/self")

# Runs until memory has stopped growing: the third run already allocates no more.
PEAK_RUNS = 4

_POPULATE_READ = 22  # the kernel's advice to bring in the pages of a mapping, from 5.14 on


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

    def run_sizes(self, request: RunSizes) -> SizeChanges:
        """Run all sizes in turn in one session, and then each next to a session of its own."""
        loader = self._runtime.capable(SizeLoader)
        self._unload()
        try:
            opened = parse_model(request.model)
            sizes = [with_sizes(opened, shapes) for shapes in request.sizes]
            bound = loader.load_sizes(opened, sizes, key=request.key)
            times = []
            for of, proto, (first_s, turns) in zip(bound, sizes, _turns(bound), strict=True):
                changed_s, settled_s = zip(*turns, strict=True)
                ratios = self._open_ratios(of, proto, request.key)
                times.append(SizeTimes(first_s, changed_s, settled_s, ratios))
            return SizeChanges(tuple(times))
        finally:
            self._unload()

    def _open_ratios(
        self, bound: BoundModel, proto: onnx.ModelProto, key: str
    ) -> tuple[float, ...]:
        """Settled runs of ``bound`` relative to those of a session for this size, in turn."""
        separate = Binding.separate(len(proto.graph.input), len(proto.graph.output))
        loaded = self._runtime.backend.load(proto, key=key, optimize=True)
        closed = loaded.bind(separate, np.zeros(0, np.uint8))

        def settled_s(of: BoundModel) -> float:
            of.sample()  # the runs of the other session have replaced its data in the caches
            return of.sample().host_s

        return tuple(settled_s(bound) / settled_s(closed) for _ in range(_MIN_ROUNDS))

    def measure_memory(self, request: MeasureMemory) -> MemoryPeaks:
        """Measure the peaks of this fresh process; see :func:`memory_peaks`."""
        isolated = self._runtime.capable(StandaloneLoader)
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name).resolve()
            written = isolated.standalone(
                parse_model(request.model), key=request.key, folder=folder, inline=request.inline
            )
            return memory_peaks(written, folder)


def _turns(
    bound: Sequence[BoundModel],
) -> Sequence[tuple[float | None, Sequence[tuple[float, float]]]]:
    """Run the sizes of a session in turn, several runs of each; seconds.

    The first run of the first size prepares the session; then every size runs for the first time,
    and after that all come in a new random order in every round. Of each size: its first run, and
    by round the run after another size and the median of those that follow it.
    """

    def turn(size: int) -> tuple[float, float]:
        changed_s = bound[size].sample().host_s
        return changed_s, median(bound[size].sample().host_s for _ in range(_SETTLED))

    begun_s = time.monotonic()
    turn(0)
    firsts_s = [None, *(turn(size)[0] for size in range(1, len(bound)))]
    turns: list[list[tuple[float, float]]] = [[] for _ in bound]
    order, shuffled = list(range(len(bound))), random.Random(0)
    for number in range(_ROUNDS):
        if number >= _MIN_ROUNDS and time.monotonic() - begun_s > _ENOUGH_S:
            break
        last = order[-1] if number else len(bound) - 1
        shuffled.shuffle(order)
        if order[0] == last:  # no change: it takes its turn later
            order.append(order.pop(0))
        for size in order:
            turns[size].append(turn(size))
    return [*zip(firsts_s, turns, strict=True)]


def typical_run(profiled: ProfiledModel) -> TypicalRun:
    """The nodes of the run with the median latency, and the latencies of all runs in seconds."""
    for _ in range(WARM_UPS):
        profiled.sample()
    runs_s: list[float] = []
    while len(runs_s) < (RUNS if sum(runs_s) < ENOUGH_S else MIN_RUNS):
        runs_s.append(profiled.sample())
    typical = sorted(range(len(runs_s)), key=lambda run: runs_s[run])[(len(runs_s) - 1) // 2]
    events = profiled.runs()[WARM_UPS + typical]
    nodes, inner = [], 0
    for event in events:
        inner += event.inner
        if not event.inner or inner <= MAX_INNER:
            nodes.append(NodeRun(*astuple(event)))
    return TypicalRun(tuple(runs_s), typical, tuple(nodes), max(0, inner - MAX_INNER))


def memory_peaks(model: StandaloneModel, folder: Path) -> MemoryPeaks:
    """Peaks in bytes above the memory before loading: while loading, and afterwards.

    ``folder`` has the model's files. Raises :class:`WorkerError` if the system does not report a
    process's peak.
    """
    gc.collect()
    release_freed_memory()
    before = _restart_peak()
    model.load()
    loading = _bytes("VmHWM") - before
    _bring_in(folder)
    _restart_peak()
    for _ in range(PEAK_RUNS):
        model.run()
    return MemoryPeaks(loading, _bytes("VmHWM") - before)


def _restart_peak() -> int:
    """Reset the peak; resident bytes now."""
    try:
        (_PROC / "clear_refs").write_text("5", encoding="ascii")
    except OSError as exc:
        raise WorkerError(
            "this system does not let a process reset its peak of memory: use Linux, with /proc"
        ) from exc
    return _bytes("VmRSS")


def _bytes(name: str) -> int:
    match = re.search(rf"^{name}:\s+(\d+) kB", (_PROC / "status").read_text("ascii"), re.MULTILINE)
    if match is None:
        raise WorkerError(f"this system does not report {name} of a process: use Linux, with /proc")
    return int(match[1]) << 10


def _bring_in(folder: Path) -> None:
    """Make all pages resident that are mapped from files in ``folder``."""
    libc = ctypes.CDLL(None)
    for line in (_PROC / "maps").read_text("utf-8", errors="replace").splitlines():
        addresses, *_, path = line.split(maxsplit=5)
        if not path.startswith(f"{folder}/"):
            continue
        begin, end = (int(address, 16) for address in addresses.split("-"))
        if libc.madvise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), _POPULATE_READ):
            ctypes.string_at(begin, end - begin)  # an older kernel: read them
