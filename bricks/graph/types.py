"""The types of values: tensors, sequences, optionals and maps; and shapes as text.

Element types carry the names that ONNX gives them (``FLOAT``, ``INT64``, …), so that types without
a numpy counterpart (bfloat16, float8, int4) need no special case.

An ONNX type states the permitted items. The amount of work depends on the actual items, so a
:class:`ContainerType` records their types too. Types use ONNX's notation, ``seq(tensor(float))``.

Shapes are written as ``NAME=1x3x224x224``, within the limits of sizes. The command line's help
imports this module, and importing onnx takes longer than printing the help: must not import onnx,
nor know graphs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from bricks.errors import UsageError

# Bits of one element. STRING is absent on purpose: its size isn't known from its type.
ELEMENT_BITS = {
    "FLOAT": 32, "DOUBLE": 64, "FLOAT16": 16, "BFLOAT16": 16,
    "FLOAT8E4M3FN": 8, "FLOAT8E4M3FNUZ": 8, "FLOAT8E5M2": 8, "FLOAT8E5M2FNUZ": 8, "FLOAT8E8M0": 8,
    "FLOAT4E2M1": 4, "INT8": 8, "INT16": 16, "INT32": 32, "INT64": 64, "INT4": 4, "INT2": 2,
    "UINT8": 8, "UINT16": 16, "UINT32": 32, "UINT64": 64, "UINT4": 4, "UINT2": 2,
    "BOOL": 8, "COMPLEX64": 64, "COMPLEX128": 128,
}  # fmt: skip

# No host can hold a larger value, and numpy supports no more dimensions.
MAX_BYTES, MAX_DIMS = 1 << 40, 32

FLOATING = frozenset(name for name in ELEMENT_BITS if "FLOAT" in name or name == "DOUBLE")


@dataclass(frozen=True, slots=True)
class TensorType:
    """Element type (ONNX name, such as ``FLOAT``) and concrete shape (elements per axis)."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def elements(self) -> int:
        """Number of elements; 1 for a scalar."""
        return math.prod(self.shape)

    @property
    def size_bytes(self) -> int:
        """Bytes the values take; raises ``KeyError`` for types of no fixed size (STRING)."""
        return (self.elements * ELEMENT_BITS[self.dtype] + 7) // 8

    @property
    def sensible(self) -> bool:
        """Whether a host could hold the values; checked before memory is allocated for them."""
        bits = ELEMENT_BITS.get(self.dtype, 8)
        # A dimension of zero must not hide the other ones, whose product could overflow.
        elements = math.prod(dim or 1 for dim in self.shape)
        return len(self.shape) <= MAX_DIMS and elements * bits <= 8 * MAX_BYTES

    @property
    def floating(self) -> bool:
        """Whether the elements are floating-point numbers."""
        return self.dtype in FLOATING

    def to_json(self) -> list[object]:
        """``[dtype, [d0, d1, …]]``."""
        return [self.dtype, list(self.shape)]

    @classmethod
    def from_json(cls, data: Sequence[object]) -> TensorType:
        """Read ``[dtype, shape]``; raises ``ValueError`` for other data."""
        dtype, shape = data
        if not isinstance(dtype, str) or not isinstance(shape, list):
            raise ValueError(f"not a tensor type: {data!r}")
        return cls(dtype, tuple(int(d) for d in shape))

    def __str__(self) -> str:
        return f"{self.dtype.lower()}[{','.join(map(str, self.shape))}]"


@dataclass(frozen=True, slots=True)
class ContainerType:
    """Type of a sequence, an optional or a map, with the types of its ``items``.

    ``dtype`` is the declared type in ONNX's notation. An optional holds one item or none; a map's
    one item is the tensor of all its values.
    """

    dtype: str
    items: tuple[ValueType, ...] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        """``(number of items,)``."""
        return (len(self.items),)

    @property
    def elements(self) -> int:
        """Number of elements in all items."""
        return sum(item.elements for item in self.items)

    @property
    def size_bytes(self) -> int:
        """Bytes of all items; raises ``KeyError`` if one has no fixed size (STRING)."""
        return sum(item.size_bytes for item in self.items)

    @property
    def sensible(self) -> bool:
        """Whether all items are small enough for the memory of a host."""
        return all(item.sensible for item in self.items)

    @property
    def floating(self) -> bool:
        """False: a container is not a tensor of numbers."""
        return False

    def to_json(self) -> list[object]:
        """``[notation, [item, …]]``, items as types in the same form."""
        return [self.dtype, [item.to_json() for item in self.items]]

    def __str__(self) -> str:
        return f"{self.dtype} of {', '.join(map(str, self.items)) or 'nothing'}"


ValueType = TensorType | ContainerType


def type_from_json(data: Sequence[object]) -> ValueType:
    """Read a type from its ``to_json``; raises ``ValueError`` for invalid data."""
    dtype, items = data
    if isinstance(dtype, str) and "(" in dtype:
        if not isinstance(items, list):
            raise ValueError(f"not a type: {data!r}")
        return ContainerType(dtype, tuple(type_from_json(item) for item in items))
    return TensorType.from_json(data)


# The largest size in options: runtimes use 32-bit counts in places, and protobuf 64-bit ones.
LARGEST_DIM = 2**31 - 1

RANGE = f"dimensions are whole numbers from 0 to {LARGEST_DIM}"

# Text of a size that stays as the file has it.
AS_IN_FILE = "?"


def parse_shape(text: str) -> tuple[str, tuple[int | None, ...]]:
    """Parse ``NAME=1x3x224x224`` as name and shape; ``NAME=`` is a scalar.

    A ``?`` leaves that axis as the file has it: its size is None. Names may hold ``=``: the last
    one separates. Raises :class:`UsageError`.
    """
    name, separator, dims = text.rpartition("=")
    if not separator or not name:
        raise UsageError(f"not a shape: '{text}': give NAME=1x3x224x224")
    words = dims.strip().lower().split("x") if dims.strip() else []
    sizes = [word for word in words if word != AS_IN_FILE]
    # isdecimal alone admits digits of other scripts, and int() alone admits "1_0" and "+1".
    if not all(size.isascii() and size.isdecimal() for size in sizes):
        raise UsageError(f"not a shape: '{text}': '{dims}' is not a list like 1x3x224x224")
    # The length first, because Python refuses to parse numbers of thousands of digits.
    if any(len(size) > 18 or int(size) > LARGEST_DIM for size in sizes):
        raise UsageError(f"not a shape: '{text}': {RANGE}")
    return name, tuple(None if word == AS_IN_FILE else int(word) for word in words)


def shown_shape(dims: Sequence[int | str | None]) -> str:
    """Return ``dims`` as :func:`parse_shape` reads it; a dimension that is no number is ``?``."""
    return "x".join(str(dim) if isinstance(dim, int) else AS_IN_FILE for dim in dims)
