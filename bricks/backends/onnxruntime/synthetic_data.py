"""Synthetic weights and inputs for sessions, which copy their weights: large ones share memory.

Must not know what runs on them.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np

from bricks.backends.onnxruntime.sessions import at
from bricks.backends.synthetic_data import data_key, synthetic_data
from bricks.graph.containers import ValueType
from bricks.graph.denormals import can_be_denormal, with_denormals, with_zeros
from bricks.graph.feeds import InputMaker
from bricks.graph.model_metadata import noted_weights
from bricks.graph.payload import value_dtype
from bricks.graph.tensor import ELEMENT_BITS, TensorType
from bricks.graph.view import graph_of

if TYPE_CHECKING:
    import onnx

    from bricks.graph.graph import Graph
    from bricks.graph.sketch import Sketch
    from bricks.graph.synthesis import Pool

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
