"""The source graph in the precision in which OpenVINO computes: all numbers in float32.

Where a model has half or double precision, OpenVINO converts its inputs, computes in float32, and
converts its results. Bricks between must have float32 values too, or each would convert its own.

Must not know kernels or groups.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import onnx
from onnx import helper, numpy_helper

from bricks.graph.containers import ValueType
from bricks.graph.graph import Graph
from bricks.graph.payload import is_referenced, value_dtype
from bricks.graph.tensor import TensorType

_CONVERTED = frozenset(("FLOAT16", "BFLOAT16", "DOUBLE"))
_NUMBERS = {getattr(onnx.TensorProto, name) for name in _CONVERTED}
# Attributes that name an element type.
_TYPES = frozenset(("to", "dtype"))


def in_float32(graph: Graph) -> Graph:
    """``graph`` with all other floating-point values in float32, but for its inputs and outputs.

    These keep their types; a Cast behind an input, and before an output, converts them.
    """
    names = {name for name, type_ in graph.types.items() if _converted(type_)}
    if not names:
        return graph
    types = {n: _float32(t) if n in names else t for n, t in graph.types.items()}
    ends = names.intersection((*graph.inputs, *graph.outputs))
    own = {name: f"{name}:float32" for name in ends}
    types |= {own[name]: types[name] for name in ends}
    types |= {name: graph.types[name] for name in ends}
    before = [_cast(n, own[n], onnx.TensorProto.FLOAT) for n in graph.inputs if n in ends]
    after = [
        _cast(own[n], n, onnx.TensorProto.DataType.Value(graph.types[n].dtype))
        for n in graph.outputs
        if n in ends and n not in graph.inputs
    ]
    return replace(
        graph,
        nodes=(*before, *(_node(node, own) for node in graph.nodes), *after),
        initializers={name: _tensor(tensor) for name, tensor in graph.initializers.items()},
        types=types,
    )


def as_float32(weights: Mapping[str, np.ndarray], graph: Graph) -> dict[str, np.ndarray]:
    """``weights`` of a model whose graph this was, as those of :func:`in_float32` of it."""
    found = {}
    for name, values in weights.items():
        type_ = graph.types[name]
        wide = _converted(type_)
        found[name] = (
            values.view(value_dtype(type_.dtype)).astype(np.float32)
            if wide and isinstance(type_, TensorType)
            else values
        )
    return found


def _converted(type_: ValueType) -> bool:
    return isinstance(type_, TensorType) and type_.dtype in _CONVERTED


def _float32(type_: ValueType) -> TensorType:
    return TensorType("FLOAT", type_.shape)


def _cast(source: str, target: str, to: int) -> onnx.NodeProto:
    return helper.make_node("Cast", [source], [target], to=to)


def _node(node: onnx.NodeProto, own: Mapping[str, str]) -> onnx.NodeProto:
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    _rename(copy.input, own)
    _rename(copy.output, own)
    for attribute in copy.attribute:
        if attribute.name in _TYPES and attribute.i in _NUMBERS:
            attribute.i = onnx.TensorProto.FLOAT
        if attribute.type == onnx.AttributeProto.TENSOR:
            attribute.t.CopyFrom(_tensor(attribute.t))
    return copy


def _rename(names: Sequence[str], own: Mapping[str, str]) -> None:
    names[:] = [own.get(name, name) for name in names]  # type: ignore[index]  # of a protobuf


def _tensor(tensor: onnx.TensorProto) -> onnx.TensorProto:
    """A tensor in float32, where it is converted."""
    if tensor.data_type not in _NUMBERS:
        return tensor
    if is_referenced(tensor):
        copy = onnx.TensorProto()
        copy.CopyFrom(tensor)
        copy.data_type = onnx.TensorProto.FLOAT
        return copy
    return numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float32), tensor.name)
