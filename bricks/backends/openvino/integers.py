"""Quantised models in pieces, so that each computes in integers as in its model.

In a quantised ONNX file, integers become numbers again before each operator. OpenVINO makes that
part of the operators that read them, which then compute in integers. So what passes between kernels
are the integers, and each reader has a DequantizeLinear of its own here. Operators that take no
integers are an exception: for them, numbers are made where the integers would be.

Must not know groups.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

import onnx
from onnx import helper

from bricks.backends.openvino.execution import Kernel
from bricks.graph.graph import Graph
from bricks.graph.tensor import TensorType
from bricks.graph.topology import captured
from bricks.graph.view import graph_of

_DEQUANTIZING, _ZERO_POINT = "DequantizeLinear", 2
_FLOAT = onnx.TensorProto.FLOAT
# The integers in which OpenVINO computes, from and to.
_RANGES = {onnx.TensorProto.UINT8: (0, 255), onnx.TensorProto.INT8: (-128, 127)}
# How OpenVINO calls float32.
_FLOAT32 = "f32"
# What gives the same whether values become numbers before or afterwards; MaxPool takes integers
# from this version of ONNX's operators on.
_MOVING = frozenset(("Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze"))
_POOLING, _POOLS_INTEGERS = "MaxPool", 12
# The domain of OpenVINO's operators in ONNX files.
_OPENVINO = "org.openvinotoolkit"


def dequantises(graph: Graph) -> bool:
    """Whether there are integers between nodes that become numbers again."""
    return any(_makes_numbers(graph, node) for node in graph.nodes)


def passed_as_numbers(graph: Graph, kernels: Sequence[Kernel]) -> set[str]:
    """The dequantised values that the ``kernels`` of ``graph`` pass on as numbers."""
    of = {position: kernel for kernel in kernels for position in kernel.positions}
    makers = {name: i for i, node in enumerate(graph.nodes) for name in node.output}
    found = set()
    for position, node in enumerate(graph.nodes):
        if not _makes_numbers(graph, node):
            continue
        maker, own = of.get(makers.get(node.input[0], -1)), of.get(position)
        if maker and (own is maker or (own is None and set(maker.stored) == {_FLOAT32})):
            found.add(node.output[0])
    return found


def dequantised_by_reader(graph: Graph, as_numbers: Collection[str]) -> Graph:
    """``graph`` with a DequantizeLinear of its own before each node that needs numbers.

    Nodes that only move values move integers instead. The values ``as_numbers`` stay as they are.
    """
    ends = {name for node in graph.nodes for name in captured(node)}.union(graph.outputs)
    pools = graph.opsets.get("", 1) >= _POOLS_INTEGERS
    moving = _MOVING | {_POOLING} if pools else _MOVING
    types, nodes = dict(graph.types), list[onnx.NodeProto]()
    held: dict[str, tuple[str, onnx.NodeProto]] = {}  # integers, and what makes numbers of them
    for position, node in enumerate(graph.nodes):
        data, made = (names[0] if names else "" for names in (node.input, node.output))
        if _makes_numbers(graph, node) and made not in as_numbers:
            held[made] = data, node
        elif node.op_type in moving and data in held and _has_one_scale(graph, held[data][1]):
            integers, dequantizing = held[data]
            held[made] = f"{made}:integers", dequantizing
            types[held[made][0]] = TensorType(types[integers].dtype, types[made].shape)
            nodes.append(_renamed(node, {data: integers, made: held[made][0]}))
        else:
            own = {name: f"{name}:{position}" for name in node.input if name in held}
            nodes += [_numbers(*held[name], own[name]) for name in own]
            types |= {own[name]: types[name] for name in own}
            nodes.append(_renamed(node, own))
        nodes += [_numbers(*held[name], name) for name in ends.intersection([made]) if name in held]
    there = {name for node in nodes for name in node.output}.union(graph.inputs, graph.initializers)
    return replace(
        graph, nodes=tuple(nodes), types={n: type_ for n, type_ in types.items() if n in there}
    )


def quantised_inputs(proto: onnx.ModelProto) -> onnx.ModelProto:
    """A brick that dequantises its inputs of integers with OpenVINO's FakeQuantize.

    OpenVINO computes in integers what comes from a FakeQuantize, and not what comes from inputs.
    One that changes nothing is no kernel.
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
    found = onnx.ModelProto()
    found.CopyFrom(proto)
    del found.graph.node[:]
    for node in proto.graph.node:
        if faked.intersection(node.output):
            found.graph.node.extend(_faked(node, integers[node.input[0]]))
        else:
            found.graph.node.append(node)
    found.opset_import.append(helper.make_opsetid(_OPENVINO, 1))
    return found


def _faked(node: onnx.NodeProto, integers: tuple[int, int]) -> Iterator[onnx.NodeProto]:
    """Nodes that make what a DequantizeLinear of such ``integers``, from and to, makes."""
    target, scale = node.output[0], node.input[1]
    number = f"{target}:number"
    yield helper.make_node("Cast", [node.input[0]], [number], to=_FLOAT)
    zero = ""
    if any(node.input[_ZERO_POINT:]):
        zero = f"{target}:zero"
        yield helper.make_node("Cast", [node.input[_ZERO_POINT]], [zero], to=_FLOAT)
    ends = []
    for integer in integers:
        end = f"{target}:{integer}"
        value = helper.make_tensor(end, _FLOAT, [], [integer])
        yield helper.make_node("Constant", [], [end], value=value)
        ends.append(end)
        if zero:
            yield helper.make_node("Sub", [end, zero], [f"{end}:from_zero"])
            end = f"{end}:from_zero"
        yield helper.make_node("Mul", [end, scale], [f"{end}:scaled"])
        ends.append(f"{end}:scaled")
    low, real_low, high, real_high = ends
    yield helper.make_node(
        "FakeQuantize",
        [number, low, high, real_low, real_high],
        [target],
        domain=_OPENVINO,
        levels=integers[1] - integers[0] + 1,
    )


def _makes_numbers(graph: Graph, node: onnx.NodeProto) -> bool:
    """Whether it dequantises something that is not a weight."""
    return node.op_type == _DEQUANTIZING and node.input[0] not in graph.initializers


def _has_one_scale(graph: Graph, node: onnx.NodeProto) -> bool:
    type_ = graph.types[node.input[1]]
    return isinstance(type_, TensorType) and type_.elements == 1


def _numbers(integers: str, node: onnx.NodeProto, made: str) -> onnx.NodeProto:
    """A copy of a DequantizeLinear."""
    return _renamed(node, {node.input[0]: integers, node.output[0]: made})


def _renamed(node: onnx.NodeProto, names: Mapping[str, str]) -> onnx.NodeProto:
    """A copy of ``node`` with other inputs and outputs."""
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    for ends in (copy.input, copy.output):
        ends[:] = [names.get(name, name) for name in ends]
    return copy
