"""MXNet on CPU, with oneDNN: the framework of the DLBricks paper (there 1.5.1 with MKL).

It has an environment of its own, because MXNet requires an older NumPy than everything else. The
backend translates models and bricks from ONNX. MXNet's own fusions create operators that ONNX
cannot represent. The executed graph is therefore a list of groups of source nodes; each group is a
brick, which MXNet fuses again when it runs alone. Without fusions, MXNet executes the same graph as
Gluon's ``hybridize()``, which is how MXNet worked at the time of the paper.

The calling thread runs operators (MXNet's naive engine): handing each call to a thread of the
engine takes as long as ten small layers, in whole models and in bricks. Must not know plans or the
store.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import mxnet as mx
import numpy as np
import onnx

from bricks.backends.base import Binding, Evaluator, ExecutedGraph, ValueObserver
from bricks.backends.mxnet.loaded import LoadedGraph, Region
from bricks.backends.mxnet.translate import groups, translate
from bricks.backends.synthetic_data import synthetic_data
from bricks.errors import BackendError
from bricks.graph.containers import ValueType
from bricks.graph.graph import Graph
from bricks.graph.sketch import SIGNS, SIZE
from bricks.graph.source import OpenShapes, typed_graph
from bricks.graph.synthesis import Pool, numpy_dtype
from bricks.graph.tensor import TensorType
from bricks.graph.view import graph_of, upstream, without_values

# Functions of the C library, which branch on signs and sizes: on numbers around 1, the error
# function takes several times as long as on numbers around 0.1.
_BRANCHING = frozenset(("Erf", "Tanh"))


class MxnetBackend(Evaluator, ValueObserver):
    """MXNet's CPU context, with its fusions if ``fuse`` is true.

    The number of threads is set before MXNet is imported.
    """

    loaders = 1  # its engine accepts calls from one thread only

    def __init__(self, *, seed: int, fuse: bool) -> None:
        logging.getLogger().setLevel(logging.ERROR)
        mx.random.seed(seed)
        self._pool = Pool(seed)
        self._region = Region()
        self._fuse = fuse

    def sign_sensitive(self, operator: str) -> bool:
        """True for all operators: Clip is sensitive and implements many convolutional layers."""
        return True

    def executed(self, proto: onnx.ModelProto) -> ExecutedGraph:
        """The source graph, with the groups of nodes that MXNet fuses."""
        graph = _graph(proto)
        translation = translate(graph, _bounds(graph, without_values(proto)))
        source = onnx.ModelProto()
        source.CopyFrom(proto)
        del source.graph.node[:]  # unused outputs are omitted
        source.graph.node.extend(graph.nodes)
        alone = [(i,) for i in range(len(graph.nodes))]
        together = groups(graph, translation.fused()) if self._fuse else alone
        return ExecutedGraph(source, graph.types, {}, groups=together)

    def types(self, proto: onnx.ModelProto) -> tuple[Mapping[str, ValueType], Sequence[str]]:
        """The types that ``onnx.shape_inference`` infers: MXNet runs no graph with open shapes."""
        return _graph(proto).types, ()

    def values(self, proto: onnx.ModelProto, names: Sequence[str]) -> dict[str, list[float]]:
        """The contents of small values in one run on synthetic data."""
        found = self._observed(proto, names, "observed")
        return {name: found[name].ravel().tolist() for name in names}

    def branching_on(self, operator: str) -> Collection[str]:
        """Signs and sizes, for functions of the C library."""
        return (SIGNS, SIZE) if operator in _BRANCHING else ()

    def observe(
        self, proto: onnx.ModelProto, names: Sequence[str], *, key: str
    ) -> dict[str, np.ndarray]:
        """These tensors in one run on synthetic data."""
        return self._observed(proto, names, key)

    def load(
        self, proto: onnx.ModelProto, *, key: str, optimize: bool, streams: Sequence[int] = ()
    ) -> LoadedGraph:
        """A graph with synthetic weights and inputs; ``streams`` are not supported."""
        graph = _graph(proto)
        weights, inputs = self._synthesised(proto, graph, key)
        return self._loaded(graph, {**weights, **_bounds(graph, without_values(proto))}, inputs)

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
        return self._run(_graph(proto), own, feeds)

    def materialised(
        self, proto: onnx.ModelProto, weights: Mapping[str, np.ndarray]
    ) -> tuple[ExecutedGraph, Mapping[str, np.ndarray]]:
        """The source graph with the model's own weights: fusions change neither."""
        return self.executed(proto), weights

    def _observed(
        self, proto: onnx.ModelProto, names: Sequence[str], key: str
    ) -> dict[str, np.ndarray]:
        """Those of these values that the graph is given or makes, in one run on synthetic data."""
        part = upstream(proto, names)
        whole = _graph(proto)
        graph = graph_of(part, whole.types)
        weights, inputs = self._synthesised(part, graph, key, whole)
        weights |= _bounds(graph, without_values(part))
        given = {name: make() for name, (make, _) in inputs.items()}
        found = {name: given[name] for name in names if name in given}
        if part.graph.node:
            results = self._run(graph, weights, given)
            found |= dict(zip(graph.outputs, results, strict=True))
        return found

    def _run(
        self,
        graph: Graph,
        weights: Mapping[str, np.ndarray],
        given: Mapping[str, Any],
    ) -> list[np.ndarray]:
        inputs = {name: (given[name].copy, _tensor(graph, name)) for name in graph.inputs}
        loaded = self._loaded(graph, weights, inputs)
        nowhere = Binding((None,) * len(graph.inputs), (None,) * len(graph.outputs))
        bound = loaded.bind(nowhere, np.zeros(0, np.uint8))
        bound.sample()
        shapes = [_tensor(graph, name).shape for name in graph.outputs]
        return [a.reshape(shape) for a, shape in zip(bound.results(), shapes, strict=True)]

    def _loaded(
        self,
        graph: Graph,
        weights: Mapping[str, np.ndarray],
        inputs: Mapping[str, Any],
    ) -> LoadedGraph:
        outputs = [_tensor(graph, name) for name in graph.outputs]
        translation = translate(graph, weights)
        symbol = translation.fused() if self._fuse else translation.symbol
        return LoadedGraph(symbol, translation, weights, inputs, outputs, self._region)

    def _synthesised(
        self, proto: onnx.ModelProto, graph: Graph, key: str, whole: Graph | None = None
    ) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Weights, and makers of inputs, by name; ``whole`` is the graph that it is a part of."""
        weights, makers = synthetic_data(self._pool, proto, graph, key, whole=whole)
        for name in _shifts(graph).intersection(weights):
            weights[name] -= weights[name].dtype.type(0.5)
        return weights, {name: (make, _tensor(graph, name)) for name, make in makers.items()}


def _graph(proto: onnx.ModelProto) -> Graph:
    """The graph of ``proto`` with all types, inferred as for the source graph of a model."""
    try:
        return typed_graph(proto)
    except OpenShapes as exc:
        reason = str(exc).removeprefix("graph: ")
        raise BackendError(
            f"MXNet wants all shapes ahead, but {reason}; choose --runtime onnxruntime"
        ) from exc


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


def _bounds(graph: Graph, weights: Mapping[str, TensorType]) -> dict[str, np.ndarray]:
    """Values for the bounds of Clip among ``weights`` that make it a ReLU6.

    Values of weights are not part of a brick, but MXNet fuses Clip only if its lower bound is zero.
    If MXNet does not fuse it, the latency does not depend on the bounds.
    """
    bounds = {}
    for node in graph.nodes:
        if node.op_type == "Clip":
            for name, bound in zip(node.input[1:], (0, 6), strict=False):
                if name in weights:
                    type_ = weights[name]
                    bounds[name] = np.full(type_.shape, bound, numpy_dtype(type_.dtype))
    return bounds


def _tensor(graph: Graph, name: str) -> TensorType:
    type_ = graph.types.get(name)
    if not isinstance(type_, TensorType):
        raise BackendError(f"MXNet knows tensors alone: '{name}' is none; choose another --runtime")
    return type_
