"""Stand-ins for weights, to understand a graph with: a file in which all weights are the same.

The runtime maps weight files instead of reading them, so that a model of any size takes the memory
of none of its weights. The file is a hole but for its beginning: elements must not be zero, one or
all equal, since the runtime simplifies the graph for such constants. Integers that may be indices
have values of their own, in another file.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
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

WEIGHTS, INTEGERS = "weights", "integers"

# Bytes of ordinary numbers at the beginning; and where arrays may begin.
_ORDINARY_BYTES, _ALIGNMENT = 1 << 20, 4096


class StandIns:
    """Makes stand-ins, with what the values of all models are alike in kept from one to the next.

    That is one file that grows with the largest weight: what a hole holds lies in memory once it
    was read, and making that anew for every model takes as long as optimising some of them.
    """

    def __init__(self, pool: Pool) -> None:
        """Nothing is written yet; the folder goes with this object."""
        self._pool = pool
        self._place = tempfile.mkdtemp(prefix="bricks-")
        weakref.finalize(self, shutil.rmtree, self._place, ignore_errors=True)
        self._weights = Path(self._place) / WEIGHTS

    @contextmanager
    def of(self, proto: onnx.ModelProto) -> Iterator[tuple[onnx.ModelProto, Path]]:
        """A copy of ``proto`` whose weights refer to files, and the folder with those.

        Sessions made of it should be gone when the context ends.
        """
        types = without_values(proto)
        integers = [name for name, type_ in types.items() if not type_.floating]
        ranges = integer_ranges(graph_of(proto), integers)
        own = [name for name in integers if not _any_byte(types[name], ranges.get(name))]
        alike = types.keys() - set(own)
        self._make_room(max((types[name].size_bytes for name in alike), default=0))
        offsets: dict[str, int] = {}
        with tempfile.TemporaryDirectory(dir=self._place) as place, self._lent(Path(place)):
            folder = Path(place)
            with (folder / INTEGERS).open("wb") as file:
                for name in own:
                    offsets[name] = -(-file.tell() // _ALIGNMENT) * _ALIGNMENT
                    file.seek(offsets[name])
                    file.write(self._pool.weight(name, types[name], ranges.get(name)).tobytes())
            copy = onnx.ModelProto()
            copy.CopyFrom(proto)
            for tensor in copy.graph.initializer:
                if is_referenced(tensor):
                    _refer(tensor, offsets.get(tensor.name), types[tensor.name])
            with _room_to_map(sum(type_.size_bytes for type_ in types.values())):
                yield copy, folder

    @contextmanager
    def _lent(self, folder: Path) -> Iterator[None]:
        """The file in ``folder``: moved, since links to weights are refused as an attack."""
        os.replace(self._weights, folder / WEIGHTS)
        try:
            yield
        finally:
            os.replace(folder / WEIGHTS, self._weights)

    def _make_room(self, size_bytes: int) -> None:
        if not self._weights.exists():
            self._weights.write_bytes(filled(_ORDINARY_BYTES, seed=0).tobytes())
        if self._weights.stat().st_size < size_bytes:
            os.truncate(self._weights, size_bytes)


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


def _refer(tensor: onnx.TensorProto, offset: int | None, type_: TensorType) -> None:
    """To the integers at ``offset``, or to the beginning of what all others share."""
    location = WEIGHTS if offset is None else INTEGERS
    length = str(type_.size_bytes)
    entries = {"location": location, "offset": str(offset or 0), "length": length}
    del tensor.external_data[:]
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=value)


def _any_byte(type_: TensorType, range_: Range | None) -> bool:
    """Whether any byte will do: quantised data."""
    if type_.dtype not in ("INT8", "UINT8") or range_ is None:
        return False
    return range_.high - range_.low == 256
