"""The source graph in the precision in which OpenVINO computes: all floats in float32.

Where a model has half or double precision, OpenVINO converts its inputs, computes in float32, and
converts its results. Bricks between must have float32 values too, or each would convert its own.

Must not know kernels or groups.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import helper, numpy_helper

from bricks.graph.payload import is_referenced, value_dtype
from bricks.graph.tensor import TensorType
from bricks.graph.topology import renamed

if TYPE_CHECKING:
    from bricks.graph.containers import ValueType
    from bricks.graph.graph import Graph

_CONVERTED = frozenset(("FLOAT16", "BFLOAT16", "DOUBLE"))
_NUMBERS = {getattr(onnx.TensorProto, name) for name in _CONVERTED}
# Attributes that name an element type.
_TYPE_ATTRIBUTES = frozenset(("to", "dtype"))


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
    """A copy of ``node`` with these other names, whose attributes say float32."""
    copy = renamed(node, names)
    for attribute in copy.attribute:
        if attribute.name in _TYPE_ATTRIBUTES and attribute.i in _NUMBERS:
            attribute.i = onnx.TensorProto.FLOAT
        if attribute.type == onnx.AttributeProto.TENSOR:
            attribute.t.CopyFrom(_tensor(attribute.t))
    return copy


def _tensor(tensor: onnx.TensorProto) -> onnx.TensorProto:
    """``tensor`` in float32 if it is of a converted type."""
    if tensor.data_type not in _NUMBERS:
        return tensor
    if is_referenced(tensor):
        copy = onnx.TensorProto()
        copy.CopyFrom(tensor)
        copy.data_type = onnx.TensorProto.FLOAT
        return copy
    return numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float32), tensor.name)
