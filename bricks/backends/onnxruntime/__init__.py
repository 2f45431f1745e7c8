"""ONNX Runtime on CPU.

All sessions share one global thread pool and one arena: sessions with pools of their own spin
against each other (microsoft/onnxruntime #17011), and in a whole model all nodes share both.
Weights come from the pool of synthetic numbers as OrtValues: nothing is serialised, and no weight
file has to exist. A session copies what it is given, so each has weights of its own, as cold in the
caches as a model's; the large arrays that they are copied from share one block.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
import onnx
import onnxruntime as ort

from bricks.backends.base import Executed
from bricks.backends.onnxruntime.inplace import in_place_values
from bricks.backends.onnxruntime.optimized import (
    inferred_types,
    save_optimized,
    structural_weights,
)
from bricks.backends.onnxruntime.sessions import (
    LoadedSession,
    at,
    create_session,
    session_options,
    to_array,
    to_value,
    translated,
)
from bricks.graph.domains import integer_ranges
from bricks.graph.synthesis import Pool, numpy_dtype
from bricks.graph.tensor import TensorType
from bricks.graph.view import graph_of, without_output_shapes, without_values

# The runtime's name for an arena that grows by what is asked of it.
_AS_REQUESTED = 1
# The fan-in that the numbers of the shared block suit; and below this, weights have memory of
# their own, with numbers that suit them.
_BLOCK_ROW = 4096
_LEAST_SHARED_BYTES = 1 << 20
# Bytes between the beginnings of two arrays in the block, and room for some thousands of them.
_BLOCK_STEP, _BLOCK_SLACK = 64, 1 << 18


class OnnxRuntimeBackend:
    """ONNX Runtime's CPU execution provider with a fixed number of threads."""

    def __init__(self, *, threads: int, seed: int) -> None:
        ort.set_default_logger_severity(4)
        ort.set_global_thread_pool_sizes(threads, 1)
        memory = ort.OrtMemoryInfo(
            "Cpu", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT
        )
        # By default it grows to powers of two, up to twice of what is needed.
        arena = ort.OrtArenaCfg({"arena_extend_strategy": _AS_REQUESTED})
        ort.create_and_register_allocator(memory, arena)
        self._pool = Pool(seed)
        self._block = np.empty(0, np.uint8)

    def executed(self, proto: onnx.ModelProto) -> Executed:
        """The graph after all optimisations; no weight is read, and none reaches a disk."""
        optimized, _ = save_optimized(proto, structural_weights(proto, self._pool), keep=False)
        return self._described(optimized)

    def materialised(
        self, proto: onnx.ModelProto, weights: Mapping[str, np.ndarray]
    ) -> tuple[Executed, Mapping[str, np.ndarray]]:
        """The executed graph together with its weights, for checking that bricks are exact."""
        optimized, arrays = save_optimized(proto, weights, keep=True)
        return self._described(optimized), arrays

    def integers(self, proto: onnx.ModelProto, names: Sequence[str]) -> dict[str, list[int]]:
        """Integer values in one run on synthetic data."""
        results = self._observed(proto, names)
        return {name: to_array(value).ravel().tolist() for name, value in results.items()}

    def load(
        self,
        proto: onnx.ModelProto,
        *,
        key: str,
        optimize: bool,
        examples: Mapping[str, Sequence[int]],
    ) -> LoadedSession:
        """A session with synthetic weights and inputs."""
        weights, inputs = self._synthesised(proto, key, share=True)
        for name, values in examples.items():
            _, type_ = inputs[name]
            example = np.array(values, numpy_dtype(type_.dtype)).reshape(type_.shape)
            inputs[name] = (partial(np.copy, example), type_)
        # What a brick states of its outputs was true of one model's data. Without that the runtime
        # itself tells which shapes are sure, and makes room for the others as it runs.
        session = create_session(
            without_output_shapes(proto), weights, session_options(optimize=optimize)
        )
        return LoadedSession(session, weights, inputs)

    def evaluate(
        self,
        proto: onnx.ModelProto,
        weights: Mapping[str, np.ndarray],
        feeds: Mapping[str, np.ndarray],
        *,
        optimize: bool,
    ) -> Sequence[np.ndarray]:
        """One run with given weights and inputs."""
        graph = graph_of(proto)
        session = create_session(proto, weights, session_options(optimize=optimize))
        values = {name: to_value(array, graph.types[name]) for name, array in feeds.items()}
        with translated("running the model"):
            return [to_array(v) for v in session.run_with_ort_values(list(graph.outputs), values)]

    def types(self, proto: onnx.ModelProto) -> dict[str, TensorType]:
        """Every value's type, as the runtime infers it or as one run shows it."""
        types, open_values = inferred_types(proto, structural_weights(proto, self._pool))
        if open_values:
            for name, value in self._observed(proto, open_values).items():
                dtype = onnx.TensorProto.DataType.Name(value.element_type())
                types[name] = TensorType(dtype, tuple(value.shape()))
        return types

    def _described(self, optimized: onnx.ModelProto) -> Executed:
        types = self.types(optimized)
        return Executed(optimized, types, in_place_values(graph_of(optimized, types)))

    def _observed(self, proto: onnx.ModelProto, names: Sequence[str]) -> dict[str, ort.OrtValue]:
        """The values called ``names`` in one run of ``proto`` on synthetic data."""
        exposed = onnx.ModelProto()
        exposed.CopyFrom(proto)
        del exposed.graph.output[:]
        exposed.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
        weights, inputs = self._synthesised(proto, "observed")
        arrays = {name: make() for name, (make, _) in inputs.items()}
        feeds = {name: to_value(arrays[name], type_) for name, (_, type_) in inputs.items()}
        session = create_session(exposed, weights, session_options(optimize=False))
        with translated("running the model once to learn what depends on data"):
            results = session.run_with_ort_values(list(names), feeds)
        return dict(zip(names, results, strict=True))

    def _synthesised(
        self, proto: onnx.ModelProto, key: str, *, share: bool = False
    ) -> tuple[dict[str, np.ndarray], dict[str, tuple[Callable[[], np.ndarray], TensorType]]]:
        """Weights, and what makes inputs, that ``proto`` can take; ``key`` decides them.

        With ``share``, large weights are views of one block: only for sessions, which copy them.
        """
        graph = graph_of(proto)
        types = without_values(proto)
        integers = [name for name, type_ in types.items() if not type_.floating]
        ranges = integer_ranges(graph, [*graph.inputs, *integers])
        weights = {
            name: self._shared(type_, number)
            if share and type_.dtype == "FLOAT" and type_.size_bytes >= _LEAST_SHARED_BYTES
            else self._pool.weight(f"{key}/{name}", type_, ranges.get(name))
            for number, (name, type_) in enumerate(types.items())
        }
        inputs: dict[str, tuple[Callable[[], np.ndarray], TensorType]] = {
            name: (
                partial(self._pool.input, f"{key}/{name}", graph.types[name], ranges.get(name)),
                graph.types[name],
            )
            for name in graph.inputs
        }
        return weights, inputs

    def _shared(self, type_: TensorType, number: int) -> np.ndarray:
        """An array of ``type_`` in the block that large weights share.

        Another for each ``number``: of weights with equal values in one session, the runtime keeps
        a single prepacked copy, which then stays in the caches as no real model's weights would.
        """
        offset = number * _BLOCK_STEP
        if self._block.size < offset + type_.size_bytes:
            size_bytes = type_.size_bytes + max(offset, _BLOCK_SLACK)
            rows = -(-size_bytes // (4 * _BLOCK_ROW))
            block = self._pool.weight("block", TensorType("FLOAT", (rows, 1, _BLOCK_ROW)))
            self._block = block.reshape(-1).view(np.uint8)
        return at(self._block, offset, type_)
