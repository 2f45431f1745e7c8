"""Quantised models in pieces, so that each computes in integers as in its model.

In a quantised ONNX file, integers become floats again before each operator. OpenVINO makes that
part of the operators that read them, which then compute in integers. So kernels pass integers on,
and each reader has a DequantizeLinear of its own here. Operators that take no integers are an
exception: for them, the kernel before makes floats of its integers.

Must not know groups.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import onnx
from onnx import helper

from bricks.graph.tensor import TensorType
from bricks.graph.topology import captured, producers, renamed
from bricks.graph.view import graph_of

if TYPE_CHECKING:
    from bricks.backends.openvino.execution import CompiledKernel
    from bricks.graph.graph import Graph

_DEQUANTIZING, _ZERO_POINT = "DequantizeLinear", 2
_FLOAT = onnx.TensorProto.FLOAT
# The lowest and highest integer of the types in which OpenVINO computes.
_RANGES = {onnx.TensorProto.UINT8: (0, 255), onnx.TensorProto.INT8: (-128, 127)}
# OpenVINO's name of float32.
_FLOAT32 = "f32"
# Operators that commute with dequantisation; MaxPool takes integers from this opset on.
_MOVING = frozenset(("Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze"))
_POOLING, _POOLS_INTEGERS = "MaxPool", 12
# The domain of OpenVINO's operators in ONNX files.
_OPENVINO = "org.openvinotoolkit"


def has_dequantised_activations(graph: Graph) -> bool:
    """Whether nodes of ``graph`` dequantise anything but weights."""
    return any(_dequantises_activation(graph, node) for node in graph.nodes)


def passed_as_floats(graph: Graph, kernels: Sequence[CompiledKernel]) -> set[str]:
    """The dequantised values that the ``kernels`` of ``graph`` pass on as floats."""
    kernel_of = {position: kernel for kernel in kernels for position in kernel.positions}
    makers = producers(graph.nodes)
    names = set()
    for position, node in enumerate(graph.nodes):
        if not _dequantises_activation(graph, node):
            continue
        maker, own = kernel_of.get(makers.get(node.input[0], -1)), kernel_of.get(position)
        if maker and (own is maker or (own is None and {*maker.output_precisions} == {_FLOAT32})):
            names.add(node.output[0])
    return names


def dequantised_by_readers(graph: Graph, as_floats: Collection[str]) -> Graph:
    """``graph`` with a DequantizeLinear of its own before each node that needs floats.

    Nodes that only move values move integers instead. The values ``as_floats`` stay as they are.
    """
    kept = {name for node in graph.nodes for name in captured(node)}.union(graph.outputs)
    pools = graph.opsets.get("", 1) >= _POOLS_INTEGERS
    moving = _MOVING | {_POOLING} if pools else _MOVING
    types, nodes = dict(graph.types), list[onnx.NodeProto]()
    # By name of a float: the integers in its place, and the node that dequantises them.
    quantised: dict[str, tuple[str, onnx.NodeProto]] = {}
    for position, node in enumerate(graph.nodes):
        data, made = (names[0] if names else "" for names in (node.input, node.output))
        if _dequantises_activation(graph, node) and made not in as_floats:
            quantised[made] = data, node
        elif (
            node.op_type in moving
            and data in quantised
            and _has_one_scale(graph, quantised[data][1])
        ):
            integers, dequantizing = quantised[data]
            moved = f"{made}:integers"
            quantised[made] = moved, dequantizing
            types[moved] = TensorType(types[integers].dtype, types[made].shape)
            nodes.append(renamed(node, {data: integers, made: moved}))
        else:
            own = {name: f"{name}:{position}" for name in node.input if name in quantised}
            nodes += [_dequantize(*quantised[name], own[name]) for name in own]
            types |= {own[name]: types[name] for name in own}
            nodes.append(renamed(node, own))
        if made in kept and made in quantised:
            nodes.append(_dequantize(*quantised[made], made))
    made_here = {name for node in nodes for name in node.output}
    known = made_here.union(graph.inputs, graph.initializers)
    return replace(
        graph, nodes=tuple(nodes), types={n: type_ for n, type_ in types.items() if n in known}
    )


def with_fake_quantised_inputs(proto: onnx.ModelProto) -> onnx.ModelProto:
    """A brick that dequantises its inputs of integers with OpenVINO's FakeQuantize.

    OpenVINO computes in integers behind a FakeQuantize, and not behind inputs. A FakeQuantize that
    changes nothing is no kernel.
    """
    integers = {
        value.name: _RANGES[value.type.tensor_type.elem_type]
        for value in proto.graph.input
        if value.type.tensor_type.elem_type in _RANGES
    }
    if not integers:
        return proto
    graph = graph_of(proto)
    faked = {
        node.output[0]
        for node in graph.nodes
        if node.op_type == _DEQUANTIZING and node.input[0] in integers
        if _has_one_scale(graph, node)
    }
    if not faked:
        return proto
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    del copy.graph.node[:]
    for node in proto.graph.node:
        if faked.intersection(node.output):
            copy.graph.node.extend(_fake_quantize(node, integers[node.input[0]]))
        else:
            copy.graph.node.append(node)
    copy.opset_import.append(helper.make_opsetid(_OPENVINO, 1))
    return copy


def _fake_quantize(node: onnx.NodeProto, limits: tuple[int, int]) -> Iterator[onnx.NodeProto]:
    """Nodes that compute the same as a DequantizeLinear of integers between ``limits``."""
    target, scale = node.output[0], node.input[1]
    number = f"{target}:number"
    yield helper.make_node("Cast", [node.input[0]], [number], to=_FLOAT)
    zero = ""
    if any(node.input[_ZERO_POINT:]):
        zero = f"{target}:zero"
        yield helper.make_node("Cast", [node.input[_ZERO_POINT]], [zero], to=_FLOAT)
    bounds = []
    for limit in limits:
        name = f"{target}:{limit}"
        value = helper.make_tensor(name, _FLOAT, [], [limit])
        yield helper.make_node("Constant", [], [name], value=value)
        bounds.append(name)
        if zero:
            yield helper.make_node("Sub", [name, zero], [f"{name}:from_zero"])
            name = f"{name}:from_zero"
        yield helper.make_node("Mul", [name, scale], [f"{name}:scaled"])
        bounds.append(f"{name}:scaled")
    low, real_low, high, real_high = bounds
    yield helper.make_node(
        "FakeQuantize",
        [number, low, high, real_low, real_high],
        [target],
        domain=_OPENVINO,
        levels=limits[1] - limits[0] + 1,
    )


def _dequantises_activation(graph: Graph, node: onnx.NodeProto) -> bool:
    return node.op_type == _DEQUANTIZING and node.input[0] not in graph.initializers


def _has_one_scale(graph: Graph, node: onnx.NodeProto) -> bool:
    type_ = graph.types[node.input[1]]
    return isinstance(type_, TensorType) and type_.elements == 1


def _dequantize(integers: str, node: onnx.NodeProto, made: str) -> onnx.NodeProto:
    """A copy of the DequantizeLinear ``node`` which makes ``made`` from ``integers``."""
    return renamed(node, {node.input[0]: integers, node.output[0]: made})
