"""ONNX Runtime for the program in a portable suite, on the processor.

Must not know the store, nor how bricks are chosen.
"""

from __future__ import annotations

import time
import zlib
from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from itertools import cycle
from typing import Any

import numpy as np
import onnxruntime as ort

from bricks.backends.input_values import PERIOD, filled, sets_in_turn
from bricks.backends.portable import (
    GroupWalk,
    HostRuntime,
    PortableRuntime,
    PortableStep,
    PortableWalk,
    RoundConditions,
    SampledRound,
    most_evicted_bytes,
)
from bricks.errors import BackendError
from bricks.graph.sketch import Sketch
from bricks.system.accelerator import CPU
from bricks.system.fingerprint import physical_cores
from bricks.units.sample import Sample

_PROVIDER = "CPUExecutionProvider"
# The first version in which Python can set the size of the global thread pool.
_OLDEST = "1.23"
# The runtime's code for an arena that grows by the requested sizes.
_AS_REQUESTED = 1
_LINE_BYTES = 64
# The least magnitude of random numbers.
_LEAST = np.float32(2.0**-6)

_NUMPY: Mapping[str, str] = {
    "tensor(float)": "float32", "tensor(double)": "float64", "tensor(float16)": "float16",
    "tensor(int8)": "int8", "tensor(int16)": "int16", "tensor(int32)": "int32",
    "tensor(int64)": "int64", "tensor(uint8)": "uint8", "tensor(uint16)": "uint16",
    "tensor(uint32)": "uint32", "tensor(uint64)": "uint64", "tensor(bool)": "bool",
}  # fmt: skip


class OnnxRuntimeRuntime(PortableRuntime):
    """ONNX Runtime with sessions on one pool of threads, as bricks are measured elsewhere."""

    def __init__(self, *, device: str, threads: int | None, content: Mapping[str, Any]) -> None:
        if device not in ("", CPU):
            raise BackendError(f"suites of ONNX models are measured on processors: not on {device}")
        if not hasattr(ort, "set_global_thread_pool_sizes"):
            raise BackendError(
                f"onnxruntime {ort.__version__} is too old, its sessions cannot share a pool of"
                f" threads of a given size: run the suite with {_OLDEST} or newer"
            )
        self._threads, self._content = threads or physical_cores(), content
        ort.set_default_logger_severity(4)
        ort.set_global_thread_pool_sizes(self._threads, 1)
        kind = ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR
        memory = ort.OrtMemoryInfo("Cpu", kind, 0, ort.OrtMemType.DEFAULT)
        arena = ort.OrtArenaCfg({"arena_extend_strategy": _AS_REQUESTED})
        ort.create_and_register_allocator(memory, arena)
        reference = SessionPiece("r2-layers", content["instruments"]["reference"])
        self._conditions = RoundConditions(SessionStep.own("", reference).run)
        self._probes = {
            key: SessionStep.own(key, SessionPiece(key, piece, optimize=False))
            for key, piece in content["instruments"]["probes"].items()
        }

    def facts(self) -> HostRuntime:
        """Return the version of the runtime; a note if the suite was made with another one."""
        made, notes = self._content["made_with"], []
        if made["version"] != ort.__version__:
            notes = [
                f"this is onnxruntime {ort.__version__}, and the suite was made with"
                f" {made['version']}, which may execute another graph"
            ]
        return HostRuntime(ort.__version__, _PROVIDER, self._threads, None, tuple(notes))

    def group(self, group: Mapping[str, Any], pieces: Mapping[str, Any]) -> GroupWalk:
        """Load a group."""
        return SessionWalk(group, pieces, self._conditions)

    def real_steps(self, program: Mapping[str, Any], folder: str) -> Iterator[SampledRound]:
        """Run nothing: whole models are not in the suite."""
        return iter(())

    def probes(self) -> Iterator[SampledRound]:
        """Chains of trivial nodes, of two lengths."""
        self._conditions.begin()
        samples = {key: [step.settled() for _ in range(2)] for key, step in self._probes.items()}
        observed = self._conditions.end()
        for key, own in samples.items():
            yield SampledRound(key, own, observed)


class SessionPiece:
    """A session for a brick, with weights and inputs of its own."""

    def __init__(self, key: str, data: Mapping[str, Any], *, optimize: bool = False) -> None:
        self._weights = {each[0]: _array(key, each) for each in data["weights"]}
        self.inputs = {each[0]: _array(key, each) for each in data["inputs"]}
        sketches = {each[0]: each[4] for each in data["inputs"]}
        self.turns = {n: _in_turn(self.inputs[n], sketches[n]) for n in data["redrawn"]}
        options = ort.SessionOptions()
        options.use_per_session_threads = False
        options.log_severity_level = 4
        levels = ort.GraphOptimizationLevel
        level = levels.ORT_ENABLE_ALL if optimize else levels.ORT_DISABLE_ALL
        options.graph_optimization_level = level
        options.add_session_config_entry("session.use_env_allocators", "1")
        options.add_session_config_entry("session.use_device_allocator_for_initializers", "1")
        values = [ort.OrtValue.ortvalue_from_numpy(array) for array in self._weights.values()]
        if values:
            options.add_external_initializers([*self._weights], values)
        self._values = values
        self.session = ort.InferenceSession(
            b64decode(data["model"]), options, providers=[_PROVIDER], enable_fallback=0
        )


