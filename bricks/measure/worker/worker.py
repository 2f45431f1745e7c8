"""The worker: loads, places and runs models in the child process, as requests say.

It answers one request after the other, and owns the backend, everything that is loaded, and the
activation region; requests about graphs, evaluation and training are answered in modules of their
own. It must not know of the store, of how walks are chosen, or of why something is run. If it dies
(of a crash of the runtime, for lack of memory, or ended by the parent because it hangs), nothing
else dies with it.
"""

from __future__ import annotations

import gc
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnx

from bricks import backends
from bricks.backends.base import Backend, Isolated, Loaded, Placed, Placement, Profiler
from bricks.backends.programs import Recorder
from bricks.errors import BackendError, WorkerError
from bricks.graph.loops import running_as_noted
from bricks.graph.model_metadata import noted_sketches
from bricks.graph.topology import all_nodes
from bricks.graph.value_dependence import read_for_values, values_decide
from bricks.graph.view import graph_of, parse_model
from bricks.graph.weights import with_own_weights
from bricks.measure.fresh_memory import Event
from bricks.measure.protocol import unpack
from bricks.measure.worker.cache_evictor import CacheEvictor
from bricks.measure.worker.evaluation import EvaluationRequests
from bricks.measure.worker.generating import GenerationRequests
from bricks.measure.worker.graphs import GraphRequests
from bricks.measure.worker.input_clamp import InputClamp
from bricks.measure.worker.input_signs import InputSigns
from bricks.measure.worker.joints import Joints, JointSteps
from bricks.measure.worker.memory import release_freed_memory
from bricks.measure.worker.memory_peaks import memory_peaks
from bricks.measure.worker.process_limits import held_bytes, limit_memory
from bricks.measure.worker.profiling import typical_run
from bricks.measure.worker.rank import RankRequests
from bricks.measure.worker.reference_timer import ReferenceTimer
from bricks.measure.worker.region import ActivationRegion
from bricks.measure.worker.serving import ServingRequests
from bricks.measure.worker.sibling import SiblingWatch
from bricks.measure.worker.training import TrainingRequests
from bricks.measure.worker.warmth import Warmth
from bricks.system import Waiting, logical_cpus

Facts = dict[str, Any]

# How long to watch whether threads are idle, and how often.
_IDLE_CHECK_S, _IDLE_CHECKS = 0.02, 50


