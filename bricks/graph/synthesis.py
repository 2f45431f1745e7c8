"""Synthetic weights and inputs, generated at the speed of copying memory.

Latency does not depend on the values of the numbers, as long as they are ordinary: no denormals, no
overflow, no NaN. So all arrays are cut from one block of random numbers, at an offset that the
array's name determines, and scaled. Must not know graphs.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np

from bricks.errors import ModelError
from bricks.graph.payload import numpy_dtype, storage_shape, unpacked, value_dtype
from bricks.graph.types import ELEMENT_BITS, TensorType

if TYPE_CHECKING:
    from bricks.graph.types import ValueType

__all__ = ["Pool", "numpy_dtype"]

# About 4 Mi, and prime: rows of a matrix larger than the block must not be equal.
_ELEMENTS = 4_194_319
# Small enough for the cache, large enough for numpy's overhead to be negligible.
_CHUNK = 1 << 16
# The minimum magnitude in the block. Scaled by the amplitudes used, it is still a normal float16.
_FLOOR = 2.0**-6
# Integers are drawn in doubles: wider ranges are narrowed to this many values around zero.
_SPAN = 1 << 52
_SCALED_BLOCKS = 4  # of 8 MB each; models have few distinct large shapes


@dataclass(frozen=True, slots=True)
class Range:
    """Range of integers: ``low`` <= n < ``high``; ``why`` names the use that restricts them."""

    low: int
    high: int
    why: str


class Pool:
    """Block of random numbers from which arrays are cut; a ``seed`` and a name determine an array.

    Arrays have the type of :func:`numpy_dtype` and the tensor's shape; BFLOAT16 and FLOAT8* are
    unsigned integers of their width; 4-bit and 2-bit types are one axis of packed bytes. All arrays
    are contiguous and writable.
    """

    def __init__(self, seed: int) -> None:
        """Draw the block; takes some tens of milliseconds and 16 MB."""
        block = np.random.default_rng(seed).random(_ELEMENTS, dtype=np.float32)
        block *= 2
        block -= 1
        self._block = np.copysign(np.maximum(np.abs(block), np.float32(_FLOOR)), block)
        self._bytes = np.random.default_rng([seed, 1]).integers(0, 256, _ELEMENTS, np.uint8)
        self._scaled: dict[tuple[str, float, float], np.ndarray] = {}

    def weight(self, name: str, type: TensorType, range: Range | None = None) -> np.ndarray:
        """Return a weight: floats as by a usual initialisation, integers within ``range``.

        Floats of rank 2 and more are uniform with amplitude sqrt(6 / fan in), so that activations
        neither grow nor vanish. Others lie in [0.25, 0.75): positive, because some are variances;
        small, because the scales of many residual branches would add up. Without a ``range``,
        integers take the full range of types up to 16 bits, else 0 and 1. Raises
        :class:`ModelError` for types without synthetic values.
        """
        if not type.floating:
            return self._integers("weight", name, type, range)
        return self._floats("weight", name, type, *weight_scale(type))

    def value(self, name: str, type: ValueType, range: Range | None = None) -> Any:
        """Return an input of any type: an array, or for a container a list, a dict or None.

        Values have the form that :mod:`bricks.graph.model_metadata` describes.
        """
        if isinstance(type, TensorType):
            values = self.input(name, type, range)
            return unpacked(values, type) if ELEMENT_BITS.get(type.dtype, 8) < 8 else values
        if type.dtype.startswith("map("):
            values = self.input(name, _tensor(type.items[0])).tolist()
            whole = not type.dtype.startswith("map(string")
            return {i if whole else str(i): value for i, value in enumerate(values)}
        items = [self.value(f"{name}/{i}", item) for i, item in enumerate(type.items)]
        if type.dtype.startswith("optional("):
            return items[0] if items else None
        return items

    def input(self, name: str, type: TensorType, range: Range | None = None) -> np.ndarray:
        """Return an input or activation: floats between -1 and 1, integers within ``range``.

        A single float lies in [0.25, 0.75), because operators accept some inputs, such as a dropout
        ratio, only from that range. Strings are words of a few letters.
        """
        if type.dtype == "STRING":
            words = np.array([f"word{i % 100}" for i in builtins.range(type.elements)], object)
            return words.reshape(type.shape)
        if "COMPLEX" in type.dtype:
            parts = TensorType(
                "FLOAT" if type.dtype == "COMPLEX64" else "DOUBLE", (2 * type.elements,)
            )
            return self.input(name, parts).view(numpy_dtype(type.dtype)).reshape(type.shape)
        if not type.floating:
            return self._integers("input", name, type, range)
        return self._floats("input", name, type, *input_scale(type))

    def _floats(
        self, role: str, name: str, type: TensorType, scale: float, shift: float
    ) -> np.ndarray:
        if type.dtype == "FLOAT4E2M1":
            return self._random_bytes(role, name, type)
        out = _empty(name, type)
        flat = out.reshape(-1)
        if type.dtype in ("FLOAT", "DOUBLE"):
            for part, source in self._slices(flat, self._block, self._offset(role, name)):
                np.multiply(source, np.float32(scale), out=part)
                if shift:
                    part += np.float32(shift)
            return out
        if ELEMENT_BITS[type.dtype] == 8:
            # Eight bits cannot represent small numbers: such weights come with a scale factor.
            scale, shift = (0.25, 1.0) if type.dtype == "FLOAT8E8M0" or shift else (1.0, 0.0)
        elif flat.size <= _ELEMENTS // 4:
            for part, source in self._slices(flat, self._block, self._offset(role, name)):
                part[...] = _convert(source, type.dtype, scale, shift)
            return out
        for part, source in self._slices(
            flat, self._scaled_block(type.dtype, scale, shift), self._offset(role, name)
        ):
            part[...] = source
        return out

    def _scaled_block(self, dtype: str, scale: float, shift: float) -> np.ndarray:
        """Return the block as ``dtype``; cached: numpy converts more slowly than it copies."""
        key = (dtype, scale, shift)
        if key not in self._scaled:
            if len(self._scaled) >= _SCALED_BLOCKS:
                del self._scaled[next(iter(self._scaled))]
            self._scaled[key] = _convert(self._block, dtype, scale, shift)
        return self._scaled[key]

    def _integers(self, role: str, name: str, type: TensorType, range: Range | None) -> np.ndarray:
        if type.dtype == "BOOL":
            low, high = (range.low, range.high) if range else (1, 2)
        elif type.dtype == "STRING" or "COMPLEX" in type.dtype:
            raise ModelError(
                f"value '{name}' is of type {type.dtype}: no values can be made for it"
            )
        else:
            low, high = integer_limits(type.dtype, range)
        bits = ELEMENT_BITS[type.dtype]
        if high <= low:
            raise ModelError(f"value '{name}' has no values between {low} and {high}")
        if bits < 8:
            if high - low == 1 << bits:
                return self._random_bytes(role, name, type)
            return self._packed(role, name, type, low, high)
        if bits == 8 and high - low == 256:
            return self._random_bytes(role, name, type)
        out = _empty(name, type)
        self._fill(out.reshape(-1), self._offset(role, name), low, high)
        return out

    def _fill(self, flat: np.ndarray, offset: int, low: int, high: int) -> None:
        if high - low == 1:
            flat[...] = low
            return
        if high - low > _SPAN:
            low, high = max(low, -_SPAN // 2), min(high, _SPAN // 2)
        span = high - low
        for part, source in self._slices(flat, self._block, offset):
            drawn = np.floor((source.astype(np.float64) + 1) * (span / 2))
            # Integers wrap where doubles would lose digits; the wrapped sum is still correct.
            part[...] = np.clip(drawn, 0, span - 1).astype(np.int64).astype(part.dtype)
            part += part.dtype.type(low)

    def _packed(self, role: str, name: str, type: TensorType, low: int, high: int) -> np.ndarray:
        bits = ELEMENT_BITS[type.dtype]
        per_byte = 8 // bits
        out = _empty(name, type)
        drawn = np.zeros(out.size * per_byte, np.int8)
        self._fill(drawn[: type.elements], self._offset(role, name), low, high)
        fields = drawn.view(np.uint8).reshape(-1, per_byte) & np.uint8((1 << bits) - 1)
        out[...] = 0
        for position in builtins.range(per_byte):
            out |= fields[:, position] << np.uint8(position * bits)
        return out

    def _random_bytes(self, role: str, name: str, type: TensorType) -> np.ndarray:
        out = _empty(name, type)
        flat = out.reshape(-1).view(np.uint8)
        for part, source in self._slices(flat, self._bytes, self._offset(role, name)):
            part[...] = source
        spare = -type.elements * ELEMENT_BITS[type.dtype] % 8
        if spare and flat.size:
            flat[-1] &= 0xFF >> spare  # bits after the last element are zero
        return out

    def _offset(self, role: str, name: str) -> int:
        key = blake2b(f"{role}:{name}".encode(errors="surrogateescape"), digest_size=8).digest()
        return int.from_bytes(key, "little") % _ELEMENTS

    def _slices(
        self, flat: np.ndarray, block: np.ndarray, offset: int
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield slices of ``flat`` with slices of ``block`` of equal length, used cyclically."""
        start = 0
        while start < flat.size:
            length = min(_CHUNK, flat.size - start, block.size - offset)
            yield flat[start : start + length], block[offset : offset + length]
            start += length
            offset = (offset + length) % block.size


