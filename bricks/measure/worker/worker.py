"""The child process: owns the runtime, runs what it is told, and answers in JSON lines.

It must not know of the store, of plans, or of why something is run. Whatever it dies of (a crash
of the runtime, memory, a hang that its parent ends) takes nothing else down.

Run as ``python -m bricks.measure.worker``; speaks on standard input and output.
"""

from __future__ import annotations

import ctypes
import gc
import os
import re
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import onnx

from bricks import backends
from bricks.backends.base import Backend, Loaded, Placed, Placement, Profiler
from bricks.backends.filling import PERIOD, filled
from bricks.decompose.plan import Plan
from bricks.errors import BackendError, BricksError, WorkerError, first_line
from bricks.graph.model import Model
from bricks.graph.topology import all_nodes
from bricks.graph.view import graph_of, parse_model
from bricks.measure.allowance import allowed_bytes
from bricks.measure.protocol import LIFELINE, SCRATCH, decode, encode, pack, unpack
from bricks.measure.worker.cache_evictor import CacheEvictor, aligned
from bricks.measure.worker.input_clamp import InputClamp
from bricks.measure.worker.profiling import typical_run
from bricks.measure.worker.reference_timer import ReferenceTimer
from bricks.measure.worker.verify import source_of, verify_model
from bricks.measure.worker.warmth import Warmth
from bricks.system import Waiting, logical_cpus

# More than what lies in the region, for that begins where an address is even enough.
_ALIGNING_BYTES = 64
# How long to look whether threads are idle, and how often.
_SETTLING_TURN_S, _SETTLING_TURNS = 0.02, 50


