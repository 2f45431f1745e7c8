"""Stand-ins for weights, to understand a graph with: a file in which all weights are the same.

The runtime maps weight files instead of reading them, so that a model of any size takes the memory
of none of its weights. The file is a hole but for its beginning: elements must not be zero, one or
all equal, since the runtime simplifies the graph for such constants. Integers that may be indices
have values of their own.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import onnx

from bricks.backends.filling import filled
from bricks.graph.domains import Range, integer_ranges
from bricks.graph.payload import is_referenced
from bricks.graph.synthesis import Pool
from bricks.graph.tensor import TensorType
from bricks.graph.view import graph_of, without_values

WEIGHTS = "weights"

# Bytes of ordinary numbers at the beginning; and where arrays may begin.
_ORDINARY_BYTES, _ALIGNMENT = 1 << 20, 4096


@contextmanager
def stand_ins(proto: onnx.ModelProto, pool: Pool) -> Iterator[tuple[onnx.ModelProto, Path]]:
    """A copy of ``proto`` whose weights refer to a file, and the folder with that file.

    Sessions made of it should be gone when the context ends.
    """
    types = without_values(proto)
    integers = [name for name, type_ in types.items() if not type_.floating]
    ranges = integer_ranges(graph_of(proto), integers)
    data = {n: t for n, t in types.items() if t.floating or _any_byte(t, ranges.get(n))}
    largest = max((t.size_bytes for t in data.values()), default=0)
    offsets = dict.fromkeys(data, 0)
    with tempfile.TemporaryDirectory(prefix="bricks-") as place:
        folder = Path(place)
        with (folder / WEIGHTS).open("wb") as file:
            file.write(filled(min(largest, _ORDINARY_BYTES), seed=0).tobytes())
            end = largest
            for name, type_ in types.items():
                if name in data:
                    continue
                offsets[name] = -(-end // _ALIGNMENT) * _ALIGNMENT
                file.seek(offsets[name])
                file.write(pool.weight(name, type_, ranges.get(name)).tobytes())
                end = offsets[name] + type_.size_bytes
            file.truncate(max(end, 1))
        copy = onnx.ModelProto()
        copy.CopyFrom(proto)
        for tensor in copy.graph.initializer:
            if is_referenced(tensor):
                _refer(tensor, offsets[tensor.name], types[tensor.name])
        with _room_to_map(sum(type_.size_bytes for type_ in types.values())):
            yield copy, folder


@contextmanager
def _room_to_map(size_bytes: int) -> Iterator[None]:
    """Let so many bytes be mapped beyond the limit of this process's memory: they take none."""
    try:
        import resource
    except ImportError:  # where there is no such limit
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if soft != resource.RLIM_INFINITY and hard == resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_DATA, (soft + size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _refer(tensor: onnx.TensorProto, offset: int, type_: TensorType) -> None:
    del tensor.external_data[:]
    entries = {"location": WEIGHTS, "offset": str(offset), "length": str(type_.size_bytes)}
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=value)


def _any_byte(type_: TensorType, range_: Range | None) -> bool:
    """Whether any byte will do: quantised data."""
    if type_.dtype not in ("INT8", "UINT8") or range_ is None:
        return False
    return range_.high - range_.low == 256
