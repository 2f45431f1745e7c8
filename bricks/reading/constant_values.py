"""Values that a graph computes from its constants alone, at sampled places.

Ordinary weights with a tiny scale have denormal products, which no weight shows by itself.
Constants are followed through operators that scale, convert or move values. Elements at a few
places are computed, so that no large weight is read as a whole. Must not know how results are used.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx

from bricks.graph.onnx_types import dtype_of
from bricks.graph.payload import (
    is_referenced,
    locate,
    numpy_dtype,
    read_inline,
    reference,
    type_of,
    unpacked,
    value_dtype,
)
from bricks.graph.topology import default_domain
from bricks.graph.types import ELEMENT_BITS, TensorType

# Of each value, at most so many parts of so many elements are computed.
_PARTS, _PART = 16, 256
# Products of larger scales with integers or floats of eight bits are ordinary.
_SMALL_SCALE, _NARROW_BITS = 2.0**-96, 8
_DEQUANTIZE, _SCALED = "DequantizeLinear", frozenset(("DequantizeLinear", "Mul", "Div", "Cast"))
_COMPUTED = frozenset((*_SCALED, "Identity", "Reshape", "Transpose"))
_WIDE = frozenset(("FLOAT", "DOUBLE"))

# The place of each sampled element: its index along each axis.
Places = tuple[np.ndarray, ...]


@dataclass(frozen=True, slots=True)
class _Computed:
    """A constant that ``node`` computes; ``origins`` are the initializers that it is made of."""

    node: onnx.NodeProto
    type: TensorType
    origins: frozenset[str]
    at: Callable[[Places], np.ndarray]


class ConstantValues:
    """The constants of ``graph``, whose data files are in ``folder``.

    Constants whose data are missing, and texts and complex numbers, are not followed.
    """

    def __init__(self, graph: onnx.GraphProto, folder: Path) -> None:
        self._tensors = {tensor.name: tensor for tensor in graph.initializer}
        self._folder = folder
        self._computed: dict[str, _Computed] = {}
        for node in graph.node:
            if node.op_type in _COMPUTED and not default_domain(node.domain):
                computed = self._of(node)
                if computed is not None:
                    self._computed[node.output[0]] = computed

    def origins_of_denormals(self, least_share: float) -> set[str]:
        """Return the initializers from which values with ``least_share`` of denormals are made."""
        origins: set[str] = set()
        for computed in self._computed.values():
            if computed.type.dtype in _WIDE and self._may_be_tiny(computed.node):
                values = computed.at(_places(computed.type.shape))
                tiny = (values != 0) & (np.abs(values) < np.finfo(values.dtype).smallest_normal)
                if tiny.size and tiny.mean() >= least_share:
                    origins |= computed.origins
        return origins

    def has(self, name: str) -> bool:
        """Whether the data of the initializer ``name`` are there."""
        tensor = self._tensors[name]
        return not is_referenced(tensor) or self._stored(name) is not None

    def sample(self, name: str) -> np.ndarray:
        """Return sampled values of a known initializer, as float32 or float64."""
        return self._at(name)(_places(type_of(self._tensors[name]).shape))

    def _may_be_tiny(self, node: onnx.NodeProto) -> bool:
        """Whether ``node`` may make denormals: scales of quantised weights seldom do."""
        if node.op_type not in _SCALED:
            return False
        narrow = self._type(node.input[0])
        if (
            node.op_type != _DEQUANTIZE
            or narrow is None
            or ELEMENT_BITS[narrow.dtype] > _NARROW_BITS
        ):
            return True
        scale = self._type(node.input[1])
        assert scale is not None
        values = np.abs(self._at(node.input[1])(_places(scale.shape)))
        return bool(((values != 0) & (values < _SMALL_SCALE)).any())

    def _type(self, name: str) -> TensorType | None:
        """The type of the constant ``name``; None if it is none that can be followed."""
        if name in self._computed:
            return self._computed[name].type
        if name not in self._tensors:
            return None
        type_ = type_of(self._tensors[name])
        followed = type_.dtype in ELEMENT_BITS and "COMPLEX" not in type_.dtype
        known = followed and type_.elements and self._stored(name) is not None
        return type_ if known else None

    def _at(self, name: str) -> Callable[[Places], np.ndarray]:
        """A function that returns the elements of a constant at the places that it is given."""
        if name in self._computed:
            return self._computed[name].at
        type_ = type_of(self._tensors[name])
        stored = self._stored(name)
        assert stored is not None

        def elements(places: Places) -> np.ndarray:
            flat = (
                np.ravel_multi_index(places, type_.shape) if type_.shape else np.zeros(1, np.int64)
            )
            bits = ELEMENT_BITS[type_.dtype]
            if bits < _NARROW_BITS:
                per_byte = _NARROW_BITS // bits
                own = TensorType(type_.dtype, (flat.size, per_byte))
                return _widened(
                    unpacked(stored[flat // per_byte], own)[np.arange(flat.size), flat % per_byte]
                )
            kind = value_dtype(type_.dtype)
            values = stored[flat]
            return _widened(values if values.dtype == kind else values.view(kind))

        return elements

    def _stored(self, name: str) -> np.ndarray | None:
        """The stored elements of an initializer, one after the other; None if they are missing."""
        tensor = self._tensors[name]
        if not is_referenced(tensor):
            return np.ravel(read_inline(tensor))
        type_, ref = type_of(tensor), reference(tensor)
        path = locate(self._folder, ref.location)
        if path is None or path.stat().st_size < ref.offset + type_.size_bytes:
            return None
        kind = numpy_dtype(type_.dtype)
        count = type_.size_bytes // kind.itemsize
        return np.memmap(path, kind, "r", ref.offset, (count,))

    def _of(self, node: onnx.NodeProto) -> _Computed | None:
        """The constant that ``node`` computes; None unless all that it reads can be followed."""
        read = [name for name in node.input if name]
        types = [self._type(name) for name in read]
        own = [type_ for type_ in types if type_ is not None]
        if not own or len(own) < len(types):
            return None
        made = _MAKERS[node.op_type](node, own, [self._at(name) for name in read])
        if made is None:
            return None
        data = read if node.op_type in ("Mul", "Div") else read[:2]
        data = data[:1] if node.op_type == "Reshape" else data
        known = self._computed
        origins = frozenset[str]().union(
            *(known[name].origins if name in known else (name,) for name in data)
        )
        return _Computed(node, made[0], origins, made[1])


_Made = tuple[TensorType, Callable[[Places], np.ndarray]]
_Reads = list[Callable[[Places], np.ndarray]]


def _scaled(node: onnx.NodeProto, types: list[TensorType], reads: _Reads) -> _Made | None:
    """A product or quotient of two floats."""
    if any(type_.dtype not in _WIDE for type_ in types) or len(types) != 2:
        return None
    try:
        shape = np.broadcast_shapes(*(type_.shape for type_ in types))
    except ValueError:
        return None
    combine = np.multiply if node.op_type == "Mul" else np.divide

    def at(places: Places) -> np.ndarray:
        one, other = (read(_within(places, t.shape)) for read, t in zip(reads, types, strict=True))
        with np.errstate(all="ignore"):
            return np.asarray(combine(one, other))

    return TensorType(types[0].dtype, shape), at


def _dequantized(node: onnx.NodeProto, types: list[TensorType], reads: _Reads) -> _Made | None:
    """A weight times its scale: one for all, one for each position of an axis, or of each block."""
    weight, scale = types[:2]
    attributes = {a.name: a.i for a in node.attribute}
    axis, block = attributes.get("axis", 1), attributes.get("block_size", 0)
    rank = len(weight.shape)
    axis += rank if axis < 0 else 0
    if scale.elements > 1 and axis >= rank:
        return None
    if any(type_.elements != scale.elements for type_ in types[2:]):
        return None

    def at(places: Places) -> np.ndarray:
        if scale.elements == 1:
            of_scale = tuple(np.zeros_like(places[0]) for _ in scale.shape) if places else ()
        elif block:
            of_scale = tuple(n // block if i == axis else n for i, n in enumerate(places))
        else:
            of_scale = (places[axis],)
        values = reads[0](places)
        if len(reads) > 2:
            values = values - reads[2](of_scale)
        with np.errstate(all="ignore"):
            return np.asarray(values * reads[1](of_scale))

    return TensorType(scale.dtype, weight.shape), at


def _cast(node: onnx.NodeProto, types: list[TensorType], reads: _Reads) -> _Made | None:
    to = TensorType(dtype_of(next(a.i for a in node.attribute if a.name == "to")), types[0].shape)
    if not to.floating or ELEMENT_BITS[to.dtype] < _NARROW_BITS:
        return None
    kind = value_dtype(to.dtype)

    def at(places: Places) -> np.ndarray:
        with np.errstate(all="ignore"):
            return _widened(reads[0](places).astype(kind))

    return to, at


def _transposed(node: onnx.NodeProto, types: list[TensorType], reads: _Reads) -> _Made | None:
    rank = len(types[0].shape)
    order = next((list(a.ints) for a in node.attribute if a.name == "perm"), None)
    order = [*range(rank)][::-1] if order is None else order
    if sorted(order) != [*range(rank)]:
        return None

    def at(places: Places) -> np.ndarray:
        return reads[0](tuple(places[order.index(axis)] for axis in range(rank)))

    return TensorType(types[0].dtype, tuple(types[0].shape[axis] for axis in order)), at


def _reshaped(node: onnx.NodeProto, types: list[TensorType], reads: _Reads) -> _Made | None:
    before = types[0]
    target = types[1].shape
    sizes = [int(n) for n in reads[1]((np.arange(target[0]),))] if len(target) == 1 else []
    copies = not any(a.name == "allowzero" and a.i for a in node.attribute)
    sizes = [
        before.shape[i] if n == 0 and copies and i < len(before.shape) else n
        for i, n in enumerate(sizes)
    ]
    rest = math.prod(n for n in sizes if n != -1)
    sizes = [before.elements // max(rest, 1) if n == -1 else n for n in sizes]
    if not sizes or min(sizes) < 1 or math.prod(sizes) != before.elements:
        return None

    def at(places: Places) -> np.ndarray:
        flat = np.ravel_multi_index(places, sizes)
        return reads[0](np.unravel_index(flat, before.shape) if before.shape else ())

    return TensorType(before.dtype, tuple(sizes)), at


def _same(node: onnx.NodeProto, types: list[TensorType], reads: _Reads) -> _Made | None:
    return types[0], reads[0]


_MAKERS = {
    _DEQUANTIZE: _dequantized, "Mul": _scaled, "Div": _scaled, "Cast": _cast,
    "Identity": _same, "Reshape": _reshaped, "Transpose": _transposed,
}  # fmt: skip


def _places(shape: tuple[int, ...]) -> Places:
    """Evenly spaced parts of all elements of a value of this ``shape``."""
    elements = math.prod(shape)
    count = min(elements, _PART)
    parts = min(_PARTS, -(-elements // max(count, 1)))
    starts = np.linspace(0, elements - count, parts).astype(np.int64)
    flat = np.unique(starts[:, None] + np.arange(count))
    return np.unravel_index(flat, shape) if shape else ()


def _within(places: Places, shape: tuple[int, ...]) -> Places:
    """The places of a broadcast value in an operand of this ``shape``."""
    own = places[len(places) - len(shape) :]
    return tuple(n if size > 1 else np.zeros_like(n) for n, size in zip(own, shape, strict=True))


def _widened(values: np.ndarray) -> np.ndarray:
    return values if values.dtype == np.float64 else values.astype(np.float32)
