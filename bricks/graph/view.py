"""Views of a ``ModelProto`` of known types: its :class:`Graph`, its weights, and a part of it.

The types of a ``ModelProto`` are known if it comes from a runtime or is a brick. Must not infer
types.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import onnx

from bricks.errors import ModelError
from bricks.graph.graph import Graph
from bricks.graph.model_metadata import container_types, inner_types
from bricks.graph.payload import is_referenced, type_of
from bricks.graph.tensor import TensorType
from bricks.graph.topology import captured, used_values

if TYPE_CHECKING:
    from bricks.graph.containers import ValueType


def parse_model(data: bytes) -> onnx.ModelProto:
    """Parse a ``ModelProto``; :class:`ModelError` if the bytes are invalid."""
    try:
        return onnx.load_model_from_string(data)
    except Exception as exc:  # protobuf's own error classes differ between its implementations
        raise ModelError(f"not a serialised ONNX model ({len(data)} bytes)") from exc


def _tensor_type(info: onnx.ValueInfoProto) -> TensorType:
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
    """Return the types of the initializers without values (the weights), by name."""
    return {t.name: type_of(t) for t in proto.graph.initializer if is_referenced(t)}


def without_shapes(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy without the shapes that a runtime should infer itself.

    The shapes of a brick's outputs may come from one run of a model. A runtime infers the static
    shapes and allocates the others as it runs. A stated shape may also contradict a branch that the
    run did not execute.
    """
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    branched = {n for node in copy.graph.node if node.op_type == "If" for n in captured(node)}
    for value in (*copy.graph.output, *(i for i in copy.graph.input if i.name in branched)):
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.ClearField("shape")
    return copy


def upstream(proto: onnx.ModelProto, names: Sequence[str]) -> onnx.ModelProto:
    """Return the part of ``proto`` that computes the values ``names``, which are its outputs.

    Names that are inputs of ``proto`` are inputs of the result, but not outputs.
    """
    needed = set(names)
    nodes = []
    for node in reversed(proto.graph.node):
        if needed.intersection(node.output):
            nodes.append(node)
            needed.update(used_values(node))
    part = onnx.ModelProto()
    part.ir_version = proto.ir_version
    part.opset_import.extend(proto.opset_import)
    part.metadata_props.extend(proto.metadata_props)
    part.graph.name = proto.graph.name
    part.graph.node.extend(reversed(nodes))
    part.graph.input.extend(i for i in proto.graph.input if i.name in needed)
    part.graph.initializer.extend(t for t in proto.graph.initializer if t.name in needed)
    produced = {name for node in nodes for name in node.output}
    part.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names if name in produced)
    return part


def graph_of(proto: onnx.ModelProto, types: Mapping[str, ValueType] | None = None) -> Graph:
    """Return ``proto`` as a :class:`Graph`, with ``types`` for values whose type it omits.

    Inputs must have a concrete type. Types of containers and of values inside bricks are in the
    metadata (see :mod:`bricks.graph.model_metadata`). Other values without a type are omitted from
    the ``types`` of the result.
    """
    graph = proto.graph
    known = container_types(proto)
    known.update({info.name: _tensor_type(info) for info in graph.input if info.name not in known})
    for info in (*graph.output, *graph.value_info):
        with suppress(ModelError):
            known.setdefault(info.name, _tensor_type(info))
    known.update(types or {})
    for name, type_ in inner_types(proto).items():
        known.setdefault(name, type_)
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
