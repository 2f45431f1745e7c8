"""Count denormals among a model's own weights: numbers too small for a full mantissa.

Arithmetic on them may be a hundred times slower, so a model with many of them runs slower than the
same architecture with ordinary weights, unless its runtime flushes them to zero. Weight files are
read in chunks. Must not know how the result is used.
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

# For each element type: the unsigned integer of its width, and the greatest denormal as such an
# integer. FLOAT16 is not listed, because its denormals are normal numbers in float32, in which
# processors compute.
_GREATEST: dict[str, tuple[type[np.unsignedinteger], int]] = {
    "FLOAT": (np.uint32, (1 << 23) - 1),
    "DOUBLE": (np.uint64, (1 << 52) - 1),
    "BFLOAT16": (np.uint16, (1 << 7) - 1),
}
CHUNK_BYTES = 16 << 20


def denormal_share(model: Model) -> float | None:
    """Return the share of denormals among the model's floating-point weights, from 0 to 1.

    None if the model has no such weights, or if a weight file is missing. Raises
    :class:`ModelError` for files that cannot be read.
    """
    graph = onnx.ModelProto.FromString(model.skeleton).graph
    denormal = total = 0
    try:
        for tensor in graph.initializer:
            type_ = type_of(tensor) if is_referenced(tensor) else None
            if type_ is None or type_.dtype not in _GREATEST:
                continue
            ref = reference(tensor)
            path = locate(model.folder, ref.location)
            if path is None or path.stat().st_size < ref.offset + type_.size_bytes:
                return None
            kind, greatest = _GREATEST[type_.dtype]
            for values in _chunks(path, ref.offset, type_.size_bytes, kind):
                magnitude = values & kind(np.iinfo(kind).max >> 1)  # without the sign
                # Zero wraps to the greatest number, so it does not count as a denormal.
                denormal += int(np.count_nonzero(magnitude - kind(1) < kind(greatest)))
                total += values.size
    except (PayloadError, OSError) as exc:
        raise ModelError(f"{model.name}: its weights cannot be read: {exc}") from exc
    return denormal / total if total else None


def _chunks(
    path: Path, offset: int, size_bytes: int, kind: type[np.unsignedinteger]
) -> Iterator[np.ndarray]:
    width = np.dtype(kind).itemsize
    for start in range(0, size_bytes, CHUNK_BYTES):
        count = min(CHUNK_BYTES, size_bytes - start) // width
        yield np.fromfile(path, kind, count, offset=offset + start)
