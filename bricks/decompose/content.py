"""Tensors and attributes of a brick in canonical form.

ONNX can encode the same tensor in several ways (raw or typed fields); this module picks one.
``identity``, which uses this module, defines what counts. Must not know pieces, order or names.
"""

from __future__ import annotations

import onnx
from onnx import numpy_helper

from bricks.errors import ModelError
from bricks.graph.payload import is_referenced, type_of
from bricks.operators.steering import value_counts

DTYPE_NUMBER = dict(onnx.TensorProto.DataType.items())

_TENSORS = frozenset(
    {
        onnx.AttributeProto.TENSOR,
        onnx.AttributeProto.TENSORS,
        onnx.AttributeProto.SPARSE_TENSOR,
        onnx.AttributeProto.SPARSE_TENSORS,
        onnx.AttributeProto.TYPE_PROTO,
        onnx.AttributeProto.TYPE_PROTOS,
    }
)
_GRAPHS = frozenset({onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS})


def constant(tensor: onnx.TensorProto, name: str = "") -> onnx.TensorProto:
    """Return a copy of the tensor with its values in canonical form, named ``name``.

    Raises ``ModelError`` if the tensor stores no values.
    """
    canonical = onnx.TensorProto(name=name, data_type=tensor.data_type, dims=tensor.dims)
    if 0 in tensor.dims:
        canonical.raw_data = b""
        return canonical
    external = is_referenced(tensor)
    if tensor.raw_data and not external:
        canonical.raw_data = tensor.raw_data
        return canonical
    try:
        if external:
            raise ValueError("its data is external")
        if tensor.data_type == onnx.TensorProto.STRING:
            canonical.string_data.extend(tensor.string_data)
        else:
            canonical.raw_data = numpy_helper.from_array(numpy_helper.to_array(tensor)).raw_data
    except (ValueError, TypeError) as exc:
        raise ModelError(
            f"initializer {tensor.name!r} holds no values, but they steer shapes or axes and so "
            "count for the identity of its brick: keep the values of small constants"
        ) from exc
    return canonical


def plain_attributes(node: onnx.NodeProto) -> list[onnx.AttributeProto]:
    """Return the node's attributes but subgraphs in canonical form, sorted by name."""
    attributes = sorted(node.attribute, key=lambda a: a.name)
    canonical = []
    for attribute in attributes:
        if attribute.type in _GRAPHS:
            continue
        if attribute.type in _TENSORS or attribute.doc_string:
            normalised = onnx.AttributeProto()
            normalised.CopyFrom(attribute)
            _normalise(normalised)
            attribute = normalised
        canonical.append(attribute)
    return canonical


def normal_type(kind: onnx.TypeProto) -> onnx.TypeProto:
    """Return a copy of the type without names of dimensions and denotations."""
    form = onnx.TypeProto()
    form.CopyFrom(kind)
    _strip(form)
    return form


def _normalise(attribute: onnx.AttributeProto) -> None:
    """Bring tensors and types of an attribute into canonical form, in place."""
    attribute.ClearField("doc_string")
    if attribute.HasField("t"):
        attribute.t.CopyFrom(_embedded(attribute.t))
    for tensor in attribute.tensors:
        tensor.CopyFrom(_embedded(tensor))
    sparse = [attribute.sparse_tensor] if attribute.HasField("sparse_tensor") else []
    for sparse_tensor in (*sparse, *attribute.sparse_tensors):
        sparse_tensor.values.CopyFrom(_embedded(sparse_tensor.values))
        # Positions are the structure of the work, and must stay valid: they count at any size.
        sparse_tensor.indices.CopyFrom(constant(sparse_tensor.indices))
    if attribute.HasField("tp"):
        _strip(attribute.tp)
    for kind in attribute.type_protos:
        _strip(kind)


def _embedded(tensor: onnx.TensorProto) -> onnx.TensorProto:
    """Return the canonical form of a tensor in an attribute, with zeros if it stores no values.

    Unlike a weight, an attribute cannot be filled in later, so it needs some values now.
    """
    kind = type_of(tensor)
    if not is_referenced(tensor) or value_counts(kind, steering=False):
        return constant(tensor)
    zeros = onnx.TensorProto(data_type=tensor.data_type, dims=tensor.dims)
    zeros.raw_data = bytes(kind.size_bytes)
    return zeros


def _strip(kind: onnx.TypeProto) -> None:
    """Remove names of dimensions and denotations, in place."""
    kind.ClearField("denotation")
    which = kind.WhichOneof("value")
    if which in ("tensor_type", "sparse_tensor_type"):
        for dim in getattr(kind, which).shape.dim:
            dim.ClearField("denotation")
            dim.ClearField("dim_param")
    elif which in ("sequence_type", "optional_type"):
        _strip(getattr(kind, which).elem_type)
    elif which == "map_type":
        _strip(kind.map_type.value_type)
