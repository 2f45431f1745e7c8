"""MXNet on CPU, with oneDNN: the framework of the DLBricks paper (there 1.5.1 with MKL).

It has an environment of its own, because MXNet requires an older NumPy than everything else. The
backend translates models and bricks from ONNX. MXNet's own fusions create operators that ONNX
cannot represent. The executed graph is therefore a list of groups of source nodes; each group is a
brick, which MXNet fuses again when it runs in isolation. Without fusions, MXNet executes the same
graph as Gluon's ``hybridize()``, which is how MXNet worked at the time of the paper.

The calling thread runs operators (MXNet's naive engine): handing each call to a thread of the
engine takes as long as ten small layers, in whole models and in bricks. Must not know plans or the
store.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import mxnet as mx
import numpy as np
import onnx

from bricks.backends.base import ExecutedGraph
from bricks.backends.mxnet.loaded import ArrayRegion, LoadedGraph
from bricks.backends.mxnet.translate import groups, translate
from bricks.backends.tensor_runtime import TensorInputs, TensorRuntime, results_of
from bricks.errors import BackendError
from bricks.graph.sketch import SIGNS, SIZE
from bricks.graph.source import OpenShapes, typed_graph
from bricks.graph.synthesis import numpy_dtype
from bricks.graph.view import without_values

if TYPE_CHECKING:
    from bricks.graph.containers import ValueType
    from bricks.graph.graph import Graph

# Functions of the C library, which branch on signs and sizes: on numbers around 1, the error
# function takes several times as long as on numbers around 0.1.
_BRANCHING = frozenset(("Erf", "Tanh"))


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