class Worker:
    """One backend, what it has loaded, and the shared activation region."""

    def __init__(self, say: Callable[[dict[str, Any]], None]) -> None:
        self._say = say
        self._backend: Backend | None = None
        self._loaded: dict[str, Loaded] = {}
        self._placed: dict[str, Placed] = {}
        self._region = np.zeros(0, np.uint8)
        self._fillings: dict[bool, np.ndarray] = {}  # by whether they have both signs
        self._signed = False  # whether anything that is loaded minds signs
        self._reference_timer = ReferenceTimer(self._companion)
        self._evictor = CacheEvictor(self._companion)
        self._input_clamp = InputClamp(self._unplaced_companion)
        self._clamps: dict[str, list[Placed]] = {}  # what runs before a place, untimed
        self._name = ""
        self._threads = self._workers = 1
        self._parallel: set[str] = set()  # what is loaded, and its places, that runs in streams
        self._warmth = Warmth()
        self._seed = 0
        self._timing = True

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Do what ``request`` asks; the answer's content."""
        operation = getattr(self, "_do_" + str(request.pop("op", "")), None)
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
            _limit_memory(memory_bytes)
        self._seed, self._threads, self._workers = seed, threads, workers
        self._name, self._timing = backend, timing
        self._backend = backends.create(
            backend, threads=threads, seed=seed, workers=workers, optimization=optimization
        )
        gc.freeze()  # what is there by now stays: looking through it for garbage takes 20 ms
        return {"pid": os.getpid()}

    def _do_limit(self, memory_bytes: int | None) -> dict[str, Any]:
        _limit_memory(memory_bytes)
        return {}

    def _do_executed(self, model: str) -> dict[str, Any]:
        proto = parse_model(unpack(model))
        with _memory_for(proto):
            executed = self.backend.executed(proto)
        if self._timing:  # else the next model needs it
            _give_back_memory()
        return {
            "model": pack(executed.proto.SerializeToString()),
            "types": {name: type_.to_json() for name, type_ in executed.types.items()},
            "in_place": dict(executed.in_place),
            "observed": list(executed.observed),
            "groups": None if executed.groups is None else list(map(list, executed.groups)),
        }

    def _do_source(self, name: str, model: str) -> dict[str, Any]:
        skeleton = unpack(model)
        proto = parse_model(skeleton)
        given = graph_of(proto)
        inputs = tuple((name, given.types[name]) for name in given.inputs)
        with _memory_for(proto):
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
        with _memory_for(proto):
            return {"values": self.backend.values(proto, names)}

    def _do_verify(
        self, name: str, folder: str, model: str, plan: dict[str, Any], bricks: dict[str, str]
    ) -> dict[str, Any]:
        skeleton = unpack(model)
        graph = graph_of(parse_model(skeleton))
        inputs = tuple((name, graph.types[name]) for name in graph.inputs)
        return verify_model(
            self.backend,
            seed=self._seed,
            model=Model(name, Path(folder), skeleton, inputs, digest=plan["digest"]),
            plan=Plan.from_json(plan),
            bricks={key: parse_model(unpack(text)) for key, text in bricks.items()},
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

    def _do_region(self, size_bytes: int, eviction_bytes: int = 0) -> dict[str, Any]:
        self._evictor.allow(eviction_bytes)
        self._region = np.zeros(size_bytes + _ALIGNING_BYTES, np.uint8)
        self._refill()
        return {}

    def _refill(self, size_bytes: int | None = None) -> None:
        """Ordinary numbers in all of the region, or in its first bytes.

        A walk over some of a model's bricks may begin with what its end has left behind. From walk
        to walk such values would grow without end, or vanish.
        """
        if self._signed not in self._fillings:
            self._fillings[self._signed] = filled(PERIOD, self._seed, signed=self._signed)
        whole = len(self._region)
        size = whole if size_bytes is None else min(whole, size_bytes + _ALIGNING_BYTES)
        filling, periods = self._fillings[self._signed], size // PERIOD * PERIOD
        self._region[:periods].reshape(-1, PERIOD)[:] = filling
        self._region[periods:size] = filling[: size - periods]

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
        if any(map(self.backend.sign_sensitive, _operators(proto))):
            self._signed = True
        self._input_clamp.learn(id, proto)
        return {}

    def _do_load_all(self, loads: list[dict[str, Any]]) -> dict[str, Any]:
        """Several at once, as far as the runtime allows; the seconds that each took."""

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
        self, place: str, id: str, inputs: list[int | None], outputs: list[int | None]
    ) -> dict[str, Any]:
        placement = Placement(tuple(inputs), tuple(outputs))
        region = self._aligned_region()
        self._placed[place] = self._loaded[id].place(placement, region)
        self._clamps[place] = self._input_clamp.of(id, inputs, region)
        if id in self._parallel:
            self._parallel.add(place)
        return {}

    def _do_unload(self) -> dict[str, Any]:
        self._placed.clear()
        self._clamps.clear()
        self._input_clamp.forget()
        self._loaded.clear()
        self._parallel.clear()
        self._warmth.forget()
        self._signed = False
        self._evictor.forget()
        gc.collect()
        _give_back_memory()
        return {}

    def _do_walk(
        self,
        steps: list[tuple[str, bool]],
        passes: int,
        announce: bool,
        eviction_bytes: int = 0,
        region_bytes: int | None = None,
    ) -> dict[str, Any]:
        """Run the steps in order: passes to warm up, then ``passes`` that count.

        They use so many bytes of the region; all of it, if nothing is said.

        Beside them, as long as it is known that they run: the reference workload, before (or at
        the end of another walk, if that was just now) and after, and how long threads had to wait
        for a processor.
        """
        runs = [self._run(place) for place, _ in steps]
        parallel = any(place in self._parallel for place, _ in steps)

        def announced() -> list[float]:
            taken = []
            for number, run in enumerate(runs):
                self._say({"at": number})
                taken.append(run())
            return taken

        def silent() -> list[float]:
            if read is not None:
                read.sample()
            return [run() for run in runs]

        self._refill(region_bytes)
        one_pass = announced if announce else silent
        timed = runs and not announce
        read, whole = self._evictor.of(eviction_bytes) if timed and eviction_bytes else (None, True)
        reference_s = self._reference_timer.just_now_s() if timed else None
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
        # More threads than processors wait for each other: that says nothing of others.
        threads = self._threads + (self._workers if parallel else 0)
        waited_share = waiting.share() if threads <= len(logical_cpus()) else None
        if parallel:
            _settle()
        samples = [list(column) for column in zip(*taken, strict=True)] or [[] for _ in runs]
        return {
            "samples": [
                column if wanted else [] for column, (_, wanted) in zip(samples, steps, strict=True)
            ],
            "reference_s": reference_s,
            "reference_end_s": self._reference_timer.now_s() if timed else None,
            "waited_share": waited_share,
            "eviction_short": not whole,
        }

    def _run(self, place: str) -> Callable[[], float]:
        """Runs what is at ``place`` once; the latency in seconds."""
        run = self._placed[place].sample
        before = [clamp.sample for clamp in self._clamps.get(place, ())]

        def clamped() -> float:
            for clamp in before:
                clamp()
            return run()

        return clamped if before else run

    def _companion(
        self, model: onnx.ModelProto, key: str, region: np.ndarray | None = None
    ) -> Placed:
        """Something of one input and one output that is run beside the steps.

        The input is where ``region`` begins, or has memory of its own.
        """
        loaded = self._unplaced_companion(model, key)
        if region is None:
            return loaded.place(Placement((None,), (None,)), np.zeros(0, np.uint8))
        return loaded.place(Placement((0,), (None,)), region)

    def _unplaced_companion(self, model: onnx.ModelProto, key: str) -> Loaded:
        return self.backend.load(model, key=key, optimize=False)

    def _do_reference(self) -> dict[str, Any]:
        return {"reference_s": self._reference_timer.now_s()}

    def _aligned_region(self) -> np.ndarray:
        return aligned(self._region)


