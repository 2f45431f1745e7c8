"""Which values count for the identity of a brick, and tensors and attributes in their one form.

ONNX can write the same tensor in several ways (raw or typed fields); here each gets one. What
counts is said in ``identity``, which uses this; knows nothing of pieces, order and names.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx
from onnx import numpy_helper

from bricks.decompose.subgraphs import nested
from bricks.errors import ModelError
from bricks.graph.tensor import TensorType

# Values of larger tensors don't count, whatever their type.
SMALL = 64

# Element types whose small constants are shapes, axes, indices and switches. 8 bits and fewer are
# quantised data.
COUNTED = frozenset({"INT16", "INT32", "INT64", "UINT16", "UINT32", "UINT64", "BOOL"})

# Inputs whose values steer shapes or the choice of an algorithm even as floating-point numbers.
STEERING = {
    "Resize": (1, 2, 3),  # roi, scales, sizes (before opset 11: scales)
    "Upsample": (1,),  # scales
    "Pow": (1,),  # exponent, if it is one number: squares and roots have fast paths
    "Range": (0, 1, 2),  # start, limit, delta
    "NonMaxSuppression": (2, 3, 4),  # boxes per class, thresholds
    "TopK": (1,),  # k
    "OneHot": (1,),  # depth
}

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


def default_domain(domain: str) -> str:
    """The domain with the two spellings of ONNX's own made one (the empty one)."""
    return "" if domain == "ai.onnx" else domain


def value_counts(kind: TensorType, *, steering: bool) -> bool:
    """Whether the values of an initializer of this type count; ``steering``: see STEERING.

    Strings always count, since none can be made up; so do empty tensors, which have no values.
    """
    if kind.dtype == "STRING" or 0 in kind.shape:
        return True
    return kind.elements <= SMALL and (steering or kind.dtype in COUNTED)


def steering_inputs(node: onnx.NodeProto) -> Iterator[tuple[str, bool]]:
    """Names at the node's steering inputs, and whether they steer as scalars only.

    Those of nodes in its subgraphs are among them.
    """
    for each in (node, *nested(node)):
        if default_domain(each.domain) == "":
            for port in STEERING.get(each.op_type, ()):
                if port < len(each.input) and each.input[port]:
                    yield each.input[port], each.op_type == "Pow"


def constant(tensor: onnx.TensorProto, name: str = "") -> onnx.TensorProto:
    """The tensor with its values in their one form, named ``name``.

    Raises ``ModelError`` if the values aren't held.
    """
    form = onnx.TensorProto(name=name, data_type=tensor.data_type, dims=tensor.dims)
    if 0 in tensor.dims:
        form.raw_data = b""
        return form
    external = tensor.data_location == onnx.TensorProto.EXTERNAL
    if tensor.raw_data and not external:
        form.raw_data = tensor.raw_data
        return form
    try:
        if external:
            raise ValueError("its data is external")
        if tensor.data_type == onnx.TensorProto.STRING:
            form.string_data.extend(tensor.string_data)
        else:
            form.raw_data = numpy_helper.from_array(numpy_helper.to_array(tensor)).raw_data
    except (ValueError, TypeError) as exc:
        raise ModelError(
            f"initializer {tensor.name!r} holds no values, but they steer shapes or axes and so "
            "count for the identity of its brick: keep the values of small constants"
        ) from exc
    return form


def plain_attributes(node: onnx.NodeProto) -> list[onnx.AttributeProto]:
    """The node's attributes in their one form and sorted by name, less those that are graphs."""
    attributes = sorted(node.attribute, key=lambda a: a.name)
    forms = []
    for attribute in attributes:
        if attribute.type in _GRAPHS:
            continue
        if attribute.type in _TENSORS or attribute.doc_string:
            copy = onnx.AttributeProto()
            copy.CopyFrom(attribute)
            _normalise(copy)
            attribute = copy
        forms.append(attribute)
    return forms


def normal_type(kind: onnx.TypeProto) -> onnx.TypeProto:
    """A copy without names of dimensions and denotations."""
    form = onnx.TypeProto()
    form.CopyFrom(kind)
    _strip(form)
    return form


def _normalise(attribute: onnx.AttributeProto) -> None:
    """Bring tensors and types of an attribute into their one form, in place."""
    attribute.ClearField("doc_string")
    if attribute.HasField("t"):
        attribute.t.CopyFrom(_embedded(attribute.t))
    for tensor in attribute.tensors:
        tensor.CopyFrom(_embedded(tensor))
    sparse = [attribute.sparse_tensor] if attribute.HasField("sparse_tensor") else []
    for each in (*sparse, *attribute.sparse_tensors):
        each.values.CopyFrom(_embedded(each.values))
        # Positions are the structure of the work, and must stay valid: they count at any size.
        each.indices.CopyFrom(constant(each.indices))
    if attribute.HasField("tp"):
        _strip(attribute.tp)
    for kind in attribute.type_protos:
        _strip(kind)


def _embedded(tensor: onnx.TensorProto) -> onnx.TensorProto:
    """The form of a tensor within an attribute: small ones as they are, larger ones as zeros.

    An attribute can't be filled in later as a weight can, so the values have to be some.
    """
    kind = TensorType(onnx.TensorProto.DataType.Name(tensor.data_type), tuple(tensor.dims))
    # A reader that keeps no weights may have dropped small ones too: those that don't count.
    held = tensor.data_location != onnx.TensorProto.EXTERNAL
    if value_counts(kind, steering=held):
        return constant(tensor)
    form = onnx.TensorProto(data_type=tensor.data_type, dims=tensor.dims)
    form.raw_data = bytes(kind.size_bytes)
    return form


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
