"""The type of a tensor: element type and concrete shape.

Element types carry the names that ONNX gives them (``FLOAT``, ``INT64``, …), so that types without
a numpy counterpart (bfloat16, float8, int4) need no special case. Must not know graphs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

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
