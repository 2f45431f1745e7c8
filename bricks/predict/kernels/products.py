"""Work of matrix products and attention.

Must not know durations.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from bricks.predict.kernels.work import PRECISION, CallWork, MatrixProduct, logs

if TYPE_CHECKING:
    from bricks.predict.kernels.call_tensors import CallTensor, TensorCall

_ALIGNED = 16  # bytes that a thread loads at once


def product(call: TensorCall) -> CallWork:
    """A product of matrices, perhaps of many, perhaps with a bias: ``batch``, m, n, k."""
    first = 1 if call.operator in {"addmm", "baddbmm", "addmv"} else 0
    left, right = call.tensor(first), call.tensor(first + 1)
    assert left is not None and right is not None
    k, m = left.shape[-1], left.shape[-2] if len(left.shape) > 1 else 1
    n = right.shape[-1] if len(right.shape) > 1 else 1
    aligned = all(_aligned(tensor) for tensor in (left, right))
    tags = left.dtype, f"{_letter(left)}{_letter(right)}", "bias" if first else ""
    moved = call.read_bytes, call.written_bytes
    sizes = math.prod(left.shape[:-2]), m, n, k
    return product_work(sizes, (*tags, "aligned" if aligned else "odd"), moved)


def product_work(
    sizes: tuple[int, int, int, int], tags: tuple[str, ...], moved: tuple[float, float]
) -> CallWork:
    """The work of ``batch`` products of m x k and k x n matrices; ``tags`` begin with the type.

    ``moved`` are bytes read and written.
    """
    precision = PRECISION.get(tags[0], "fp32")
    return CallWork((MatrixProduct(*sizes),), precision, *moved, logs(sizes), tags)


def _letter(matrix: CallTensor) -> str:
    return "t" if matrix.column_major else "n"


def _aligned(matrix: CallTensor) -> bool:
    strides = [stride for stride in matrix.strides if stride > 1]
    return all(stride * matrix.item_bytes % _ALIGNED == 0 for stride in strides)


def attention(call: TensorCall) -> CallWork:
    """Attention by one kernel: heads of all sequences, queries, keys, size of a head."""
    query, key = call.tensor(0), call.tensor(1)
    assert query is not None and key is not None
    return _attention(call, query, key, products=2)


def attention_gradients(call: TensorCall) -> CallWork:
    """The gradients of attention: five products instead of two."""
    query, key = call.tensor(1), call.tensor(2)
    assert query is not None and key is not None
    return _attention(call, query, key, products=5)


def _attention(call: TensorCall, query: CallTensor, key: CallTensor, *, products: int) -> CallWork:
    heads, queries, keys = math.prod(query.shape[:-2]), query.shape[-2], key.shape[-2]
    share = 0.5 if _causal(call) else 1.0
    product = MatrixProduct(heads, queries, query.shape[-1], products * keys * share, tiled=False)
    grouped = "grouped" if key.shape[:-2] != query.shape[:-2] else ""
    tags = (query.dtype, "causal" if _causal(call) else "", grouped)
    sizes = logs((heads, queries, keys, query.shape[-1]))
    precision = PRECISION.get(query.dtype, "fp32")
    return CallWork((product,), precision, call.read_bytes, call.written_bytes, sizes, tags)


# The position of ``is_causal`` among the arguments.
_CAUSAL_AT = {
    "_scaled_dot_product_cudnn_attention": 6,
    "_scaled_dot_product_efficient_attention": 6,
    "_scaled_dot_product_flash_attention": 4,
    "_scaled_dot_product_cudnn_attention_backward": 14,
    "_scaled_dot_product_efficient_attention_backward": 11,
    "_scaled_dot_product_flash_attention_backward": 11,
}


def _causal(call: TensorCall) -> bool:
    at = _CAUSAL_AT[call.operator]
    return call.argument(at) is True or call.call.arguments[1].get("is_causal") is True