def _tensor(type: ValueType) -> TensorType:
    assert isinstance(type, TensorType)
    return type


def _empty(name: str, type: TensorType) -> np.ndarray:
    try:
        return np.empty(storage_shape(type), numpy_dtype(type.dtype))
    except KeyError as exc:
        raise ModelError(
            f"value '{name}' is of type {type.dtype}: no values can be made for it"
        ) from exc
    except (MemoryError, ValueError) as exc:
        raise ModelError(f"out of memory: value '{name}' ({type}) does not fit") from exc


def _convert(source: np.ndarray, dtype: str, scale: float, shift: float) -> np.ndarray:
    values = source * np.float32(scale)
    if shift:
        values += np.float32(shift)
    if dtype == "BFLOAT16":  # the upper half of a float32; ml_dtypes would take ten times as long
        return (values.view(np.uint32) >> np.uint32(16)).astype(np.uint16)
    return values.astype(value_dtype(dtype)).view(numpy_dtype(dtype))


def weight_scale(type: TensorType) -> tuple[float, float]:
    """The amplitude of random floats of a weight, and what is added to them."""
    if len(type.shape) < 2:
        # A little less than a quarter: rounding to few bits must not reach the upper bound.
        return 0.23, 0.5
    fan_in = max(type.shape) if len(type.shape) == 2 else math.prod(type.shape[1:])
    return math.sqrt(6 / max(fan_in, 1)), 0.0


def input_scale(type: ValueType) -> tuple[float, float]:
    """The amplitude of random floats of an input, and what is added to them."""
    return (1.0, 0.0) if type.shape else (0.23, 0.5)


def integer_limits(dtype: str, range: Range | None) -> tuple[int, int]:
    """The limits of random integers: the least, and one that is greater than all."""
    bits = ELEMENT_BITS[dtype]
    low, high = (0, 1 << bits) if dtype.startswith("U") else (-(1 << bits - 1), 1 << bits - 1)
    if range is None:
        return (low, high) if bits <= 16 else (0, 2)
    return max(low, range.low), min(high, range.high)
