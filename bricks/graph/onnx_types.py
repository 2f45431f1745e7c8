"""Conversion of types to and from ONNX's ``TypeProto`` and its notation (``seq(tensor(float))``).

Separate from the types, which modules without ONNX use too. Must not know graphs.
"""

from __future__ import annotations

import onnx

from bricks.errors import ModelError
from bricks.graph.types import ELEMENT_BITS, ContainerType, ValueType

_DTYPES = {name.lower(): number for name, number in onnx.TensorProto.DataType.items()}


def dtype_of(number: int) -> str:
    """Return ONNX's name of an element type; :class:`ModelError` for a number without a type."""
    try:
        name: str = onnx.TensorProto.DataType.Name(number)
    except ValueError as exc:
        raise ModelError(f"there is no element type {number}") from exc
    if name not in ELEMENT_BITS and name != "STRING":
        raise ModelError(f"values of element type {name.lower()} are not supported")
    return name


def notation(proto: onnx.TypeProto) -> str:
    """Return ``proto`` in ONNX's notation, without shapes; :class:`ModelError` if it is invalid."""
    kind = proto.WhichOneof("value")
    if kind in ("tensor_type", "sparse_tensor_type"):
        return f"{kind.removesuffix('_type')}({dtype_of(getattr(proto, kind).elem_type).lower()})"
    if kind == "sequence_type":
        return f"seq({notation(proto.sequence_type.elem_type)})"
    if kind == "optional_type":
        return f"optional({notation(proto.optional_type.elem_type)})"
    if kind == "map_type":
        key = dtype_of(proto.map_type.key_type).lower()
        return f"map({key},{notation(proto.map_type.value_type)})"
    raise ModelError(f"a type is {kind or 'nothing'}: not supported")


def type_proto(type_: ValueType) -> onnx.TypeProto:
    """Return ``type_`` as a ``TypeProto``, with a tensor's shape but no shapes in a container."""
    if isinstance(type_, ContainerType):
        return _parse(type_.dtype)
    proto = onnx.TypeProto()
    tensor = proto.tensor_type
    tensor.elem_type = _DTYPES[type_.dtype.lower()]
    tensor.shape.SetInParent()
    for size in type_.shape:
        tensor.shape.dim.add(dim_value=size)
    return proto


def _parse(text: str) -> onnx.TypeProto:
    kind, _, inner = text.removesuffix(")").partition("(")
    proto = onnx.TypeProto()
    if kind == "tensor":
        proto.tensor_type.elem_type = _DTYPES[inner]
    elif kind == "seq":
        proto.sequence_type.elem_type.CopyFrom(_parse(inner))
    elif kind == "optional":
        proto.optional_type.elem_type.CopyFrom(_parse(inner))
    elif kind == "map":
        key, _, value = inner.partition(",")
        proto.map_type.key_type = _DTYPES[key]
        proto.map_type.value_type.CopyFrom(_parse(value))
    else:
        raise ModelError(f"there is no type {text!r}")
    return proto
