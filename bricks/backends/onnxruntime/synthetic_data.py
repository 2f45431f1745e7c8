"""Synthetic weights and inputs for sessions, and surrogate weights for optimising a graph.

Sessions copy their weights: large ones share memory. Surrogates overlap in one sparse temporary
file. The runtime maps weight files instead of reading them, so that even a large model's weights
take no memory. Only the beginning of the file holds data, because the runtime simplifies the graph
for constants that are zero, one or all equal. Integers that may be indices have values of their
own, in another file. Must not know the model's real weights, nor what runs on synthetic ones.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import weakref
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from zlib import crc32

import numpy as np
import onnx

from bricks.backends.input_values import filled
from bricks.backends.onnxruntime.sessions import at
from bricks.backends.synthetic_data import data_key, synthetic_data
from bricks.graph.input_values import InputMaker
from bricks.graph.model import Graph
from bricks.graph.model_metadata import noted_weights
from bricks.graph.payload import WeightReference, is_referenced, set_reference, value_dtype
from bricks.graph.sketch import Sketch
from bricks.graph.synthesis import Pool, Range
from bricks.graph.types import ELEMENT_BITS, TensorType, ValueType
from bricks.graph.view import graph_of, without_values
from bricks.graph.weights import can_be_denormal, with_denormals, with_zeros
from bricks.operators.integer_ranges import integer_ranges

# The fan-in that the shared block is scaled for. Weights of a smaller fan-in have memory of their
# own, scaled for them.
_BLOCK_ROW = 4096
_MIN_SHARED_BYTES = 1 << 20
# Bytes between the starts of two arrays in the block, and space for some thousands of starts.
_BLOCK_STEP, _BLOCK_SLACK = 64, 1 << 18
_BYTE_BITS = 8

# The scale at which a quantised softmax gets its input. With one that is drawn like a weight, its
# input reaches beyond a hundred, and it takes half as long again, on denormal exponentials.
_EXPONENTIAL, _SCALE = "QLinearSoftmax", 2.0**-6

# By name of an input: a function that makes its value, and its type.
Inputs = Mapping[str, tuple[InputMaker, ValueType]]

WEIGHTS, INTEGERS = "weights", "integers"

# Bytes of ordinary numbers at the beginning, and the alignment of arrays.
_ORDINARY_BYTES, _ALIGNMENT = 1 << 20, 4096


class SyntheticData:
    """Draws weights and inputs from ``pool``; several threads may use it at once."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._block = np.empty(0, np.uint8)
        self._growing = threading.Lock()  # guards growth of the block

    def of(
        self, proto: onnx.ModelProto, key: str, *, share: bool = False, whole: Graph | None = None
    ) -> tuple[dict[str, np.ndarray], Inputs]:
        """Weights by name, and inputs, for ``proto``; see :func:`synthetic_data`.

        With ``share``, large weights are views of one block: only for sessions, which copy them.
        """
        key, graph = data_key(key), graph_of(proto)
        weights, makers = synthetic_data(
            self._pool,
            proto,
            graph,
            key,
            whole=whole,
            shared=self._shared if share else lambda number, type_: None,
        )
        for name, sketch in noted_weights(proto).items():
            if name in weights:
                weights[name] = _drawn(
                    sketch, weights[name], graph.types[name].dtype, crc32(f"{key}/{name}".encode())
                )
        for node in proto.graph.node:
            if node.op_type == _EXPONENTIAL and node.input[1] in weights:
                weights[node.input[1]] = np.full_like(weights[node.input[1]], _SCALE)
        return weights, {name: (make, graph.types[name]) for name, make in makers.items()}

    def _shared(self, number: int, type_: TensorType) -> np.ndarray | None:
        """An array of ``type_`` in the block that large weights share; None for a small type.

        Each ``number`` gives a different array: of weights with equal values in one session, the
        runtime keeps a single prepacked copy, which would stay cached, unlike a real model's
        weights.
        """
        if type_.dtype != "FLOAT" or type_.size_bytes < _MIN_SHARED_BYTES:
            return None
        offset = number * _BLOCK_STEP
        with self._growing:
            if self._block.size < offset + type_.size_bytes:
                size_bytes = type_.size_bytes + max(offset, _BLOCK_SLACK)
                rows = -(-size_bytes // (4 * _BLOCK_ROW))
                block = self._pool.weight("block", TensorType("FLOAT", (rows, 1, _BLOCK_ROW)))
                self._block = block.reshape(-1).view(np.uint8)
            return at(self._block, offset, type_)


def _drawn(sketch: Sketch, values: np.ndarray, dtype: str, seed: int) -> np.ndarray:
    """Weights of the element type ``dtype`` as the ``sketch`` says, otherwise like ``values``."""
    if ELEMENT_BITS[dtype] < _BYTE_BITS:  # packed; their scale makes products denormal
        return values
    if sketch.quantiles or not can_be_denormal(dtype):
        kind = value_dtype(dtype)
        if kind == values.dtype:
            return sketch.drawn(values, seed)
        return (
            sketch.drawn(values.view(kind).astype(np.float32), seed).astype(kind).view(values.dtype)
        )
    if sketch.denormals:  # of all elements, before some become zero
        left = 1.0 - (sketch.zeros or 0.0)
        share = min(1.0, sketch.denormals / left) if left else 0.0
        values = with_denormals(values, dtype, share, seed)
    return with_zeros(values, sketch, seed) if sketch.zeros else values


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
        if not self._weights.exists():
            self._weights.write_bytes(filled(_ORDINARY_BYTES, seed=0).tobytes())
        size_bytes = max((types[name].size_bytes for name in shared), default=0)
        if self._weights.stat().st_size < size_bytes:
            os.truncate(self._weights, size_bytes)
        offsets: dict[str, int] = {}
        with tempfile.TemporaryDirectory(dir=self._folder) as name, ExitStack() as moves:
            folder = Path(name)
            # Moved, since the runtime rejects links to weights as unsafe.
            os.replace(self._weights, folder / WEIGHTS)
            moves.callback(os.replace, folder / WEIGHTS, self._weights)
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
