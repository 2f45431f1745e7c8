"""Surrogate weights for optimising a graph: they overlap in one sparse temporary file.

The runtime maps weight files instead of reading them, so that even a large model's weights take no
memory. Only the beginning of the file holds data, because the runtime simplifies the
graph for constants that are zero, one or all equal. Integers that may be indices have values of
their own, in another file. Must not know the model's real weights.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import onnx

from bricks.backends.filling import filled
from bricks.graph.payload import WeightReference, is_referenced, set_reference
from bricks.graph.view import graph_of, without_values
from bricks.operators.integer_ranges import integer_ranges

if TYPE_CHECKING:
    from bricks.graph.synthesis import Pool, Range
    from bricks.graph.tensor import TensorType

WEIGHTS, INTEGERS = "weights", "integers"

# Bytes of ordinary numbers at the beginning, and the alignment of arrays.
_ORDINARY_BYTES, _ALIGNMENT = 1 << 20, 4096


class SurrogateWeights:
    """Creates surrogates, and reuses the file that they share from one model to the next.

    The file grows with the largest weight. Its sparse pages occupy memory once they were read, and
    recreating them for every model would take as long as optimising some models.
    """

    def __init__(self, pool: Pool) -> None:
        """Writes nothing yet; the folder is removed with this object."""
        self._pool = pool
        self._folder = tempfile.mkdtemp(prefix="bricks-")
        weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        self._weights = Path(self._folder) / WEIGHTS

    @contextmanager
    def of(self, proto: onnx.ModelProto) -> Iterator[tuple[onnx.ModelProto, Path]]:
        """A copy of ``proto`` whose weights refer to files, and the folder of these files.

        Close sessions created from it before the context ends.
        """
        types = without_values(proto)
        integers = [name for name, type_ in types.items() if not type_.floating]
        ranges = integer_ranges(graph_of(proto), integers)
        own = [name for name in integers if not _any_byte(types[name], ranges.get(name))]
        shared = types.keys() - set(own)
        self._grow(max((types[name].size_bytes for name in shared), default=0))
        offsets: dict[str, int] = {}
        with tempfile.TemporaryDirectory(dir=self._folder) as name, self._moved_to(Path(name)):
            folder = Path(name)
            with (folder / INTEGERS).open("wb") as file:
                for name in own:
                    offsets[name] = -(-file.tell() // _ALIGNMENT) * _ALIGNMENT
                    file.seek(offsets[name])
                    file.write(self._pool.weight(name, types[name], ranges.get(name)).tobytes())
            copy = onnx.ModelProto()
            copy.CopyFrom(proto)
            for tensor in copy.graph.initializer:
                if is_referenced(tensor):
                    location = INTEGERS if tensor.name in offsets else WEIGHTS
                    offset, size_bytes = offsets.get(tensor.name, 0), types[tensor.name].size_bytes
                    set_reference(tensor, WeightReference(location, offset, size_bytes))
            with _raised_memory_limit(sum(type_.size_bytes for type_ in types.values())):
                yield copy, folder

    @contextmanager
    def _moved_to(self, folder: Path) -> Iterator[None]:
        """Move the file to ``folder``, since the runtime rejects links to weights as unsafe."""
        os.replace(self._weights, folder / WEIGHTS)
        try:
            yield
        finally:
            os.replace(folder / WEIGHTS, self._weights)

    def _grow(self, size_bytes: int) -> None:
        if not self._weights.exists():
            self._weights.write_bytes(filled(_ORDINARY_BYTES, seed=0).tobytes())
        if self._weights.stat().st_size < size_bytes:
            os.truncate(self._weights, size_bytes)


@contextmanager
def _raised_memory_limit(size_bytes: int) -> Iterator[None]:
    """Raise the limit of this process's memory by ``size_bytes``: mapped bytes occupy none."""
    try:
        import resource
    except ImportError:  # the platform has no such limit
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if soft != resource.RLIM_INFINITY and hard == resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_DATA, (soft + size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _any_byte(type_: TensorType, range_: Range | None) -> bool:
    """Whether each byte is a valid value of the tensor: quantised data."""
    is_byte = type_.dtype in ("INT8", "UINT8")
    return is_byte and range_ is not None and range_.high - range_.low == 256
