"""Protos seen as graphs: which initializers are weights, and a :class:`Graph` of known types.

Shared by whoever gets a ``ModelProto`` whose types are already known: from a runtime, or because
it is a brick. Does not infer anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

import onnx

from bricks.errors import ModelError
from bricks.graph.graph import Graph
from bricks.graph.payload import is_referenced, type_of
from bricks.graph.tensor import TensorType


def parse_model(data: bytes) -> onnx.ModelProto:
    """A ``ModelProto`` from its bytes; :class:`ModelError` if they are none."""
    try:
        return onnx.load_model_from_string(data)
    except Exception as exc:  # protobuf's own error classes differ between its implementations
        raise ModelError(f"not a serialised ONNX model ({len(data)} bytes)") from exc


def tensor_type(info: onnx.ValueInfoProto) -> TensorType:
    """The concrete type that ``info`` states; :class:`ModelError` where it is none."""
    if not info.type.HasField("tensor_type"):
        kind = info.type.WhichOneof("value") or "nothing"
        raise ModelError(f"value {info.name!r} is a {kind.removesuffix('_type')}, not a tensor")
    tensor = info.type.tensor_type
    dims = tensor.shape.dim
    if not tensor.HasField("shape") or any(not d.HasField("dim_value") for d in dims):
        raise ModelError(f"value {info.name!r} has no concrete shape")
    dtype = onnx.TensorProto.DataType.Name(tensor.elem_type)
    return TensorType(dtype, tuple(d.dim_value for d in dims))


def without_values(proto: onnx.ModelProto) -> dict[str, TensorType]:
    """Names and types of the graph's initializers whose values are not held: its weights."""
    return {t.name: type_of(t) for t in proto.graph.initializer if is_referenced(t)}


def without_output_shapes(proto: onnx.ModelProto) -> onnx.ModelProto:
    """A copy whose outputs state their element types alone."""
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    for output in copy.graph.output:
        if output.type.HasField("tensor_type"):
            output.type.tensor_type.ClearField("shape")
    return copy


def graph_of(proto: onnx.ModelProto, types: Mapping[str, TensorType] | None = None) -> Graph:
    """``proto`` as a :class:`Graph`, with ``types`` for values that it doesn't state itself.

    Inputs must have a concrete type; other values that state none are left out of ``types``.
    """
    graph = proto.graph
    known = {info.name: tensor_type(info) for info in graph.input}
    for info in (*graph.output, *graph.value_info):
        with suppress(ModelError):
            known[info.name] = tensor_type(info)
    known.update(types or {})
    for tensor in graph.initializer:
        known[tensor.name] = type_of(tensor)
    return Graph(
        nodes=tuple(graph.node),
        inputs=tuple(i.name for i in graph.input),
        outputs=tuple(o.name for o in graph.output),
        initializers={t.name: t for t in graph.initializer},
        types=known,
        opsets={o.domain: o.version for o in proto.opset_import},
        ir_version=proto.ir_version,
    )
