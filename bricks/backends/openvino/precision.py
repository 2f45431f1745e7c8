"""The precision in which OpenVINO computes: float32, bfloat16 or integers, in model and pieces.

Where a model has half or double precision, OpenVINO converts its inputs, computes in float32, and
converts its results. Bricks between must have float32 values too, or each would convert its own.

In a quantised ONNX file, integers become floats again before each operator. OpenVINO makes that
part of the operators that read them, which then compute in integers. So kernels pass integers on,
and each reader has a DequantizeLinear of its own here. Operators that take no integers are an
exception: for them, the kernel before makes floats of its integers.

In bfloat16, OpenVINO keeps values between kernels in it, though the source graph has them in
float32. A brick with float32 at its boundary would convert, and run other kernels. So such a value
is stored by a Cast here, and every kernel that reads it has a Cast back of its own. OpenVINO
executes neither in a brick: the kernels convert anyway.

Must not know kernels or groups.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import onnx
from onnx import helper, numpy_helper

from bricks.backends.openvino.execution import CompiledKernel
from bricks.graph.model import Graph
from bricks.graph.payload import is_referenced, value_dtype
from bricks.graph.topology import captured, producers, renamed
from bricks.graph.types import TensorType, ValueType
from bricks.graph.view import graph_of

_CONVERTED = frozenset(("FLOAT16", "BFLOAT16", "DOUBLE"))
_NUMBERS = {getattr(onnx.TensorProto, name) for name in _CONVERTED}
# Attributes that name an element type.
_TYPE_ATTRIBUTES = frozenset(("to", "dtype"))

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

# OpenVINO's name of the precision.
BFLOAT16 = "bf16"


def in_float32(graph: Graph) -> Graph:
    """``graph`` with all other floating-point values in float32, but for its inputs and outputs.

    These keep their types; a Cast behind an input, and before an output, converts them.
    """
    names = {name for name, type_ in graph.types.items() if _converted(type_)}
    if not names:
        return graph
    types = {n: TensorType("FLOAT", t.shape) if n in names else t for n, t in graph.types.items()}
    boundary = names.intersection((*graph.inputs, *graph.outputs))
    inner = {name: f"{name}:float32" for name in boundary}
    types |= {inner[name]: types[name] for name in boundary}
    types |= {name: graph.types[name] for name in boundary}
    before = [_cast(n, inner[n], onnx.TensorProto.FLOAT) for n in graph.inputs if n in boundary]
    after = [
        _cast(inner[n], n, onnx.TensorProto.DataType.Value(graph.types[n].dtype))
        for n in graph.outputs
        if n in boundary and n not in graph.inputs
    ]
    return replace(
        graph,
        nodes=(*before, *(_node(node, inner) for node in graph.nodes), *after),
        initializers={name: _tensor(tensor) for name, tensor in graph.initializers.items()},
        types=types,
    )


def as_float32(weights: Mapping[str, np.ndarray], graph: Graph) -> dict[str, np.ndarray]:
    """``weights`` of ``graph``, by name, as weights of :func:`in_float32` of it."""
    return {
        name: values.view(value_dtype(graph.types[name].dtype)).astype(np.float32)
        if _converted(graph.types[name])
        else values
        for name, values in weights.items()
    }


def _converted(type_: ValueType) -> bool:
    return isinstance(type_, TensorType) and type_.dtype in _CONVERTED


def _cast(source: str, target: str, to: int) -> onnx.NodeProto:
    return helper.make_node("Cast", [source], [target], to=to)


def _node(node: onnx.NodeProto, names: Mapping[str, str]) -> onnx.NodeProto:
    copy = renamed(node, names)
    for attribute in copy.attribute:
        if attribute.name in _TYPE_ATTRIBUTES and attribute.i in _NUMBERS:
            attribute.i = onnx.TensorProto.FLOAT
        if attribute.type == onnx.AttributeProto.TENSOR:
            attribute.t.CopyFrom(_tensor(attribute.t))
    return copy


def _tensor(tensor: onnx.TensorProto) -> onnx.TensorProto:
    if tensor.data_type not in _NUMBERS:
        return tensor
    if is_referenced(tensor):
        copy = onnx.TensorProto()
        copy.CopyFrom(tensor)
        copy.data_type = onnx.TensorProto.FLOAT
        return copy
    return numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float32), tensor.name)


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
    return renamed(node, {node.input[0]: integers, node.output[0]: made})


def with_bfloat16_casts(
    graph: Graph, kernels: Sequence[CompiledKernel]
) -> tuple[Graph, list[CompiledKernel]]:
    """``graph`` with Casts around the values that ``kernels`` pass on in bfloat16, and its kernels.

    A Cast belongs to the kernel that makes the value, or that reads it. Outputs of the graph,
    and values that subgraphs read, stay as they are.
    """
    kernels_at: dict[int, set[int]] = {}  # numbers of the kernels with a node, by its position
    for number, kernel in enumerate(kernels):
        for position in kernel.positions:
            kernels_at.setdefault(position, set()).add(number)
    stored = _stored(graph, kernels)
    types, nodes = dict(graph.types), list[onnx.NodeProto]()
    new_positions: dict[int, set[int]] = {}  # of a node and its Casts, by the old position
    makers = producers(graph.nodes)
    for position, node in enumerate(graph.nodes):
        begin = len(nodes)
        names = {}
        for name in dict.fromkeys(node.input):
            inside = kernels_at.get(makers.get(name, -1), set())
            if name in stored and inside.isdisjoint(kernels_at.get(position, ())):
                names[name] = f"{name}:{position}"
                types[names[name]] = types[name]
                nodes.append(_cast(_stored_name(name), names[name], _FLOAT))
        nodes.append(renamed(node, names))
        for name in node.output:
            if name in stored:
                types[_stored_name(name)] = TensorType("BFLOAT16", types[name].shape)
                nodes.append(_cast(name, _stored_name(name), onnx.TensorProto.BFLOAT16))
        new_positions[position] = set(range(begin, len(nodes)))
    moved = [
        replace(kernel, positions=frozenset(n for i in kernel.positions for n in new_positions[i]))
        for kernel in kernels
    ]
    return replace(graph, nodes=tuple(nodes), types=types), moved


def is_storing_cast(node: onnx.NodeProto) -> bool:
    """Whether ``node`` is a Cast to bfloat16 that :func:`with_bfloat16_casts` has added."""
    return node.op_type == "Cast" and node.output[0] == _stored_name(node.input[0])


def _stored(graph: Graph, kernels: Sequence[CompiledKernel]) -> set[str]:
    """Values whose kernel makes them in bfloat16, and that nodes outside of it read.

    Outputs of a removed node have the type of its input.
    """
    kept = {name for node in graph.nodes for name in captured(node)}.union(graph.outputs)
    last = {i: kernel for kernel in kernels if not kernel.constant for i in kernel.positions}
    readers: dict[str, set[int]] = {}
    for position, node in enumerate(graph.nodes):
        for name in node.input:
            readers.setdefault(name, set()).add(position)
    stored: set[str] = set()
    for position, node in enumerate(graph.nodes):
        kernel = last.get(position)
        inside = kernel.positions if kernel else frozenset()
        for output, name in enumerate(node.output):
            type_ = graph.types.get(name)
            if not isinstance(type_, TensorType) or type_.dtype != "FLOAT" or name in kept:
                continue
            if kernel:
                precisions = kernel.output_precisions
                in_bfloat16 = precisions[output if output < len(precisions) else 0] == BFLOAT16
            else:
                in_bfloat16 = not stored.isdisjoint(node.input)
            if in_bfloat16 and not readers.get(name, set()) <= inside:
                stored.add(name)
    return stored


def _stored_name(name: str) -> str:
    return f"{name}:stored"
