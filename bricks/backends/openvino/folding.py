"""The source graph as OpenVINO keeps it: without nodes whose results are constants.

With static shapes, OpenVINO folds all that follows from shapes and constants alone. Here the same
nodes leave the graph, and what they make becomes an initializer. Values that are known are kept,
others are weights like any. And single floating-point numbers become nodes of their own, because
OpenVINO looks for patterns with certain numbers (a GELU, say), so that they are part of a brick.

Must not know kernels or groups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from bricks.errors import BackendError
from bricks.graph.containers import ValueType
from bricks.graph.declared import declared
from bricks.graph.graph import Graph
from bricks.graph.payload import is_referenced
from bricks.graph.steering import SMALL, steered_values, steering_inputs, value_counts
from bricks.graph.tensor import TensorType
from bricks.graph.topology import captured, default_domain, subgraphs, used_values

# They tell sizes of values, whatever is in these.
_OF_SHAPES = frozenset(("Shape", "Size"))
# OpenVINO keeps the first two beside the weights that they scale; the others are never constant.
_KEPT = frozenset(
    (
        *("DequantizeLinear", "QuantizeLinear", "Bernoulli", "Multinomial"),
        *("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"),
    )
)
_FOLDED = "folded"

_NORMALIZATION = "BatchNormalization"
_QUANTIZING, _ZERO_POINT = ("QuantizeLinear", "DequantizeLinear"), 2

# Computes the results of a model that has no inputs but these.
Compute = Callable[[onnx.ModelProto, Mapping[str, np.ndarray]], Sequence[np.ndarray]]


def folded(
    graph: Graph, compute: Compute, weights: Mapping[str, np.ndarray] | None = None
) -> tuple[Graph, dict[str, np.ndarray], dict[str, np.ndarray]]:
    """``graph`` without constant nodes, and the values of all its initializers that are known.

    With ``weights``, these are all of them. The last result are those that were computed and do not
    depend on weights. ``compute`` is used where the onnx package's evaluator fails.
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
    told = {}
    for name in sorted(made & needed):
        type_ = _tensor(graph, name)
        if name in values and not _from_weights(graph, name, gone):
            told[name] = np.asarray(values[name])
        initializers[name] = (
            numpy_helper.from_array(told[name], name)
            if name in told and type_.elements <= SMALL
            else _weight(name, type_)
        )
    types = {n: t for n, t in graph.types.items() if n not in made or n in initializers}
    found = replace(graph, nodes=tuple(nodes), initializers=initializers, types=types)
    return found, {name: values[name] for name in initializers if name in values}, told


def with_numbers(graph: Graph, uniform: Mapping[str, np.ndarray]) -> Graph:
    """``graph`` with a node for each use of a single number that is known, but does not count.

    So it is with zero points: whether OpenVINO computes in integers depends on them. And with the
    values in ``uniform``, whose elements are equal: OpenVINO drops a mask of zeros that is added.
    """
    inner = {name for node in graph.nodes for name in captured(node)}.union(graph.outputs)
    inputs = [each for node in graph.nodes for each in steering_inputs(node)]
    steering = set(steered_values(inputs, graph.types))
    zero_points = {
        name
        for node in graph.nodes
        if node.op_type in _QUANTIZING
        for name in node.input[_ZERO_POINT:]
    }
    numbers = {
        name: tensor
        for name, tensor in graph.initializers.items()
        if name not in inner and not is_referenced(tensor)
        if name in zero_points or _is_number(graph, name, steering)
    }
    filled = {name: values for name, values in uniform.items() if name not in inner}
    shapes = {f"{name}:shape": np.array(values.shape) for name, values in filled.items()}
    nodes: list[onnx.NodeProto] = []
    types = dict(graph.types)
    for position, node in enumerate(graph.nodes):
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        for port, name in enumerate(node.input):
            if name in numbers:
                own = f"{name}:{position}:{port}"
                types[own] = graph.types[name]
                nodes.append(helper.make_node("Constant", [], [own], value=numbers[name]))
                copy.input[port] = own
            elif name in filled:
                own = f"{name}:{position}:{port}"
                types[own] = graph.types[name]
                value = numpy_helper.from_array(filled[name].reshape(-1)[:1])
                nodes.append(
                    helper.make_node("ConstantOfShape", [f"{name}:shape"], [own], value=value)
                )
                copy.input[port] = own
        nodes.append(copy)
    gone = numbers.keys() | filled.keys()
    left = {n: t for n, t in graph.initializers.items() if n not in gone}
    for name, shape in shapes.items():
        left[name] = numpy_helper.from_array(shape, name)
        types[name] = TensorType("INT64", shape.shape)
    return replace(graph, nodes=tuple(nodes), initializers=left, types=types)