def _operators(proto: onnx.ModelProto) -> set[str]:
    return {node.op_type for node in all_nodes(proto.graph)}


@contextmanager
def _memory_for(proto: onnx.ModelProto) -> Iterator[None]:
    """Let work on ``proto`` take what a model of its size may, on top of what is held already."""
    try:
        import resource

        before = resource.getrlimit(resource.RLIMIT_DATA)[0]
        held = re.search(r"VmData:\s+(\d+) kB", Path("/proc/self/status").read_text("ascii"))
    except (ImportError, OSError):
        held = None
    if held is None:  # not Linux: nothing tells what is held
        yield
        return
    most = (int(held[1]) << 10) + allowed_bytes(proto)
    limited = before == resource.RLIM_INFINITY or most < before
    try:
        if limited:
            _limit_memory(most)
        yield
    finally:
        if limited:
            _limit_memory(None if before == resource.RLIM_INFINITY else before)


def _limit_memory(memory_bytes: int | None) -> None:
    """Let a brick that is too big fail by itself, before the system starts killing processes."""
    with suppress(ImportError, ValueError, OSError):
        import resource

        soft = resource.RLIM_INFINITY if memory_bytes is None else memory_bytes
        resource.setrlimit(resource.RLIMIT_DATA, (soft, resource.RLIM_INFINITY))


def _settle() -> None:
    """Wait, at most a second, until no thread of this process spins any more.

    Threads that run nodes side by side go on looking for work for some 50 ms after the last, at the
    expense of whatever runs then.
    """
    for _ in range(_SETTLING_TURNS):
        before_s = time.process_time()
        time.sleep(_SETTLING_TURN_S)
        if time.process_time() - before_s < _SETTLING_TURN_S / 20:
            return


def _give_back_memory() -> None:
    """What the C library keeps of freed memory counts as this process's until it is given back."""
    with suppress(OSError, AttributeError):  # glibc alone has this
        ctypes.CDLL(None).malloc_trim(0)


def _die_with_parent() -> None:
    """Never outlive the parent, not even one that was killed while a brick runs.

    A thread waits for the end of a pipe that only the parent holds; it takes no time while it
    waits, and its turn as soon as the runtime lets Python run beside it.
    """
    lifeline = os.environ.pop(LIFELINE, "")
    if lifeline:
        threading.Thread(target=_end_with, args=(int(lifeline),), daemon=True).start()


def _end_with(lifeline: int) -> None:
    while os.read(lifeline, 1):
        pass
    if tempfile.tempdir is not None:  # nobody is left to remove it
        shutil.rmtree(tempfile.tempdir, ignore_errors=True)
    os._exit(1)


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """Answer requests until there are no more."""

    def say(message: dict[str, Any]) -> None:
        answers.write(encode(message))
        answers.flush()

    worker = Worker(say)
    for line in requests:
        try:
            say({"ok": worker.answer(decode(line))})
        except BricksError as error:
            say({"error": str(error)})
        except MemoryError as error:
            say({"error": f"out of memory: {first_line(error)}"})
        except Exception as error:  # a fault of one request must not end the others
            say({"error": f"{type(error).__name__}: {first_line(error)}"})


def main() -> None:
    """Serve on standard input and output; what libraries print goes to standard error."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when to end
    _die_with_parent()
    tempfile.tempdir = os.environ.pop(SCRATCH, None)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    serve(sys.stdin.buffer, answers)
