"""MXNet on CPU, with oneDNN: the framework of the DLBricks paper (there 1.5.1 with MKL).

It has an environment of its own, because MXNet requires an older NumPy than everything else. The
backend translates models and bricks from ONNX. MXNet's own fusions create operators that ONNX
cannot represent. The executed graph is therefore a list of groups of source nodes; each group is a
brick, which MXNet fuses again when it runs in isolation. Without fusions, MXNet executes the same
graph as Gluon's ``hybridize()``, which is how MXNet worked at the time of the paper.

The calling thread runs operators (MXNet's naive engine): handing each call to a thread of the
engine takes as long as ten small layers, in whole models and in bricks.

A translated graph runs as a cached operator with static memory, like a hybridised Gluon network.
oneDNN writes results to their arrays in a layout of its own, and later reads them in this layout.
So values that share memory in the region must share the array object too, which records the layout.
Must not know plans or the store, nor how operators are translated.
"""

from __future__ import annotations

import ctypes
import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import mxnet as mx
import numpy as np
import onnx
from mxnet.base import _LIB, NDArrayHandle, check_call

from bricks.backends.base import Binding, ExecutedGraph, RotatingInputs
from bricks.backends.input_values import Own, Rotation, Turns
from bricks.backends.mxnet.translate import Translation, groups, translate, translated
from bricks.backends.synthetic_data import TensorInputs, TensorRuntime, results_of
from bricks.errors import BackendError
from bricks.graph.model import Graph
from bricks.graph.sketch import SIGNS, SIZE
from bricks.graph.synthesis import numpy_dtype
from bricks.graph.types import TensorType, ValueType
from bricks.graph.view import OpenShapes, typed_graph, without_values
from bricks.units.sample import Sample

# Functions of the C library, which branch on signs and sizes: on numbers around 1, the error
# function takes several times as long as on numbers around 0.1.
_BRANCHING = frozenset(("Erf", "Tanh"))

# The flags of Gluon's hybridize(static_alloc=True, static_shape=True).
_STATIC = [("static_alloc", "True"), ("static_shape", "True")]