def uniform(graph: Graph, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Those of ``values`` whose elements are equal, without those that count anyway.

    ``values`` are computed ones, which do not depend on weights. So are parameters of a
    normalisation that are known: OpenVINO drops one that changes nothing.
    """
    known = {
        name: numpy_helper.to_array(graph.initializers[name])
        for node in graph.nodes
        if node.op_type == _NORMALIZATION
        for name in node.input[1:]
        if name in graph.initializers and not is_referenced(graph.initializers[name])
    }
    return _filled(graph, known | dict(values))


def as_compiled(graph: Graph, nodes: Sequence[onnx.NodeProto]) -> Graph | None:
    """``graph`` with more of what OpenVINO sees in it around ``nodes``; None if there is none.

    It drops a scale of ones and an addition of zeros, so weights that are known and uniform are
    numbers. And an output that nobody reads is none.
    """
    names = {name for node in nodes for name in used_values(node)}
    held = {name: graph.initializers[name] for name in names if name in graph.initializers}
    known = {n: numpy_helper.to_array(t) for n, t in held.items() if not is_referenced(t)}
    read = {name for node in graph.nodes for name in used_values(node)}.union(graph.outputs)
    unread = {name for node in nodes for name in node.output if name} - read
    weights = _filled(graph, known)
    if not weights and not unread:
        return None
    return _without_outputs(with_numbers(graph, weights), unread)


def _without_outputs(graph: Graph, unread: set[str]) -> Graph:
    """``graph`` without the outputs ``unread``, except where they are all of a node's."""
    nodes = []
    for node in graph.nodes:
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        if not unread.issuperset(filter(None, node.output)):
            copy.output[:] = ["" if name in unread else name for name in node.output]
        nodes.append(copy)
    return replace(graph, nodes=tuple(nodes))


def _filled(graph: Graph, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Those of ``values`` that do not count, and whose elements are equal."""
    found = {}
    for name, array in values.items():
        type_ = graph.types.get(name)
        if (
            isinstance(type_, TensorType)
            and array.dtype.kind in "fb"
            and array.size > 1
            and not value_counts(type_, steering=False)
            and (array == array.flat[0]).all()
        ):
            found[name] = array
    return found


def proto_of(graph: Graph, like: onnx.ModelProto) -> onnx.ModelProto:
    """``graph`` as a model with the inputs, outputs and metadata of ``like``."""
    model = onnx.ModelProto()
    model.CopyFrom(like)
    del model.graph.node[:], model.graph.initializer[:], model.graph.value_info[:]
    model.graph.node.extend(graph.nodes)
    model.graph.initializer.extend(graph.initializers.values())
    return model


def _is_number(graph: Graph, name: str, steering: set[str]) -> bool:
    type_ = graph.types[name]
    return (
        isinstance(type_, TensorType)
        and type_.floating
        and type_.elements == 1
        and not value_counts(type_, steering=name in steering)
    )


def _constant_nodes(graph: Graph, without: set[int]) -> Iterator[int]:
    """The positions of nodes whose results follow from shapes and initializers."""
    constant = set(graph.initializers)
    for position, node in enumerate(graph.nodes):
        if (
            position in without
            or default_domain(node.domain)
            or node.op_type in _KEPT
            or subgraphs(node)
        ):
            continue
        known = node.op_type in _OF_SHAPES or all(name in constant for name in used_values(node))
        if known and all(isinstance(graph.types.get(n), TensorType) for n in node.output if n):
            constant.update(name for name in node.output if name)
            yield position


def _from_weights(graph: Graph, name: str, gone: set[int]) -> bool:
    """Whether the floating-point value of a constant node depends on weights without values."""
    makers = {made: i for i in gone for made in graph.nodes[i].output if made}
    waiting, seen = [name], {name}
    while waiting:
        each = waiting.pop()
        if each in makers:
            node = graph.nodes[makers[each]]
            more = [] if node.op_type in _OF_SHAPES else used_values(node)
            waiting += [n for n in more if n not in seen]
            seen.update(more)
        elif each in graph.initializers and is_referenced(graph.initializers[each]):
            return True
    return False


def _evaluated(
    graph: Graph, values: Mapping[str, np.ndarray], compute: Compute
) -> tuple[set[int], dict[str, np.ndarray]]:
    """The positions of constant nodes, and all ``values`` with those that these tell.

    Nodes that nobody can compute count as any other.
    """
    hard: set[int] = set()
    while True:
        gone, found = list(_constant_nodes(graph, hard)), dict(values)
        for position in gone:
            node = graph.nodes[position]
            names = used_values(node)
            if node.op_type in _OF_SHAPES:
                found[node.output[0]] = _size(graph, node)
            elif all(name in found for name in names):
                try:
                    found.update(_run(graph, node, {name: found[name] for name in names}, compute))
                except Exception:  # of no documented class
                    hard.add(position)
                    break
        else:
            return set(gone), found


def _run(
    graph: Graph, node: onnx.NodeProto, given: Mapping[str, np.ndarray], compute: Compute
) -> dict[str, np.ndarray]:
    outputs = [name for name in node.output if name]
    model = helper.make_model(
        helper.make_graph(
            [node],
            "constant",
            [_info(graph, name) for name in given],
            [helper.make_empty_tensor_value_info(name) for name in outputs],
        ),
        opset_imports=[helper.make_opsetid(d, v) for d, v in graph.opsets.items()],
        ir_version=graph.ir_version,
    )
    results: Sequence[Any]
    try:
        results = list(ReferenceEvaluator(model).run(outputs, dict(given)))
    except Exception:  # of no documented class
        results = compute(model, given)
    return dict(zip(outputs, results, strict=True))


def _info(graph: Graph, name: str) -> onnx.ValueInfoProto:
    return onnx.ValueInfoProto(name=name, type=declared(graph.types[name]))


def _size(graph: Graph, node: onnx.NodeProto) -> np.ndarray:
    shape = _tensor(graph, node.input[0]).shape
    if node.op_type == "Size":
        return np.array(_tensor(graph, node.input[0]).elements, np.int64)
    limits = {a.name: a.i for a in node.attribute}
    return np.array(shape[limits.get("start", 0) : limits.get("end", len(shape))], np.int64)


def _tensor(graph: Graph, name: str) -> TensorType:
    type_: ValueType | None = graph.types.get(name)
    if not isinstance(type_, TensorType):
        raise BackendError(f"'{name}' is no tensor: choose --runtime onnxruntime")
    return type_


def _weight(name: str, type_: TensorType) -> onnx.TensorProto:
    tensor = onnx.TensorProto(name=name, dims=type_.shape)
    tensor.data_type = onnx.TensorProto.DataType.Value(type_.dtype)
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=_FOLDED)
    return tensor
