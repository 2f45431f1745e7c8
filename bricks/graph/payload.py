"""Locate and read the values of a tensor: in its ``TensorProto``, or in a file next to the model.

Implements the rules of ONNX external data. One of them is a matter of security: a model may refer
only to files in its own folder. Must not know the meaning of a graph.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath, PureWindowsPath

import ml_dtypes
import numpy as np
import onnx
from onnx import numpy_helper

from bricks.errors import ModelError, first_line
from bricks.graph.topology import subgraphs
from bricks.graph.types import ELEMENT_BITS, TensorType

# Types missing from numpy are stored as unsigned integers of their width, as in ONNX Runtime.
_NUMPY_NAMES = {
    "FLOAT": "float32", "DOUBLE": "float64", "FLOAT16": "float16", "BOOL": "bool",
    "COMPLEX64": "complex64", "COMPLEX128": "complex128",
    "INT8": "int8", "INT16": "int16", "INT32": "int32", "INT64": "int64",
    "UINT8": "uint8", "UINT16": "uint16", "UINT32": "uint32", "UINT64": "uint64",
}  # fmt: skip
_ML_TYPES = {
    "BFLOAT16": ml_dtypes.bfloat16, "FLOAT8E4M3FN": ml_dtypes.float8_e4m3fn,
    "FLOAT8E4M3FNUZ": ml_dtypes.float8_e4m3fnuz, "FLOAT8E5M2": ml_dtypes.float8_e5m2,
    "FLOAT8E5M2FNUZ": ml_dtypes.float8_e5m2fnuz, "FLOAT8E8M0": ml_dtypes.float8_e8m0fnu,
    "FLOAT4E2M1": ml_dtypes.float4_e2m1fn, "INT4": ml_dtypes.int4, "UINT4": ml_dtypes.uint4,
    "INT2": ml_dtypes.int2, "UINT2": ml_dtypes.uint2,
}  # fmt: skip


_DTYPES: dict[int, str] = {number: name for name, number in onnx.TensorProto.DataType.items()}

# By type: the field of values that are not raw, and its entries per value; else int32_data, one.
_FIELDS = {
    "FLOAT": ("float_data", 1), "COMPLEX64": ("float_data", 2),
    "DOUBLE": ("double_data", 1), "COMPLEX128": ("double_data", 2),
    "INT64": ("int64_data", 1), "UINT32": ("uint64_data", 1), "UINT64": ("uint64_data", 1),
    "STRING": ("string_data", 1),
}  # fmt: skip


# Types of attributes with tensors.
TENSOR_ATTRIBUTES = frozenset(
    {
        onnx.AttributeProto.TENSOR,
        onnx.AttributeProto.TENSORS,
        onnx.AttributeProto.SPARSE_TENSOR,
        onnx.AttributeProto.SPARSE_TENSORS,
    }
)


class PayloadError(ModelError):
    """Raised for values that contradict their tensor's type, or whose location is forbidden."""


@dataclass(frozen=True, slots=True)
class WeightReference:
    """Byte range of a file; ``location`` is relative to the model's folder.

    ``offset`` and ``length`` are in bytes; without a length it is the tensor's size.
    """

    location: str
    offset: int
    length: int | None


def numpy_dtype(dtype: str) -> np.dtype[np.generic]:
    """Return the numpy type in which values of the ONNX element type ``dtype`` are stored.

    The type of that name; an unsigned integer of the same width for BFLOAT16 and FLOAT8*; ``uint8``
    of packed elements for 4-bit and 2-bit types. Raises ``KeyError`` for STRING.
    """
    if dtype in _NUMPY_NAMES:
        return np.dtype(_NUMPY_NAMES[dtype])
    return np.dtype(np.uint16 if ELEMENT_BITS[dtype] == 16 else np.uint8)


def value_dtype(dtype: str) -> np.dtype[np.generic]:
    """Return the numpy type in which to compute with ``dtype``, from ml_dtypes if need be."""
    if dtype in _ML_TYPES:
        extended: np.dtype[np.generic] = np.dtype(_ML_TYPES[dtype])
        return extended
    return numpy_dtype(dtype)


def storage_shape(type: TensorType) -> tuple[int, ...]:
    """Return the shape of a tensor's stored array: its own, or one axis of packed bytes."""
    return type.shape if ELEMENT_BITS[type.dtype] >= 8 else (type.size_bytes,)