class Worker:
    """One backend, everything that it has loaded, and the activation region.

    ``say`` sends a message to the parent while a request is being worked on.
    """

    def __init__(self, say: Callable[[dict[str, Any]], None]) -> None:
        self._say = say
        self._backend: Backend | None = None
        self._loaded: dict[str, Loaded] = {}
        self._placed: dict[str, Placed] = {}
        self.region = ActivationRegion()
        self._signed = False  # whether anything that is loaded is sign-sensitive
        # Ids whose branches a processor would learn to predict if they ran twice on the same data,
        # and places that are run once before each sample.
        self._branching: set[str] = set()
        self._repeated: set[str] = set()
        self._renewed: set[str] = set()  # places whose own inputs are drawn anew before each run
        self._reference_timer = ReferenceTimer(self._companion)
        self._sibling = SiblingWatch(self._companion)
        self._evictor = CacheEvictor(self._companion)
        self._input_clamp = InputClamp(self._unplaced_companion)
        self._input_signs = InputSigns(self._unplaced_companion)
        self._before: dict[str, list[Placed]] = {}  # by the place before which they run, untimed
        self._joints = Joints()
        self._name = ""
        self._threads = self._workers = 1
        self._parallel: set[str] = set()  # ids and places whose nodes run along streams
        self._warmth = Warmth()
        self._serving = ServingRequests(lambda: self.backend, say)
        self._requests = (
            GraphRequests(lambda: self.backend, lambda: self._name, lambda: self._timing),
            EvaluationRequests(lambda: self.backend, lambda: self._name, lambda: self._seed),
            TrainingRequests(lambda: self.backend, say),
            RankRequests(lambda: self.backend),
            self._serving,
            GenerationRequests(lambda: self.backend, lambda: self._name),
        )
        self._seed = 0
        self._timing = True

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Do what ``request`` asks; the answer's content."""
        name = str(request.pop("op", ""))
        operation = getattr(self, f"_do_{name}", None)
        for requests in self._requests:
            operation = operation or getattr(requests, f"do_{name}", None)
        if operation is None:
            raise WorkerError("the worker does not know this operation")
        result: dict[str, Any] = operation(**request)
        return result

    @property
    def backend(self) -> Backend:
        """The backend; there is one after ``hello``."""
        if self._backend is None:
            raise WorkerError("the worker was not told its backend")
        return self._backend

    def _do_hello(
        self,
        backend: str,
        threads: int,
        seed: int,
        memory_bytes: int | None,
        workers: int = 1,
        timing: bool = True,
        optimization: str = "all",
    ) -> dict[str, Any]:
        if memory_bytes is not None:
            limit_memory(memory_bytes)
        self._seed, self._threads, self._workers = seed, threads, workers
        self._name, self._timing = backend, timing
        self._backend = backends.create(
            backend, threads=threads, seed=seed, workers=workers, optimization=optimization
        )
        gc.freeze()  # these objects stay: searching them for garbage takes 20 ms each time
        return {"pid": os.getpid()}

    def _do_limit(self, memory_bytes: int | None) -> dict[str, Any]:
        limit_memory(memory_bytes)
        return {"held_bytes": held_bytes()}

    def _do_profile(self, key: str, model: str, streams: list[int] | None = None) -> dict[str, Any]:
        backend: Any = self.backend
        if not hasattr(backend, "profiled"):
            raise BackendError(f"{self._name} has no profile of its own that could be shown")
        profiler: Profiler = backend
        self._do_unload()
        try:
            proto = parse_model(unpack(model))
            return typical_run(profiler.profiled(proto, key=key, streams=tuple(streams or ())))
        finally:
            self._do_unload()

    def _do_memory(self, key: str, model: str, inline: bool = False) -> dict[str, Any]:
        """Peaks of this process, which must be fresh: see :func:`memory_peaks`."""
        backend: Any = self.backend
        if not hasattr(backend, "standalone"):
            raise BackendError(f"{self._name} loads no model by itself: its memory is not measured")
        isolated: Isolated = backend
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name).resolve()
            proto = parse_model(unpack(model))
            written = isolated.standalone(proto, key=key, folder=folder, inline=inline)
            return memory_peaks(written, folder)

    def _do_region(self, size_bytes: int, eviction_bytes: int = 0) -> dict[str, Any]:
        self._evictor.announce(eviction_bytes)
        self.region.resize(size_bytes)
        self.region.fill(self._seed, signed=self._signed)
        return {}

    def _do_load(
        self,
        id: str,
        key: str,
        model: str,
        optimize: bool,
        streams: list[int] | None = None,
        folder: str = "",
    ) -> dict[str, Any]:
        proto = running_as_noted(parse_model(unpack(model)))
        if folder and values_decide(proto.graph.node):
            proto = with_own_weights(proto, Path(folder))
        along = tuple(streams or ())
        self._loaded[id] = self.backend.load(proto, key=key, optimize=optimize, streams=along)
        if along:
            self._parallel.add(id)
        self._branching.discard(id)
        operators = _operators(proto)
        if any(map(self.backend.sign_sensitive, operators)):
            self._signed = True
            self._branching.add(id)
        elif noted_sketches(proto) or _reads_for_values(proto):
            self._branching.add(id)
        self._input_clamp.register(id, proto)
        self._input_signs.register(id, proto)
        return {}

    def _do_load_all(self, loads: list[dict[str, Any]]) -> dict[str, Any]:
        """Load several at once, as far as the runtime allows; the seconds that each took."""

        def load(fields: dict[str, Any]) -> float:
            started = time.perf_counter()
            self._do_load(**fields)
            return time.perf_counter() - started

        taken: list[float] = []
        with ThreadPoolExecutor(self.backend.loaders) as pool:  # gone before anything is timed
            for seconds in pool.map(load, loads):
                self._say({"at": len(taken)})
                taken.append(seconds)
        return {"load_s": taken}

    def _do_place(
        self,
        place: str,
        id: str,
        inputs: list[int | None],
        outputs: list[int | None],
        repeated: bool = False,
    ) -> dict[str, Any]:
        placement = Placement(tuple(inputs), tuple(outputs))
        region = self.region.memory
        self._joints.forget()
        self._placed[place] = self._loaded[id].place(placement, region)
        self._before[place] = [
            *self._input_clamp.placed(id, inputs, region),
            *self._input_signs.placed(id, inputs, region),
        ]
        if id in self._parallel:
            self._parallel.add(place)
        self._repeated.discard(place)
        self._renewed.discard(place)
        if id in self._branching and hasattr(self._placed[place], "renew"):
            self._renewed.add(place)
        if repeated and id not in self._branching:
            self._repeated.add(place)
        return {}

    def _do_unload(self) -> dict[str, Any]:
        self._placed.clear()
        self._joints.forget()
        self._before.clear()
        self._input_clamp.unload()
        self._input_signs.unload()
        self._loaded.clear()
        self._parallel.clear()
        self._branching.clear()
        self._repeated.clear()
        self._renewed.clear()
        self._warmth.reset()
        self._signed = False
        self._evictor.unload()
        gc.collect()
        release_freed_memory()
        return {}

    def _do_walk(
        self,
        steps: list[tuple[str, bool]],
        passes: int,
        announce: bool,
        eviction_bytes: int = 0,
        region_bytes: int | None = None,
        memory: list[list[Event]] | None = None,
        served_at: str | None = None,
    ) -> dict[str, Any]:
        """Run the steps in order: passes to warm up, then ``passes`` that count.

        Or those that are asked for over the socket at ``served_at``, until whoever asks leaves.

        They use the first ``region_bytes`` of the region; None: all of it. Steps that are not
        announced are known to run. For them, the reference workload is timed before (unless the
        walk before has just timed it) and after, and so is how long threads waited for a processor.
        ``memory`` is what a recorded program allocates and frees before each step, and at the end.
        """
        places = [place for place, _ in steps]
        joint = None
        if not announce and not memory:
            joint = self._joints.of(self.backend, self._placed, places, eviction_bytes)
        if joint is not None:
            eviction_bytes = joint.eviction_bytes
        runs = [self._run(place, sampled=wanted and not announce) for place, wanted in steps]
        parallel = any(place in self._parallel for place, _ in steps)
        end = self._between_steps(runs, memory) if memory else None

        def announced() -> list[float]:
            taken = []
            for number, run in enumerate(runs):
                self._say({"at": number})
                taken.append(run())
            if end is not None:
                end()
            return taken

        def silent() -> list[float]:
            if read is not None:
                read.sample()
            taken = [run() for run in runs] if joint is None else self._at_once(joint, places)
            if end is not None:
                end()
            return taken

        self.region.fill(self._seed, signed=self._signed, size_bytes=region_bytes)
        one_pass = announced if announce else silent
        timed = runs and not announce
        evicts = timed and eviction_bytes
        read, whole = self._evictor.reader(eviction_bytes) if evicts else (None, True)
        reference_s = self._reference_timer.recent_s() if timed else None
        taken_share = 0.0 if reference_s is None else self._sibling.taken_share(reference_s)
        if announce:
            self._warmth.rehearse(steps, announced)
        else:
            self._warmth.warm_up(steps, silent)
        gc.disable()
        waiting, idle_s = Waiting(), list[float]()
        try:
            if served_at is None:
                taken = [one_pass() for _ in range(passes)]
            else:
                taken, idle_s = self._serving.serve_passes(served_at, one_pass)
        finally:
            gc.enable()
        # More threads than processors wait for each other, and not for other processes; latencies
        # that are derived and not timed are the same however busy the host is.
        threads = self._threads + (self._workers if parallel else 0)
        counts = threads <= len(logical_cpus()) and not getattr(self.backend, "derived", False)
        waited_share = waiting.share() if counts else None
        if parallel:
            _wait_for_idle_threads()
        samples = [list(column) for column in zip(*taken, strict=True)] or [[] for _ in runs]
        reference_end_s = self._reference_timer.now_s() if timed else None
        if reference_end_s is not None:
            taken_share = max(taken_share, self._sibling.taken_share(reference_end_s))
        if taken_share:  # known also where no account says how long threads waited
            waited_share = max(waited_share or 0.0, taken_share)
        return {
            "samples": [
                column if wanted else [] for column, (_, wanted) in zip(samples, steps, strict=True)
            ],
            "reference_s": reference_s,
            "reference_end_s": reference_end_s,
            "waited_share": waited_share,
            "eviction_short": not whole,
            "apart": [n for n, place in enumerate(places) if joint and place in joint.apart],
            "idle_s": idle_s,
        }

    def _at_once(self, joint: JointSteps, places: Sequence[str]) -> list[float]:
        """Run the steps at ``places`` together, after what is to run before each of them."""
        for place in places:
            for prepare in self._before.get(place, ()):
                prepare.sample()
        return joint.sample(places)

    def _between_steps(
        self, runs: list[Callable[[], float]], memory: list[list[Event]]
    ) -> Callable[[], None]:
        """Let ``runs`` allocate and free before; a function that does so at the end."""
        recorder: Recorder = cast(Recorder, self.backend)

        def after(events: Sequence[Event], run: Callable[[], float]) -> Callable[[], float]:
            def prepared() -> float:
                recorder.occupy(events)
                return run()

            return prepared if events else run

        *before, last = memory
        runs[:] = [after(events, run) for events, run in zip(before, runs, strict=True)]
        return lambda: recorder.occupy(last)

    def _run(self, place: str, *, sampled: bool) -> Callable[[], float]:
        """A function that runs the step at ``place``; it returns the latency in seconds.

        It runs it once, or twice if the step is repeated and ``sampled``: then the second counts.
        """
        run = self._placed[place].sample
        before: list[Callable[[], object]] = [p.sample for p in self._before.get(place, ())]
        placed: Any = self._placed[place]
        if place in self._renewed:
            before.append(placed.renew)

        def prepared() -> float:
            for prepare in before:
                prepare()
            return run()

        once = prepared if before else run

        def twice() -> float:
            once()
            return once()

        return twice if sampled and place in self._repeated else once

    def _companion(
        self, model: onnx.ModelProto, key: str, region: np.ndarray | None = None
    ) -> Placed:
        """A model of one input and one output, run beside the steps, and its place.

        The input is at the beginning of ``region``, or has memory of its own.
        """
        loaded = self._unplaced_companion(model, key)
        if region is None:
            return loaded.place(Placement((None,), (None,)), np.zeros(0, np.uint8))
        return loaded.place(Placement((0,), (None,)), region)

    def _unplaced_companion(self, model: onnx.ModelProto, key: str) -> Loaded:
        return self.backend.load(model, key=key, optimize=False)

    def _do_reference(self) -> dict[str, Any]:
        return {"reference_s": self._reference_timer.now_s()}


def _operators(proto: onnx.ModelProto) -> set[str]:
    return {node.op_type for node in all_nodes(proto.graph)}


def _reads_for_values(proto: onnx.ModelProto) -> bool:
    types = graph_of(proto).types
    return any(read_for_values(node, types) for node in all_nodes(proto.graph))


def _wait_for_idle_threads() -> None:
    """Wait, at most a second, until no thread of this process spins any more.

    Threads that run nodes in parallel go on looking for work for some 50 ms after the last node,
    and slow down whatever runs then.
    """
    for _ in range(_IDLE_CHECKS):
        before_s = time.process_time()
        time.sleep(_IDLE_CHECK_S)
        if time.process_time() - before_s < _IDLE_CHECK_S / 20:
            return