class SessionStep(PortableStep):
    """A step whose values lie at offsets in a ``region``, or in memory of their own."""

    def __init__(self, step: Mapping[str, Any], piece: SessionPiece, region: np.ndarray) -> None:
        self.key, self.timed, self.weight = step["key"], step["timed"], step["weight"]
        self._piece, self._repeated = piece, step["repeated"] and step["timed"]
        self._binding = piece.session.io_binding()
        self._keep: list[Any] = [region]
        for (name, own), offset in zip(piece.inputs.items(), step["inputs"], strict=True):
            array = own if offset is None else _at(region, offset, own.dtype, own.shape)
            self._binding.bind_ortvalue_input(name, self._value(array))
        self._unbound: list[str] = []  # outputs whose shapes are not known
        for output, offset in zip(piece.session.get_outputs(), step["outputs"], strict=True):
            dtype = _NUMPY.get(output.type)
            known = output.shape and all(isinstance(size, int) for size in output.shape)
            if dtype is None or not known:
                self._unbound.append(output.name)
                continue
            if offset is None:
                array = np.zeros(output.shape, dtype)
            else:
                array = _at(region, offset, np.dtype(dtype), output.shape)
            self._binding.bind_ortvalue_output(output.name, self._value(array))
        self._run = piece.session._sess.run_with_iobinding
        self._bound = self._binding._iobinding

    @classmethod
    def own(cls, key: str, piece: SessionPiece) -> SessionStep:
        """The step of a piece that is alone."""
        inputs, outputs = [None] * len(piece.inputs), [None] * len(piece.session.get_outputs())
        step = {"key": key, "timed": True, "weight": 1.0, "repeated": False}
        return cls({**step, "inputs": inputs, "outputs": outputs}, piece, np.zeros(0, np.uint8))

    def settled(self) -> Sample:
        """The last of several runs in a row."""
        return [self.run() for _ in range(5)][-1]

    def prepare(self) -> None:
        """Write other values that decide how long it takes; run once if its data stay cached."""
        for name, turns in self._piece.turns.items():
            self._piece.inputs[name][...] = next(turns)
        if self._repeated and not self._piece.turns:
            self.run()

    def run(self) -> Sample:
        """Run once."""
        for name in self._unbound:  # the last run's buffer may have another shape
            self._binding.bind_output(name)
        run, bound, clock = self._run, self._bound, time.perf_counter_ns
        started = clock()
        run(bound, None)
        return Sample((clock() - started) * 1e-9)

    def _value(self, array: np.ndarray) -> Any:
        value = ort.OrtValue.ortvalue_from_numpy(array)
        self._keep += (array, value)
        return value


class SessionWalk(PortableWalk):
    """A group whose values share a region, as in their model."""

    def __init__(
        self, group: Mapping[str, Any], pieces: Mapping[str, Any], conditions: RoundConditions
    ) -> None:
        # A runtime may read a little beyond a value.
        memory = filled(group["region_bytes"] + PERIOD, 0)
        first = -memory.ctypes.data % _LINE_BYTES
        self._region = memory[first : len(memory) - _LINE_BYTES + first]
        loaded: dict[str, SessionPiece] = {}
        steps = []
        for step in group["steps"]:
            if step["load"] not in loaded:
                loaded[step["load"]] = SessionPiece(step["load"], pieces[step["key"]])
            steps.append(SessionStep(step, loaded[step["load"]], self._region))
        super().__init__(steps, conditions)
        evicted_bytes = min(group["eviction_bytes"], most_evicted_bytes())
        self._evicted = np.ones(evicted_bytes // 4, np.float32)

    def evict(self) -> None:
        """Read memory in place of the weights that a pass leaves out."""
        if self._evicted.size:
            self._evicted.max()


def _array(key: str, data: Sequence[Any]) -> np.ndarray:
    """An array as a piece describes it; its name and ``key`` determine random numbers."""
    name, dtype, shape, filling, sketch = data
    if "values" in filling:
        return np.array(filling["values"], dtype).reshape(shape)
    random = np.random.default_rng(zlib.crc32(f"{key}/{name}".encode()))
    if "integers" in filling:
        low, high = filling["integers"]
        made = random.integers(low, high, shape, np.int64 if low < 0 else np.uint64)
    else:
        scale, shift = filling["floats"]  # of both signs, none of them tiny
        signed = random.random(shape, np.float32) * 2 - 1
        ordinary = np.copysign(np.maximum(np.abs(signed), _LEAST), signed)
        made = ordinary * np.float32(scale) + np.float32(shift)
    made = made.astype(dtype)
    return made if sketch is None else Sketch.from_json(sketch).drawn(made, 0)


def _in_turn(array: np.ndarray, sketch: Mapping[str, Any] | None) -> Iterator[np.ndarray]:
    """Cycle through so many sets of values that processors do not learn them."""
    seeds = range(sets_in_turn(array.size))
    if sketch is None:
        flat = array.ravel()
        drawn = [np.random.default_rng(s).permutation(flat).reshape(array.shape) for s in seeds]
    else:
        drawn = [Sketch.from_json(sketch).drawn(array, seed) for seed in seeds]
    return cycle(drawn)


def _at(region: np.ndarray, offset: int, dtype: Any, shape: Sequence[int]) -> np.ndarray:
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    array: np.ndarray = region[offset : offset + size].view(dtype).reshape(shape)
    return array
