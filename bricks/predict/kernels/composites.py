"""Calls that are several of others: layers of transformers in one call.

Their parts are predicted as if they were called one by one. Must not know durations.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from bricks.graph.tensor import ELEMENT_BITS
from bricks.predict.kernels.products import product_work
from bricks.predict.kernels.work import PRECISION, CallWork, KernelFeatures, MatrixProduct, logs

if TYPE_CHECKING:
    from bricks.predict.kernels.call_tensors import CallTensor, TensorCall


def _layer(call: TensorCall) -> Iterator[KernelFeatures]:
    """A layer of an encoder: attention, two products, sums, normalisations."""
    data, inner = call.tensor(0), call.tensor(14)
    assert data is not None and inner is not None
    rows, width = math.prod(data.shape[:-1]), data.shape[-1]
    yield from _attention(data, int(call.argument(2)))
    yield _product(data.dtype, rows, inner.shape[0], width)
    yield _product(data.dtype, rows, width, inner.shape[0])
    for _ in range(2):
        size = data.elements
        yield KernelFeatures("pointwise", "add", _moved(data, 2, (size, size, 2)))
        yield KernelFeatures(
            "normalisation", "native_layer_norm", _moved(data, 1, (size, width, 1))
        )


def _heads(call: TensorCall) -> Iterator[KernelFeatures]:
    """Attention of several heads, with the products before and after it."""
    data = call.tensor(0)
    assert data is not None
    yield from _attention(data, int(call.argument(4)))


def _attention(data: CallTensor, heads: int) -> Iterator[KernelFeatures]:
    batch, length, width = math.prod(data.shape[:-2]), data.shape[-2], data.shape[-1]
    yield _product(data.dtype, batch * length, 3 * width, width)
    yield _fused(data, batch * heads, length, width // heads)
    yield _product(data.dtype, batch * length, width, width)


def _fused(data: CallTensor, heads: int, length: int, size: int) -> KernelFeatures:
    precision = PRECISION.get(data.dtype, "fp32")
    operator = "_scaled_dot_product_efficient_attention"
    moved = 3 * data.elements * data.item_bytes, data.elements * data.item_bytes
    sizes, tags = logs((heads, length, length, size)), (data.dtype, "", "")
    products = (MatrixProduct(heads, length, size, 2 * length, tiled=False),)
    work = CallWork(products, precision, *moved, sizes, tags)
    return KernelFeatures("attention", operator, work)


def _product(dtype: str, m: int, n: int, k: int) -> KernelFeatures:
    item_bytes = ELEMENT_BITS[dtype] / 8
    moved = (m * k + k * n) * item_bytes, m * n * item_bytes
    tags = dtype, "nt", "bias", "aligned"
    return KernelFeatures("product", "addmm", product_work((1, m, n, k), tags, moved))


def _moved(data: CallTensor, reads: int, sizes: tuple[int, int, int]) -> CallWork:
    """The work of a kernel that reads ``reads`` tensors such as ``data``, and writes one."""
    moved = data.elements * data.item_bytes
    return CallWork((), "fp32", reads * moved, moved, logs(sizes), (data.dtype, "", ""))


PARTS: Mapping[str, Callable[[TensorCall], Iterator[KernelFeatures]]] = {
    "_native_multi_head_attention": _heads,
    "_transformer_encoder_layer_fwd": _layer,
}
