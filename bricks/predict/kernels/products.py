"""Work of matrix products, convolutions and attention.

Must not know durations.
"""

from __future__ import annotations

import math

from bricks.predict.kernels.call_tensors import CallTensor, TensorCall
from bricks.predict.kernels.work import PRECISION, CallWork, logs

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
    return CallWork(2.0 * math.prod(sizes), precision, *moved, logs(sizes), tags)


def _letter(matrix: CallTensor) -> str:
    return "t" if matrix.column_major else "n"


def _aligned(matrix: CallTensor) -> bool:
    strides = [stride for stride in matrix.strides if stride > 1]
    return all(stride * matrix.item_bytes % _ALIGNED == 0 for stride in strides)


def convolution(call: TensorCall) -> CallWork:
    """A convolution: pixels, width, outputs, terms, groups, taps, stride."""
    data, weight = call.tensor(0), call.tensor(1)
    assert data is not None and weight is not None
    return _convolution(call, data, weight, call.outputs[0], first=3)


def convolution_gradients(call: TensorCall) -> CallWork:
    """The gradients of a convolution; tags say which gradients are asked for."""
    output, data, weight = (call.tensor(at) for at in range(3))
    assert data is not None and weight is not None and output is not None
    return _convolution(call, data, weight, output, first=4)


def _convolution(
    call: TensorCall, data: CallTensor, weight: CallTensor, output: CallTensor, *, first: int
) -> CallWork:
    stride, _, _, transposed, _, groups = (call.argument(at) for at in range(first, first + 6))
    asked = call.argument(first + 6, [True])
    taps = math.prod(weight.shape[2:])
    inner = data if transposed else output
    pixels = inner.shape[0] * math.prod(inner.shape[2:])
    terms, outputs = weight.shape[1], weight.shape[0] // groups
    if transposed:
        terms, outputs = weight.shape[0] // groups, weight.shape[1]
    passes = sum(asked[:2]) if first == 4 else 1
    tags = (
        data.dtype,
        _form(groups, terms, outputs, taps),
        "nhwc" if data.channels_last else "nchw",
        "".join(str(int(each)) for each in asked),
        "transposed" if transposed else "",
        "aligned" if terms * data.item_bytes % _ALIGNED == 0 else "odd",
        "aligned" if outputs * data.item_bytes % _ALIGNED == 0 else "odd",
    )
    sizes = pixels, inner.shape[-1] if len(inner.shape) > 2 else 1, outputs, terms, groups, taps
    precision = PRECISION.get(data.dtype, "tf32" if groups == 1 else "fp32")
    return CallWork(
        2.0 * passes * pixels * outputs * terms * groups * taps, precision, call.read_bytes,
        call.written_bytes, (*logs(sizes), *logs([math.prod(stride)])), tags,
    )  # fmt: skip


def _form(groups: int, terms: int, outputs: int, taps: int) -> str:
    if groups > 1:
        return "depthwise" if terms == outputs == 1 else "grouped"
    if terms < 8:
        return "image"
    return "pointwise" if taps == 1 else "dense"


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
    flops = 2.0 * products * heads * queries * keys * query.shape[-1] * share
    grouped = "grouped" if key.shape[:-2] != query.shape[:-2] else ""
    tags = (query.dtype, "causal" if _causal(call) else "", grouped)
    sizes = logs((heads, queries, keys, query.shape[-1]))
    precision = PRECISION.get(query.dtype, "fp32")
    return CallWork(flops, precision, call.read_bytes, call.written_bytes, sizes, tags)


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
