"""A model's own weights, read from the files that its skeleton refers to; and their denormals.

Used if values matter: to check outputs, to count denormals, for operators whose work depends on
data.

Arithmetic on them may be a hundred times slower, and so may the conversion of eight-bit floats, so
a model with many of them runs slower than the same architecture with ordinary weights, unless its
runtime flushes them to zero. Numbers are inspected and written as bit patterns, which works for
types that numpy lacks. Of large weights, evenly spaced parts of their file are read. Must not know
its users.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from statistics import fmean as mean
from typing import TYPE_CHECKING

import numpy as np
import onnx

from bricks.errors import ModelError
from bricks.graph.distributions import mask_shares, sign_pattern, slow_share, stepped
from bricks.graph.model import Model
from bricks.graph.payload import (
    PayloadError,
    all_tensors,
    is_referenced,
    locate,
    read_referenced,
    reference,
    store_inline,
    type_of,
)
from bricks.graph.sketch import Sketch
from bricks.graph.view import without_values

if TYPE_CHECKING:
    from bricks.graph.types import TensorType

# Most bytes of weights in a ModelProto; protobuf's limit is twice as large.
_MOST_BYTES = 1 << 30


def own_weights(model: Model) -> dict[str, np.ndarray]:
    """Read the external values of the skeleton, by the initializer's name.

    Arrays have the form of :class:`bricks.graph.synthesis.Pool`, and are copies in memory. Raises
    :class:`ModelError` for data files that are missing or truncated.
    """
    graph = onnx.ModelProto.FromString(model.skeleton).graph
    external = [tensor for tensor in graph.initializer if is_referenced(tensor)]
    try:
        locations = [reference(tensor).location for tensor in external]
        for location in dict.fromkeys(locations):
            if locate(model.folder, location) is None:
                raise ModelError(
                    f"{model.name}: data file '{location}' is missing in {model.folder}:"
                    f" {locations.count(location)} weights lack their values"
                )
        return {tensor.name: _values(model, tensor) for tensor in external}
    except PayloadError as exc:
        raise ModelError(f"{model.name}: {exc}") from exc


def has_own_weights(model: Model) -> bool:
    """Whether the files of all external values of ``model`` exist and are long enough."""
    graph = onnx.ModelProto.FromString(model.skeleton).graph
    try:
        for tensor in all_tensors(graph):
            if is_referenced(tensor):
                ref = reference(tensor)
                path = locate(model.folder, ref.location)
                size = type_of(tensor).size_bytes
                if path is None or path.stat().st_size < ref.offset + size:
                    return False
    except (PayloadError, OSError, KeyError):
        return False
    return True


def with_own_weights(proto: onnx.ModelProto, folder: Path) -> onnx.ModelProto:
    """Return a copy of ``proto`` with its own weights, whose files are in ``folder``.

    Returns ``proto`` itself if a file is missing, or if the weights exceed 1 GiB.
    """
    model = Model(proto.graph.name, folder, proto.SerializeToString(), (), "")
    size_bytes = sum(t.size_bytes for t in without_values(proto).values() if t.dtype != "STRING")
    if size_bytes > _MOST_BYTES or not has_own_weights(model):
        return proto
    return with_values(proto, own_weights(model))


def with_values(proto: onnx.ModelProto, weights: Mapping[str, np.ndarray]) -> onnx.ModelProto:
    """Return a copy of ``proto`` with the values of ``weights``, by name."""
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    for tensor in copy.graph.initializer:
        if tensor.name in weights:
            store_inline(tensor, weights[tensor.name])
    return copy


def _values(model: Model, tensor: onnx.TensorProto) -> np.ndarray:
    values = read_referenced(model.folder, tensor)
    if values is None:  # deleted since the check
        raise ModelError(f"{model.name}: the data file of '{tensor.name}' has disappeared")
    return values


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


def stored_sketch(parts: Iterable[np.ndarray], dtype: str) -> Sketch | None:
    """Return the shares of denormals, and of zeros among eight-bit floats, in a stored weight.

    ``parts`` of it have equal sizes. Rounded; None for ordinary values. Loops that widen eight-bit
    floats branch on zeros.
    """
    shares_of_parts, masks = [], []
    for part in parts:
        shares_of_parts.append(share_of(part, dtype))
        if can_be_denormal(dtype) and part.dtype.itemsize == 1:
            masks.append(np.ravel(part) & 0x7F == 0)
    denormals = slow_share(mean(shares_of_parts)) or None
    zeros = changes = None
    if masks:
        shares = mask_shares(np.concatenate(masks), "zeros", stepped)
        if shares["zeros"]:
            zeros, changes = shares["zeros"], shares["changes"]
    known = denormals is not None or zeros is not None
    return Sketch(denormals=denormals, zeros=zeros, changes=changes) if known else None


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


def with_zeros(values: np.ndarray, sketch: Sketch, seed: int) -> np.ndarray:
    """Return a copy of ``values`` with as many zeros as the ``sketch`` says, in runs as long.

    ``values`` have the storage type of an element type with denormals.
    """
    marked = sign_pattern(values.size, sketch.zeros or 0.0, sketch.changes or 0.0, seed) < 0
    return np.where(marked.reshape(values.shape), values.dtype.type(0), values)


def denormal_share(model: Model) -> float | None:
    """Return the share of denormals among the model's floating-point weights, from 0 to 1.

    None if the model has no such weights, or if a weight file is missing. Raises
    :class:`ModelError` for files that cannot be read.
    """
    graph = onnx.ModelProto.FromString(model.skeleton).graph
    denormal, total = 0.0, 0
    for _, type_, parts in weight_parts(graph, model.folder, model.name):
        if parts is None:
            return None
        denormal += mean(share_of(part, type_.dtype) for part in parts) * type_.elements
        total += type_.elements
    return denormal / total if total else None


def weight_parts(
    graph: onnx.GraphProto, folder: Path, model: str
) -> Iterator[tuple[str, TensorType, Iterator[np.ndarray] | None]]:
    """Yield the name, type and stored parts of each weight of ``graph`` in a data file.

    The parts are equal in size, evenly spaced, and to be read before the next weight. They are None
    if the file is not in ``folder``, or is too short. Raises :class:`ModelError`, which names the
    ``model``, for files that cannot be read.
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
            yield tensor.name, type_, _parts(file[0], ref.offset, type_)
    except (PayloadError, OSError) as exc:
        raise ModelError(f"{model}: its weights cannot be read: {exc}") from exc


def _parts(path: Path, offset: int, type_: TensorType) -> Iterator[np.ndarray]:
    """Evenly spaced parts of the stored elements of the weight of a type at ``offset``."""
    kind = np.dtype(_GREATEST[type_.dtype][0])
    count = min(type_.elements, PART_BYTES // kind.itemsize)
    parts = min(PARTS, -(-type_.elements // count))
    with path.open("rb") as file:
        for start in np.linspace(0, type_.elements - count, parts).astype(int):
            file.seek(offset + int(start) * kind.itemsize)
            yield np.frombuffer(file.read(count * kind.itemsize), kind)
