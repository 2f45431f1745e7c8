"""Convert sparse initializers to dense ones, as every runtime does when it loads them.

Later stages then handle one kind of constant. Must not know nodes.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx

from bricks.errors import ModelError
from bricks.graph.payload import (
    is_referenced,
    numpy_dtype,
    read_inline,
    read_referenced,
    reference,
    storage_shape,
    store_inline,
    type_of,
)
from bricks.graph.tensor import ELEMENT_BITS, TensorType
from bricks.graph.topology import subgraphs

# Limit of a dense tensor in memory: a few numbers may declare a huge matrix.
MAX_BYTES = 1 << 26


def make_dense(graph: onnx.GraphProto, folder: Path, file: str) -> None:
    """Replace the sparse initializers of ``graph`` and its subgraphs by dense ones.

    Raises :class:`ModelError` for invalid ones, and for dense tensors over 64 MiB.
    """
    for sparse in graph.sparse_initializer:
        graph.initializer.append(_dense(sparse, folder, file))
    del graph.sparse_initializer[:]
    for node in graph.node:
        for subgraph in subgraphs(node):
            make_dense(subgraph, folder, file)


def _dense(sparse: onnx.SparseTensorProto, folder: Path, file: str) -> onnx.TensorProto:
    name, dims = sparse.values.name, tuple(sparse.dims)
    subject = f"{file}: sparse initializer '{name}'"
    if any(dim < 0 for dim in dims):
        raise ModelError(f"{subject} has negative dimensions")
    kind = TensorType(type_of(sparse.values).dtype, dims)
    if ELEMENT_BITS.get(kind.dtype, 0) < 8:
        raise ModelError(f"{subject} holds {kind.dtype}: not supported")
    if kind.size_bytes > MAX_BYTES:
        raise ModelError(
            f"{subject} takes {kind.size_bytes} bytes when dense: make it dense in the file"
        )
    values = _read(sparse.values, folder, file).reshape(-1)
    indices = _read(sparse.indices, folder, file)
    dense = np.zeros(storage_shape(kind), numpy_dtype(kind.dtype))
    try:
        if indices.ndim == 2:
            dense[tuple(indices.T)] = values
        else:
            dense.reshape(-1)[indices] = values
    except (IndexError, ValueError) as exc:
        raise ModelError(f"{subject} has positions outside its shape: {list(dims)}") from exc
    tensor = onnx.TensorProto(name=name, data_type=sparse.values.data_type, dims=dims)
    store_inline(tensor, dense)
    return tensor


def _read(tensor: onnx.TensorProto, folder: Path, file: str) -> np.ndarray:
    if not is_referenced(tensor):
        return read_inline(tensor)
    values = read_referenced(folder, tensor)
    if values is None:
        location = reference(tensor).location
        raise ModelError(f"{file}: the data file '{location}' of '{tensor.name}' is missing")
    return values
