"""The worker: loads, places and runs models in the child process, as requests say.

It answers one request after the other, and owns the backend, everything that is loaded, and the
activation region. It must not know of the store, of how walks are chosen, or of why something is
run. If it dies (of a crash of the runtime, for lack of memory, or ended by the parent because it
hangs), nothing else dies with it.
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
from bricks.backends.base import (
    Backend,
    Executed,
    InDouble,
    Isolated,
    Loaded,
    Placed,
    Placement,
    Profiler,
    Recorder,
    SignObserver,
)
from bricks.decompose.plan import Plan
from bricks.errors import BackendError, WorkerError
from bricks.graph.model import Model
from bricks.graph.program import is_program
from bricks.graph.topology import all_nodes
from bricks.graph.view import graph_of, parse_model
from bricks.measure.fresh_memory import Event
from bricks.measure.protocol import pack, unpack
from bricks.measure.worker.accuracy import evaluate_model, evaluate_program
from bricks.measure.worker.cache_evictor import CacheEvictor
from bricks.measure.worker.input_clamp import InputClamp
from bricks.measure.worker.input_signs import InputSigns
from bricks.measure.worker.memory import release_freed_memory
from bricks.measure.worker.memory_peaks import memory_peaks
from bricks.measure.worker.model_data import model_data
from bricks.measure.worker.process_limits import held_bytes, limit_memory, memory_limited_for
from bricks.measure.worker.profiling import typical_run
from bricks.measure.worker.rank import RankRequests
from bricks.measure.worker.reference import Reference, write_reference
from bricks.measure.worker.reference_timer import ReferenceTimer
from bricks.measure.worker.region import ActivationRegion
from bricks.measure.worker.sibling import SiblingWatch
from bricks.measure.worker.training import TrainingRequests
from bricks.measure.worker.verify import source_of, verify_model, verify_program
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
        self._name = ""
        self._threads = self._workers = 1
        self._parallel: set[str] = set()  # ids and places whose nodes run along streams
        self._warmth = Warmth()
        self._others = (
            TrainingRequests(lambda: self.backend, say),
            RankRequests(lambda: self.backend),
        )
        self._seed = 0
        self._timing = True

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Do what ``request`` asks; the answer's content."""
        name = str(request.pop("op", ""))
        operation = getattr(self, f"_do_{name}", None)
        for requests in self._others:
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

    def _do_executed(self, model: str, key: str = "") -> dict[str, Any]:
        proto = parse_model(unpack(model))
        with memory_limited_for(proto):
            executed = self.backend.executed(proto)
            signs = self._signs(proto, executed, key)
        if self._timing:  # else the next model needs the memory
            release_freed_memory()
        return {
            "model": pack(executed.proto.SerializeToString()),
            "types": {name: type_.to_json() for name, type_ in executed.types.items()},
            "in_place": dict(executed.in_place),
            "observed": list(executed.observed),
            "groups": None if executed.groups is None else list(map(list, executed.groups)),
            "notes": list(executed.notes),
            "signs": signs,
            "rewritten_bytes": executed.rewritten_bytes,
        }

    def _signs(
        self, model: onnx.ModelProto, executed: Executed, key: str
    ) -> dict[str, list[float]]:
        """The signs of what sign-sensitive nodes read, by the value's name.

        They follow from the weights of the ``model`` as it is loaded with this ``key``. Values that
        only the executed graph has are taken from a run of that.
        """
        backend: Any = self.backend
        nodes = executed.proto.graph.node
        names = [node.input[0] for node in nodes if backend.sign_sensitive(node.op_type)]
        if not names or not hasattr(backend, "signs"):
            return {}
        observer: SignObserver = backend
        known = {name for node in model.graph.node for name in node.output}
        found: dict[str, list[float]] = {}
        for proto, wanted in (
            (model, [name for name in dict.fromkeys(names) if name in known]),
            (executed.proto, [name for name in dict.fromkeys(names) if name not in known]),
        ):
            if wanted:
                signs = observer.signs(proto, wanted, key=key)
                found |= {name: pattern.to_json() for name, pattern in signs.items()}
        return found

    def _do_record(self, entry: str, folder: str, options: dict[str, Any]) -> dict[str, Any]:
        backend: Any = self.backend
        if not hasattr(backend, "record"):
            raise BackendError(
                f"{self._name} runs ONNX models, not programs: choose --runtime torch"
            )
        recorder: Recorder = backend
        return {"model": pack(recorder.record(entry, folder, options).SerializeToString())}

    def _do_source(self, name: str, model: str) -> dict[str, Any]:
        skeleton = unpack(model)
        proto = parse_model(skeleton)
        given = graph_of(proto)
        inputs = tuple((name, given.types[name]) for name in given.inputs)
        with memory_limited_for(proto):
            of = Model(name, Path(), skeleton, inputs, "")
            graph, observed = source_of(self.backend, of, proto)
        del proto.graph.node[:]
        proto.graph.node.extend(graph.nodes)
        return {
            "model": pack(proto.SerializeToString()),
            "types": {name: type_.to_json() for name, type_ in graph.types.items()},
            "observed": list(observed),
        }

    def _do_values(self, model: str, names: list[str]) -> dict[str, Any]:
        proto = parse_model(unpack(model))
        with memory_limited_for(proto):
            return {"values": self.backend.values(proto, names)}

    def _do_verify(
        self, name: str, folder: str, model: str, plan: dict[str, Any], bricks: dict[str, str]
    ) -> dict[str, Any]:
        of = _model(name, folder, model, digest=plan["digest"])
        chained = Plan.from_json(plan)
        protos = {key: parse_model(unpack(text)) for key, text in bricks.items()}
        if is_program(parse_model(of.skeleton)):
            backend: Any = self.backend
            return verify_program(backend, model=of, plan=chained, bricks=protos)
        return verify_model(self.backend, seed=self._seed, model=of, plan=chained, bricks=protos)

    def _do_expect(self, name: str, folder: str, model: str, file: str, every: bool) -> Facts:
        """Write the reference in double; it is the same whatever the backend."""
        data = model_data(_model(name, folder, model), self._seed)
        return {
            "reason": write_reference(data, Path(file), every=every),
            "own_weights": data.own_weights,
        }

    def _do_evaluate(
        self,
        model: str,
        repeats: int,
        file: str | None = None,
        tolerance: float | None = None,
        outputs: str | None = None,
        gradients: bool = False,
    ) -> Facts:
        proto = parse_model(unpack(model))
        if is_program(proto):
            backend: Any = self.backend
            if not hasattr(backend, "in_double"):
                raise BackendError(f"{self._name} has no step in double to compare with")
            programs: InDouble = backend
            return evaluate_program(programs, proto, repeats=repeats, gradients=gradients)
        if file is None:
            raise WorkerError("an ONNX model is evaluated with the data of its reference")
        return evaluate_model(
            self.backend,
            proto,
            Reference.load(Path(file)),
            repeats=repeats,
            tolerance=tolerance,
            outputs=None if outputs is None else Path(outputs),
        )

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
    ) -> dict[str, Any]:
        proto = parse_model(unpack(model))
        along = tuple(streams or ())
        self._loaded[id] = self.backend.load(proto, key=key, optimize=optimize, streams=along)
        if along:
            self._parallel.add(id)
        self._branching.discard(id)
        if any(map(self.backend.sign_sensitive, _operators(proto))):
            self._signed = True
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
    ) -> dict[str, Any]:
        """Run the steps in order: passes to warm up, then ``passes`` that count.

        They use the first ``region_bytes`` of the region; None: all of it. Steps that are not
        announced are known to run. For them, the reference workload is timed before (unless the
        walk before has just timed it) and after, and so is how long threads waited for a processor.
        ``memory`` is what a recorded program allocates and frees before each step, and at the end.
        """
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
            taken = [run() for run in runs]
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
        waiting = Waiting()
        try:
            taken = [one_pass() for _ in range(passes)]
        finally:
            gc.enable()
        # More threads than processors wait for each other, and not for other processes.
        threads = self._threads + (self._workers if parallel else 0)
        waited_share = waiting.share() if threads <= len(logical_cpus()) else None
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
        }

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


def _model(name: str, folder: str, model: str, *, digest: str = "") -> Model:
    """The model in a request, whose data files are in ``folder``."""
    skeleton = unpack(model)
    graph = graph_of(parse_model(skeleton))
    inputs = tuple((each, graph.types[each]) for each in graph.inputs)
    return Model(name, Path(folder), skeleton, inputs, digest)


def _operators(proto: onnx.ModelProto) -> set[str]:
    return {node.op_type for node in all_nodes(proto.graph)}


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