def packed(values: np.ndarray, bits: int) -> np.ndarray:
    """Pack elements of fewer than 8 ``bits`` into bytes, the first in the lowest bits."""
    per_byte = 8 // bits
    fields = np.zeros(-(-values.size // per_byte) * per_byte, np.uint8)
    fields[: values.size] = values.reshape(-1).view(np.uint8) & np.uint8((1 << bits) - 1)
    joined: np.ndarray = np.bitwise_or.reduce(
        fields.reshape(-1, per_byte) << _shifts(bits), axis=1, dtype=np.uint8
    )
    return joined


def unpacked(values: np.ndarray, type: TensorType) -> np.ndarray:
    """Unpack bytes into elements of ml_dtypes' types, in the shape of ``type``."""
    bits = ELEMENT_BITS[type.dtype]
    fields = values.view(np.uint8).reshape(-1, 1) >> _shifts(bits) & np.uint8((1 << bits) - 1)
    flat = fields.reshape(-1)[: type.elements]
    if type.dtype.startswith("INT"):  # the sign is the upper bit
        flat = ((flat ^ (1 << bits - 1)).astype(np.int8) - (1 << bits - 1)).astype(np.int8)
    kind = value_dtype(type.dtype)
    elements: np.ndarray = flat.astype(kind) if "INT" in type.dtype else flat.view(kind)
    return elements.reshape(type.shape)


def _shifts(bits: int) -> np.ndarray:
    return np.arange(8 // bits, dtype=np.uint8) * np.uint8(bits)


def type_of(tensor: onnx.TensorProto) -> TensorType:
    """Return the type of ``tensor``.

    Raises :class:`PayloadError` for element types that ONNX does not define, and for sizes beyond
    the memory of any host.
    """
    dtype, dims = _DTYPES.get(tensor.data_type), tuple(tensor.dims)
    if dtype is None:
        raise PayloadError(f"tensor '{tensor.name}' is of unknown type {tensor.data_type}")
    if dtype == "UNDEFINED" or any(dim < 0 for dim in dims):
        raise PayloadError(f"tensor '{tensor.name}' has no valid type: {dtype} {list(dims)}")
    if dtype not in ELEMENT_BITS and dtype != "STRING":
        raise PayloadError(f"tensor '{tensor.name}' is of type {dtype}: not supported")
    type, sensible = _known_type(dtype, dims)
    if not sensible:
        raise PayloadError(f"tensor '{tensor.name}' ({type}) is larger than any host can hold")
    return type


@lru_cache(maxsize=1 << 12)
def _known_type(dtype: str, dims: tuple[int, ...]) -> tuple[TensorType, bool]:
    """Return a type and whether it is sensible; cached, because many tensors share a type."""
    type = TensorType(dtype, dims)
    return type, type.sensible


def is_referenced(tensor: onnx.TensorProto) -> bool:
    """Whether the values of ``tensor`` are in a file instead of in the message."""
    return tensor.data_location == onnx.TensorProto.EXTERNAL


def reference(tensor: onnx.TensorProto) -> WeightReference:
    """Return the location of a tensor's external values.

    Raises :class:`PayloadError` if it is invalid, such as one outside the model's folder.
    """
    if tensor.data_type == onnx.TensorProto.STRING:
        raise PayloadError(
            f"tensor '{tensor.name}' has texts in a data file, where ONNX has none:"
            " keep them in the model"
        )
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    if _is_outside(location):
        raise PayloadError(
            f"tensor '{tensor.name}' has its data in '{location}', outside the model's folder:"
            " refused; put the data beside the model"
        )
    try:
        offset = int(entries.get("offset") or 0)
        length = int(entries["length"]) if entries.get("length") else None
    except ValueError as exc:
        raise PayloadError(f"tensor '{tensor.name}' has no valid data offset: {entries}") from exc
    if offset < 0 or (length is not None and length < 0):
        raise PayloadError(f"tensor '{tensor.name}' has a negative data offset: {entries}")
    return WeightReference(location, offset, length)


@lru_cache(maxsize=64)
def _is_outside(location: str) -> bool:
    """Whether ``location`` is outside the model's folder; cached: most tensors share one."""
    paths = PurePosixPath(location), PureWindowsPath(location)
    return any(
        not path.parts or path.is_absolute() or ".." in path.parts or bool(path.drive)
        for path in paths
    )


def set_reference(tensor: onnx.TensorProto, to: WeightReference) -> None:
    """Point ``tensor``, whose values are external, to the file range ``to``."""
    del tensor.external_data[:]
    for key, entry in asdict(to).items():
        tensor.external_data.add(key=key, value=str(entry))


def check_size(tensor: onnx.TensorProto) -> None:
    """Raise :class:`PayloadError` unless the size of the data of ``tensor`` matches its type.

    External values are not read.
    """
    type = type_of(tensor)
    if is_referenced(tensor):
        length = reference(tensor).length
        if length is not None and type.dtype != "STRING" and length != type.size_bytes:
            raise PayloadError(
                f"tensor '{tensor.name}' ({type}) takes {type.size_bytes} bytes, its reference"
                f" gives {length}"
            )
        return
    if tensor.HasField("raw_data") and type.dtype != "STRING":
        actual, needed, unit = len(tensor.raw_data), type.size_bytes, "bytes"
    else:
        # Elements smaller than a byte are packed here too; a complex number has two entries.
        field, entries = _FIELDS.get(type.dtype, ("int32_data", 1))
        packed = 8 // min(8, ELEMENT_BITS.get(type.dtype, 8))
        actual, unit = len(getattr(tensor, field)), "values"
        needed = -(-type.elements * entries // packed)
    if actual != needed:
        raise PayloadError(f"tensor '{tensor.name}' ({type}) takes {needed} {unit}, has {actual}")


def locate(folder: Path, location: str) -> Path | None:
    """Return the file at ``location`` in ``folder``, or None; a link out of the folder raises."""
    try:
        root = folder.resolve()
        path = (root / location).resolve()
        if not path.is_relative_to(root):
            raise PayloadError(
                f"data file '{location}' is a link that leads outside the model's folder {folder}:"
                " refused; put the data itself there"
            )
        return path if path.is_file() else None
    except (OSError, ValueError, RuntimeError) as exc:
        raise PayloadError(f"data file {location!r} cannot be reached: {first_line(exc)}") from exc


def read_referenced(folder: Path, tensor: onnx.TensorProto) -> np.ndarray | None:
    """Read the external values of ``tensor`` in storage type; None if the file is missing."""
    type, ref = type_of(tensor), reference(tensor)
    size = _size_bytes(tensor, type)
    check_size(tensor)
    path = locate(folder, ref.location)
    if path is None:
        return None
    try:
        # Checked before numpy allocates: the shape may be wrong.
        if path.stat().st_size < ref.offset + size:
            raise PayloadError(
                f"{path} is cut short: tensor '{tensor.name}' ends at byte {ref.offset + size}"
            )
        dtype = numpy_dtype(type.dtype)
        values = np.fromfile(path, dtype, size // dtype.itemsize, offset=ref.offset)
    except OSError as exc:
        raise PayloadError(f"{path} cannot be read: {exc.strerror or exc}") from exc
    return values.reshape(storage_shape(type))


def read_inline(tensor: onnx.TensorProto) -> np.ndarray:
    """Read the inline values of ``tensor`` in their storage type and shape."""
    type = type_of(tensor)
    size = _size_bytes(tensor, type)
    try:
        if ELEMENT_BITS[type.dtype] < 8:
            raw = tensor.raw_data or bytes(value & 0xFF for value in tensor.int32_data)
            values = np.frombuffer(raw, np.uint8)
        else:
            values = np.ascontiguousarray(numpy_helper.to_array(tensor))
        values = values.view(numpy_dtype(type.dtype)).reshape(storage_shape(type))
    except (ValueError, TypeError, OverflowError, KeyError) as exc:
        raise PayloadError(
            f"tensor '{tensor.name}' ({type}) has no valid values: {first_line(exc)}"
        ) from exc
    if values.nbytes != size:
        raise PayloadError(
            f"tensor '{tensor.name}' ({type}) takes {size} bytes, has {values.nbytes}"
        )
    return values


def store_inline(tensor: onnx.TensorProto, values: np.ndarray) -> None:
    """Store ``values`` (storage type) in ``tensor`` in one canonical form: raw, little-endian."""
    name, dtype, dims, doc = tensor.name, tensor.data_type, list(tensor.dims), tensor.doc_string
    tensor.Clear()
    tensor.name, tensor.data_type = name, dtype
    tensor.dims.extend(dims)
    if doc:
        tensor.doc_string = doc
    tensor.raw_data = values.tobytes()


def all_tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    """Yield every tensor of ``graph`` and its subgraphs: initializers, attributes, sparse parts."""
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)
    for node in graph.node:
        yield from tensors_of(node)
    for node in graph.node:
        for subgraph in subgraphs(node):
            yield from all_tensors(subgraph)


def tensors_of(node: onnx.NodeProto) -> Iterator[onnx.TensorProto]:
    """Yield the tensors in the attributes of ``node``, sparse parts included."""
    for attribute in node.attribute:
        kind = attribute.type
        if kind not in TENSOR_ATTRIBUTES:
            continue
        if kind == onnx.AttributeProto.TENSOR:
            yield attribute.t
        elif kind == onnx.AttributeProto.TENSORS:
            yield from attribute.tensors
        else:
            single = kind == onnx.AttributeProto.SPARSE_TENSOR
            for sparse in [attribute.sparse_tensor] if single else attribute.sparse_tensors:
                yield from (sparse.values, sparse.indices)


def _size_bytes(tensor: onnx.TensorProto, type: TensorType) -> int:
    try:
        return type.size_bytes
    except KeyError as exc:
        raise PayloadError(f"tensor '{tensor.name}' holds {type.dtype}: no fixed size") from exc
