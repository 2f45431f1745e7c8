"""Denormals among a model's own weights: numbers too small for a full mantissa.

Arithmetic on them may be a hundred times slower, and so may the conversion of eight-bit floats, so
a model with many of them runs slower than the same architecture with ordinary weights, unless its
runtime flushes them to zero. Numbers are inspected and written as bit patterns, which works for
types that numpy lacks. Of large weights, evenly spaced parts of their file are read. Must not know
how the result is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx

from bricks.errors import ModelError
from bricks.graph.payload import PayloadError, is_referenced, locate, reference, type_of

if TYPE_CHECKING:
    from bricks.graph.model import Model
    from bricks.graph.tensor import TensorType

# For each element type: the unsigned integer of its width, and the greatest denormal as such an
# integer. FLOAT16 is not listed, because its denormals are normal numbers in float32, in which
# processors compute. Runtimes convert the FNUZ types as fast for any number, and integers too.
_GREATEST: dict[str, tuple[type[np.unsignedinteger], int]] = {
    "FLOAT": (np.uint32, (1 << 23) - 1),
    "DOUBLE": (np.uint64, (1 << 52) - 1),
    "BFLOAT16": (np.uint16, (1 << 7) - 1),
    "FLOAT8E4M3FN": (np.uint8, (1 << 3) - 1),
    "FLOAT8E5M2": (np.uint8, (1 << 2) - 1),
}
# Of a weight, at most so many parts of so many bytes are read. A smaller one is one part.
PARTS, PART_BYTES = 16, 1 << 15


def can_be_denormal(dtype: str) -> bool:
    """Whether numbers of the ONNX element type ``dtype`` have denormals that slow processors."""
    return dtype in _GREATEST


def share_of(values: np.ndarray, dtype: str) -> float:
    """Return the share of denormals among ``values``, from 0 to 1; zeros are none.

    They have the storage type of the element type ``dtype``; 0 for a type without denormals.
    """
    if dtype not in _GREATEST or not values.size:
        return 0.0
    kind, greatest = _GREATEST[dtype]
    bits = np.ascontiguousarray(values).reshape(-1).view(kind)
    magnitude = bits & kind(np.iinfo(kind).max >> 1)  # without the sign
    # Zero wraps to the greatest number, so it does not count as a denormal.
    return int(np.count_nonzero(magnitude - kind(1) < kind(greatest))) / bits.size


def with_denormals(values: np.ndarray, dtype: str, share: float, seed: int) -> np.ndarray:
    """Return a copy of ``values``, of which a random ``share`` are denormals of either sign.

    ``values`` have the storage type of the element type ``dtype``, which has denormals.
    """
    kind, greatest = _GREATEST[dtype]
    rng = np.random.default_rng((seed, 2))
    bits = np.array(values).reshape(-1).view(kind)
    tiny = rng.random(bits.size, np.float32) < share
    sign = bits[tiny] & kind(1 << np.iinfo(kind).bits - 1)
    bits[tiny] = rng.integers(1, greatest, sign.size, kind, endpoint=True) | sign
    return bits.view(values.dtype).reshape(values.shape)


def denormal_share(model: Model) -> float | None:
    """Return the share of denormals among the model's floating-point weights, from 0 to 1.

    None if the model has no such weights, or if a weight file is missing. Raises
    :class:`ModelError` for files that cannot be read.
    """
    graph = onnx.ModelProto.FromString(model.skeleton).graph
    denormal, total = 0.0, 0
    for _, type_, share in weight_shares(graph, model.folder, model.name):
        if share is None:
            return None
        denormal += share * type_.elements
        total += type_.elements
    return denormal / total if total else None


def weight_shares(
    graph: onnx.GraphProto, folder: Path, model: str
) -> Iterator[tuple[str, TensorType, float | None]]:
    """Yield the name, type and share of denormals of each weight of ``graph`` in a data file.

    The share is None if the file is not in ``folder``, or is too short. Raises
    :class:`ModelError`, which names the ``model``, for files that cannot be read.
    """
    sizes: dict[str, tuple[Path, int] | None] = {}  # by location, which most weights share
    try:
        for tensor in graph.initializer:
            type_ = type_of(tensor) if is_referenced(tensor) else None
            if type_ is None or type_.dtype not in _GREATEST or not type_.elements:
                continue
            ref = reference(tensor)
            if ref.location not in sizes:
                path = locate(folder, ref.location)
                sizes[ref.location] = None if path is None else (path, path.stat().st_size)
            file = sizes[ref.location]
            if file is None or file[1] < ref.offset + type_.size_bytes:
                yield tensor.name, type_, None
                continue
            yield tensor.name, type_, _share_in(file[0], ref.offset, type_)
    except (PayloadError, OSError) as exc:
        raise ModelError(f"{model}: its weights cannot be read: {exc}") from exc


def _share_in(path: Path, offset: int, type_: TensorType) -> float:
    """The share of denormals in evenly spaced parts of the weight of a type at ``offset``."""
    width = np.dtype(_GREATEST[type_.dtype][0]).itemsize
    count = min(type_.elements, PART_BYTES // width)
    parts = min(PARTS, -(-type_.elements // count))
    denormal = 0.0
    with path.open("rb") as file:
        for start in np.linspace(0, type_.elements - count, parts).astype(int):
            file.seek(offset + int(start) * width)
            values = np.frombuffer(file.read(count * width), np.uint8)
            denormal += share_of(values, type_.dtype)
    return denormal / parts