class MxnetBackend(TensorRuntime):
    """MXNet's CPU context, with its fusions if ``fuse`` is true.

    The number of threads is set before MXNet is imported.
    """

    title = "MXNet"
    loaders = 1  # its engine accepts calls from one thread only

    def __init__(self, *, seed: int, fuse: bool) -> None:
        super().__init__(seed)
        logging.getLogger().setLevel(logging.ERROR)
        mx.random.seed(seed)
        self._region = ArrayRegion()
        self._fuse = fuse

    def sign_sensitive(self, operator: str) -> bool:
        """True for all operators: Clip is sensitive and implements many convolutional layers."""
        return True

    def branching_on(self, operator: str) -> Collection[str]:
        """Signs and sizes, for functions of the C library."""
        return (SIGNS, SIZE) if operator in _BRANCHING else ()

    def executed(self, proto: onnx.ModelProto) -> ExecutedGraph:
        """The source graph, with the groups of nodes that MXNet fuses."""
        graph = self.known_graph(proto)
        translation = translate(graph, _clip_bounds(graph, proto))
        source = onnx.ModelProto()
        source.CopyFrom(proto)
        del source.graph.node[:]  # unused outputs are omitted
        source.graph.node.extend(graph.nodes)
        separate = [(i,) for i in range(len(graph.nodes))]
        together = groups(graph, translation.fused()) if self._fuse else separate
        return ExecutedGraph(source, graph.types, {}, groups=together)

    def types(self, proto: onnx.ModelProto) -> tuple[Mapping[str, ValueType], Sequence[str]]:
        """The types that ``onnx.shape_inference`` infers: MXNet runs no graph with open shapes."""
        return self.known_graph(proto).types, ()

    def load(
        self, proto: onnx.ModelProto, *, key: str, optimize: bool, streams: Sequence[int] = ()
    ) -> LoadedGraph:
        """A graph with synthetic weights and inputs; ``streams`` are not supported."""
        graph = self.known_graph(proto)
        return self._loaded(graph, *self.synthesised(proto, graph, key))

    def evaluate(
        self,
        proto: onnx.ModelProto,
        weights: Mapping[str, np.ndarray],
        feeds: Mapping[str, Any],
        *,
        optimize: bool,
    ) -> Sequence[Any]:
        """One run with given weights and inputs."""
        # oneDNN converts the layout of weights in place, and these belong to the caller.
        own = {name: values.copy() for name, values in weights.items()}
        return self.run_once(proto, self.known_graph(proto), own, feeds)

    def materialised(
        self, proto: onnx.ModelProto, weights: Mapping[str, np.ndarray]
    ) -> tuple[ExecutedGraph, Mapping[str, np.ndarray]]:
        """The source graph with the model's own weights: fusions change neither."""
        return self.executed(proto), weights

    def run_once(
        self,
        proto: onnx.ModelProto,
        graph: Graph,
        weights: Mapping[str, np.ndarray],
        feeds: Mapping[str, Any],
    ) -> list[np.ndarray]:
        """The outputs of one run of ``graph``; MXNet may change ``weights``, but no ``feeds``."""
        inputs = {name: (feeds[name].copy, self.tensor_type(graph, name)) for name in graph.inputs}
        results = results_of(self._loaded(graph, weights, inputs), graph)
        shapes = [self.tensor_type(graph, name).shape for name in graph.outputs]
        return [array.reshape(shape) for array, shape in zip(results, shapes, strict=True)]

    def synthesised(
        self, proto: onnx.ModelProto, graph: Graph, key: str, whole: Graph | None = None
    ) -> tuple[dict[str, np.ndarray], TensorInputs]:
        """As any runtime's, but for shifts around zero and bounds of a ReLU6."""
        weights, inputs = super().synthesised(proto, graph, key, whole)
        for name in _shifts(graph).intersection(weights):
            weights[name] -= weights[name].dtype.type(0.5)
        return weights | _clip_bounds(graph, proto), inputs

    def known_graph(self, proto: onnx.ModelProto) -> Graph:
        """The graph of ``proto`` with all types, inferred as for the source graph of a model."""
        try:
            return typed_graph(proto)
        except OpenShapes as exc:
            reason = str(exc).removeprefix("graph: ")
            raise BackendError(
                f"MXNet wants all shapes ahead, but {reason}; choose --runtime onnxruntime"
            ) from exc

    def _loaded(
        self, graph: Graph, weights: Mapping[str, np.ndarray], inputs: TensorInputs
    ) -> LoadedGraph:
        outputs = [self.tensor_type(graph, name) for name in graph.outputs]
        translation = translate(graph, weights)
        symbol = translation.fused() if self._fuse else translation.symbol
        return LoadedGraph(symbol, translation, weights, inputs, outputs, self._region)


def _shifts(graph: Graph) -> set[str]:
    """Biases and means of normalisations, which determine the signs of activations.

    Synthetic ones are all positive, and would leave most values on one side of zero. The latency of
    MXNet's Clip depends on the signs, because it branches on them.
    """
    return {
        name
        for node in graph.nodes
        if node.op_type == "BatchNormalization"
        for name in (node.input[2], node.input[3])
    }


def _clip_bounds(graph: Graph, proto: onnx.ModelProto) -> dict[str, np.ndarray]:
    """Values for the bounds of Clip among the weights of ``proto`` that make it a ReLU6.

    Values of weights are not part of a brick, but MXNet fuses Clip only if its lower bound is zero.
    If MXNet does not fuse it, the latency does not depend on the bounds.
    """
    weights, bounds = without_values(proto), {}
    for node in graph.nodes:
        if node.op_type == "Clip":
            for name, bound in zip(node.input[1:], (0, 6), strict=False):
                if name in weights:
                    type_ = weights[name]
                    bounds[name] = np.full(type_.shape, bound, numpy_dtype(type_.dtype))
    return bounds


def to_array(values: np.ndarray) -> Any:
    """An MXNet array that shares the memory of ``values``; MXNet has no scalars."""
    shaped = values.reshape(values.shape or (1,))
    with translated(f"taking values of type {values.dtype}"):
        return mx.nd.from_numpy(np.ascontiguousarray(shaped), zero_copy=True)


