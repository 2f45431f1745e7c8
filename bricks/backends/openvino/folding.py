"""The source graph as OpenVINO keeps it: without nodes whose results are constants.

With static shapes, OpenVINO folds all nodes whose results follow from shapes and constants alone.
Here the same nodes leave the graph, and their results become initializers: with values where these
are known, else weights. And single floating-point constants become nodes of their own, because
OpenVINO looks for patterns with certain constants (a GELU, say), which makes them part of a brick.

Must not know kernels or groups.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from bricks.errors import BackendError
from bricks.graph.model import Graph
from bricks.graph.onnx_types import type_proto
from bricks.graph.payload import is_referenced
from bricks.graph.topology import captured, default_domain, label, subgraphs, used_values
from bricks.graph.types import TensorType
from bricks.operators.dependence import SMALL, steered_values, steering_inputs, value_counts

_logger = logging.getLogger(__name__)

# Arrays by the names of their values.
Arrays = Mapping[str, np.ndarray]

# Operators whose results depend on the shape of their input alone.
_OF_SHAPES = frozenset(("Shape", "Size"))
# OpenVINO keeps the first two next to the weights that they scale; the others are never constant.
_KEPT = frozenset(
    (
        *("DequantizeLinear", "QuantizeLinear", "Bernoulli", "Multinomial"),
        *("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"),
    )
)
_FOLDED = "folded"

_NORMALIZATION = "BatchNormalization"
_QUANTIZING, _ZERO_POINT = ("QuantizeLinear", "DequantizeLinear"), 2

# Computes the outputs of a model from its inputs.
Compute = Callable[[onnx.ModelProto, Arrays], Sequence[np.ndarray]]


def folded(
    graph: Graph, compute: Compute, weights: Arrays | None = None
) -> tuple[Graph, dict[str, np.ndarray], dict[str, np.ndarray]]:
    """``graph`` without constant nodes, and the values of all its initializers that are known.

    ``weights`` are values of all initializers without values, or None. The last result are computed
    values that do not depend on weights. ``compute`` is used where the onnx package's evaluator
    fails.
    """
    known = {
        name: numpy_helper.to_array(tensor)
        for name, tensor in graph.initializers.items()
        if not is_referenced(tensor)
    } | dict(weights or {})
    gone, values = _evaluated(graph, known, compute)
    nodes = [node for i, node in enumerate(graph.nodes) if i not in gone]
    made = {name for i in gone for name in graph.nodes[i].output if name}
    needed = {name for node in nodes for name in used_values(node)}.union(graph.outputs)
    initializers = {n: t for n, t in graph.initializers.items() if n in needed}
    computed = {}
    for name in sorted(made & needed):
        type_ = _tensor_type(graph, name)
        if name in values and not _from_weights(graph, name, gone):
            computed[name] = np.asarray(values[name])
        initializers[name] = (
            numpy_helper.from_array(computed[name], name)
            if name in computed and type_.elements <= SMALL
            else _weight(name, type_)
        )
    types = {n: t for n, t in graph.types.items() if n not in made or n in initializers}
    result = replace(graph, nodes=tuple(nodes), initializers=initializers, types=types)
    return result, {name: values[name] for name in initializers if name in values}, computed


def with_constant_nodes(graph: Graph, uniform: Arrays) -> Graph:
    """``graph`` with a node for each use of a single number that is known, but no steering value.

    Zero points become nodes too: whether OpenVINO computes in integers depends on them. And so do
    the values in ``uniform``, whose elements are equal: OpenVINO drops a mask of zeros in an Add.
    """
    kept = {name for node in graph.nodes for name in captured(node)}.union(graph.outputs)
    numbers = {name: tensor for name, tensor in _numbers(graph).items() if name not in kept}
    filled = {name: values for name, values in uniform.items() if name not in kept}
    nodes: list[onnx.NodeProto] = []
    types = dict(graph.types)
    for position, node in enumerate(graph.nodes):
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        for port, name in enumerate(node.input):
            if name in numbers or name in filled:
                own = f"{name}:{position}:{port}"
                types[own] = graph.types[name]
                copy.input[port] = own
                if name in numbers:
                    nodes.append(helper.make_node("Constant", [], [own], value=numbers[name]))
                else:
                    shapes = [_shape_name(name)]
                    value = numpy_helper.from_array(filled[name].reshape(-1)[:1])
                    nodes.append(helper.make_node("ConstantOfShape", shapes, [own], value=value))
        nodes.append(copy)
    gone = numbers.keys() | filled.keys()
    left = {n: t for n, t in graph.initializers.items() if n not in gone}
    for name, values in filled.items():
        shape = np.array(values.shape)
        left[_shape_name(name)] = numpy_helper.from_array(shape, _shape_name(name))
        types[_shape_name(name)] = TensorType("INT64", shape.shape)
    return replace(graph, nodes=tuple(nodes), initializers=left, types=types)


def uniform_values(graph: Graph, computed: Arrays) -> dict[str, np.ndarray]:
    """Values of equal elements among the ``computed``, which do not depend on weights.

    And among the known parameters of normalisations: OpenVINO drops one that changes nothing.
    """
    parameters = [
        name for node in graph.nodes if node.op_type == _NORMALIZATION for name in node.input[1:]
    ]
    return _uniform(graph, _known(graph, parameters) | dict(computed))


def simplified_around(graph: Graph, nodes: Sequence[onnx.NodeProto]) -> Graph | None:
    """``graph`` with more of OpenVINO's simplifications around ``nodes``; None if there are none.

    It drops a scale of ones and an addition of zeros, so weights that are known and uniform become
    nodes. And outputs without readers are omitted, except where they are all outputs of a node.
    """
    weights = _uniform(graph, _known(graph, {name for node in nodes for name in used_values(node)}))
    read = {name for node in graph.nodes for name in used_values(node)}.union(graph.outputs)
    unread = {name for node in nodes for name in node.output if name} - read
    if not weights and not unread:
        return None
    simplified = with_constant_nodes(graph, weights)
    copies = []
    for node in simplified.nodes:
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        if not unread.issuperset(filter(None, node.output)):
            copy.output[:] = ["" if name in unread else name for name in node.output]
        copies.append(copy)
    return replace(simplified, nodes=tuple(copies))


def proto_of(graph: Graph, like: onnx.ModelProto) -> onnx.ModelProto:
    """``graph`` as a model with the inputs, outputs and metadata of ``like``."""
    model = onnx.ModelProto()
    model.CopyFrom(like)
    del model.graph.node[:], model.graph.initializer[:], model.graph.value_info[:]
    model.graph.node.extend(graph.nodes)
    model.graph.initializer.extend(graph.initializers.values())
    return model


def _known(graph: Graph, names: Iterable[str]) -> dict[str, np.ndarray]:
    tensors = {name: graph.initializers[name] for name in names if name in graph.initializers}
    return {n: numpy_helper.to_array(t) for n, t in tensors.items() if not is_referenced(t)}


def _uniform(graph: Graph, values: Arrays) -> dict[str, np.ndarray]:
    """Floats and booleans among ``values`` whose elements are equal, and not part of a brick."""
    result = {}
    for name, array in values.items():
        type_ = graph.types.get(name)
        if (
            isinstance(type_, TensorType)
            and array.dtype.kind in "fb"
            and array.size > 1
            and not value_counts(type_, steering=False)
            and (array == array.flat[0]).all()
        ):
            result[name] = array
    return result


def _numbers(graph: Graph) -> dict[str, onnx.TensorProto]:
    """Known initializers that are zero points, or single floats which are no steering values."""
    inputs = [value for node in graph.nodes for value in steering_inputs(node)]
    steering = set(steered_values(inputs, graph.types))
    zero_points = {
        name
        for node in graph.nodes
        if node.op_type in _QUANTIZING
        for name in node.input[_ZERO_POINT:]
    }

    def is_number(name: str) -> bool:
        type_ = graph.types[name]
        single = isinstance(type_, TensorType) and type_.floating and type_.elements == 1
        return single and not value_counts(type_, steering=name in steering)

    return {
        name: tensor
        for name, tensor in graph.initializers.items()
        if not is_referenced(tensor) and (name in zero_points or is_number(name))
    }


def _shape_name(name: str) -> str:
    return f"{name}:shape"


def _is_constant(graph: Graph, node: onnx.NodeProto, constant: Collection[str]) -> bool:
    """Whether the results of ``node`` follow from shapes and values that are ``constant``."""
    if default_domain(node.domain) or node.op_type in _KEPT or subgraphs(node):
        return False
    known = node.op_type in _OF_SHAPES or all(name in constant for name in used_values(node))
    return known and all(isinstance(graph.types.get(n), TensorType) for n in node.output if n)


def _from_weights(graph: Graph, name: str, gone: set[int]) -> bool:
    """Whether a value that the nodes ``gone`` compute depends on weights without values."""
    makers = {made: i for i in gone for made in graph.nodes[i].output if made}
    waiting, seen = [name], {name}
    while waiting:
        value = waiting.pop()
        if value in makers:
            node = graph.nodes[makers[value]]
            more = [] if node.op_type in _OF_SHAPES else used_values(node)
            waiting += [n for n in more if n not in seen]
            seen.update(more)
        elif value in graph.initializers and is_referenced(graph.initializers[value]):
            return True
    return False


def _evaluated(
    graph: Graph, values: Arrays, compute: Compute
) -> tuple[set[int], dict[str, np.ndarray]]:
    """The positions of constant nodes, and ``values`` with their results where these are known.

    Nodes that can be evaluated in no way are not constant.
    """
    gone, known, constant = set[int](), dict(values), set(graph.initializers)
    for position, node in enumerate(graph.nodes):
        if not _is_constant(graph, node, constant):
            continue
        names = used_values(node)
        if node.op_type in _OF_SHAPES:
            type_ = _tensor_type(graph, node.input[0])
            limits = {a.name: a.i for a in node.attribute}
            begin, end = limits.get("start", 0), limits.get("end", len(type_.shape))
            size = type_.elements if node.op_type == "Size" else type_.shape[begin:end]
            known[node.output[0]] = np.array(size, np.int64)
        elif all(name in known for name in names):
            try:
                known.update(_run(graph, node, {name: known[name] for name in names}, compute))
            except Exception as error:  # of no documented class
                _logger.debug("%s is not folded: %s", label(node), error, exc_info=True)
                continue
        gone.add(position)
        constant.update(name for name in node.output if name)
    return gone, known


def _run(
    graph: Graph, node: onnx.NodeProto, feeds: Arrays, compute: Compute
) -> dict[str, np.ndarray]:
    outputs = [name for name in node.output if name]
    model = helper.make_model(
        helper.make_graph(
            [node],
            "constant",
            [onnx.ValueInfoProto(name=n, type=type_proto(graph.types[n])) for n in feeds],
            [helper.make_empty_tensor_value_info(name) for name in outputs],
        ),
        opset_imports=[helper.make_opsetid(d, v) for d, v in graph.opsets.items()],
        ir_version=graph.ir_version,
    )
    results: Sequence[Any]
    try:
        results = list(ReferenceEvaluator(model).run(outputs, dict(feeds)))
    except Exception:  # of no documented class
        results = compute(model, feeds)
    return dict(zip(outputs, results, strict=True))


def _tensor_type(graph: Graph, name: str) -> TensorType:
    type_ = graph.types.get(name)
    if not isinstance(type_, TensorType):
        raise BackendError(f"'{name}' is no tensor: choose --runtime onnxruntime")
    return type_


def _weight(name: str, type_: TensorType) -> onnx.TensorProto:
    tensor = onnx.TensorProto(name=name, dims=type_.shape)
    tensor.data_type = onnx.TensorProto.DataType.Value(type_.dtype)
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=_FOLDED)
    return tensor