class ArrayRegion:
    """The arrays in the shared activation region: one per offset and type."""

    def __init__(self) -> None:
        self._memory: np.ndarray | None = None
        self._arrays: dict[tuple[int, TensorType], Any] = {}

    def at(self, memory: np.ndarray, offset: int, type_: TensorType) -> Any:
        """The array of ``type_`` at ``offset`` bytes in ``memory``, always the same one."""
        if self._memory is None or self._memory.ctypes.data != memory.ctypes.data:
            self._memory, self._arrays = memory, {}
        key = offset, type_
        if key not in self._arrays:
            flat = memory[offset : offset + type_.size_bytes]
            shaped = flat.view(numpy_dtype(type_.dtype)).reshape(type_.shape)
            self._arrays[key] = to_array(shaped)
        return self._arrays[key]


class LoadedGraph:
    """A graph with its weights, which stay the same however often it is bound.

    ``symbol`` is the symbol that runs: the translation's, or the one after fusion.
    """

    def __init__(
        self,
        symbol: Any,
        translation: Translation,
        weights: Mapping[str, np.ndarray],
        inputs: TensorInputs,
        outputs: Sequence[TensorType],
        region: ArrayRegion,
    ) -> None:
        self._symbol = symbol
        self._inputs, self._outputs, self._region = inputs, outputs, region
        self._order, self._rotation = symbol.list_inputs(), Rotation()
        needed = set(self._order)
        # oneDNN converts the layout of weights in place, and copies of a model share these bytes.
        constants = {name: values.copy() for name, values in translation.constants.items()}
        self._variables = translation.variables
        self._weights = {
            translation.variables[name]: to_array(values)
            for name, values in {**constants, **weights}.items()
            if translation.variables[name] in needed
        }

    def bind(self, binding: Binding, region: np.ndarray) -> BoundGraph:
        """Bind inputs and outputs, to arrays in ``region`` where the binding says so."""
        arrays, own = dict(self._weights), {}
        for (name, (make, type_)), offset in zip(self._inputs.items(), binding.inputs, strict=True):
            if offset is None:
                memory = np.ascontiguousarray(make())
                own[name] = memory, make
                arrays[self._variables[name]] = to_array(memory)
            else:
                arrays[self._variables[name]] = self._region.at(region, offset, type_)
        results = [
            to_array(np.zeros(type_.shape, numpy_dtype(type_.dtype)))
            if offset is None
            else self._region.at(region, offset, type_)
            for offset, type_ in zip(binding.outputs, self._outputs, strict=True)
        ]
        arguments = [arrays[name] for name in self._order]
        return BoundGraph(self._symbol, arguments, results, self._rotation, own)


class BoundGraph(RotatingInputs):
    """A cached operator with the arrays that it reads and writes.

    Inputs in ``own`` have buffers of their own, in which values of ``rotation`` take turns.
    """

    def __init__(
        self,
        symbol: Any,
        arguments: Sequence[Any],
        results: Sequence[Any],
        rotation: Rotation,
        own: Own,
    ) -> None:
        self._rotation, self._own = rotation, own
        with translated("binding it"):
            self._operator = mx.nd.CachedOp(symbol, _STATIC)
        self._arguments, self._results = arguments, results
        # The public wrapper recreates these on each call, which takes microseconds per weight.
        self._handles = (NDArrayHandle * len(arguments))(*(a.handle for a in arguments))
        self._result_handles = (NDArrayHandle * len(results))(*(a.handle for a in results))

    def rotation(self, turns: Turns) -> Callable[[], None] | None:
        """What copies the next values to the buffers of these inputs."""
        return self._rotation.of(self._own, turns)

    def sample(self) -> Sample:
        """Run once, and return the latency."""
        count = ctypes.c_int(len(self._results))
        results = ctypes.cast(self._result_handles, ctypes.POINTER(NDArrayHandle))
        kinds = ctypes.POINTER(ctypes.c_int)()
        invoke, operator = _LIB.MXInvokeCachedOpEx, self._operator.handle
        clock = time.perf_counter_ns
        arguments, number = self._handles, ctypes.c_int(len(self._arguments))
        by_count, by_results, by_kinds = map(ctypes.byref, (count, results, kinds))
        start = clock()
        failed = invoke(operator, number, arguments, by_count, by_results, by_kinds)
        latency_ns = clock() - start
        if failed:
            with translated("running it"):
                check_call(failed)
        return Sample(latency_ns * 1e-9)

    def results(self) -> list[np.ndarray]:
        """The outputs of the last run."""
        with translated("running it"):
            return [array.asnumpy() for array in self._results]
