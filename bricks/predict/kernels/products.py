"""Work of matrix products, convolutions and attention, and of whole layers of transformers.

A convolution is a product of matrices: pixels by outputs, over the terms of a window. Its kernels
want channels innermost, and a multiple of 16 bytes of them: images in the other layout are copied
before and after, others are padded by a copy. Only where a window is one pixel are images already
matrices. Groups run one after another, those of one channel without tensor cores.

Source: NVIDIA, *Convolutional Layers User's Guide* (implicit products, channels in and out, layouts
of tensors).

Calls of whole layers are several others: their parts are predicted as if they were called one by
one. Must not know durations.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bricks.graph.types import ELEMENT_BITS
from bricks.predict.kernels.work import PRECISION, CallWork, KernelFeatures, MatrixProduct, logs

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


def _layer(call: TensorCall) -> Iterator[KernelFeatures]:
    """A layer of an encoder: attention, two products, sums, normalisations."""
    data, inner = call.tensor(0), call.tensor(14)
    assert data is not None and inner is not None
    rows, width = math.prod(data.shape[:-1]), data.shape[-1]
    yield from _attention_layer(data, int(call.argument(2)))
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
    yield from _attention_layer(data, int(call.argument(4)))


def _attention_layer(data: CallTensor, heads: int) -> Iterator[KernelFeatures]:
    batch, length, width = math.prod(data.shape[:-2]), data.shape[-2], data.shape[-1]
    yield _product(data.dtype, batch * length, 3 * width, width)
    size, item_bytes = width // heads, data.item_bytes
    moved = 3 * data.elements * item_bytes, data.elements * item_bytes
    products = (MatrixProduct(batch * heads, length, size, 2 * length, tiled=False),)
    precision, tags = PRECISION.get(data.dtype, "fp32"), (data.dtype, "", "")
    work = CallWork(products, precision, *moved, logs((batch * heads, length, length, size)), tags)
    yield KernelFeatures("attention", "_scaled_dot_product_efficient_attention", work)
    yield _product(data.dtype, batch * length, width, width)


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


@dataclass(frozen=True, slots=True)
class _Window:
    """Sizes of a convolution: of one group ``terms`` and ``outputs`` are channels in and out.

    ``outer`` pixels are those that the window slides over, ``pixels`` where it stops.
    """

    images: int
    groups: int
    outer: int
    pixels: int
    terms: int
    outputs: int
    taps: int
    item_bytes: float

    @property
    def depthwise(self) -> bool:
        return self.groups > 1 and self.terms == 1

    def padded(self, channels: int) -> int:
        step = max(1, int(_ALIGNED / self.item_bytes))
        return math.ceil(channels / step) * step

    @property
    def data_bytes(self) -> float:
        return self.outer * self.groups * self.padded(self.terms) * self.item_bytes

    @property
    def output_bytes(self) -> float:
        return self.pixels * self.groups * self.padded(self.outputs) * self.item_bytes

    @property
    def weight_bytes(self) -> float:
        channels = self.padded(self.outputs) * self.padded(self.terms)
        return self.groups * channels * self.taps * self.item_bytes


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
    inner, outer = (data, output) if transposed else (output, data)
    window = _Window(
        inner.shape[0], groups, _pixels(outer), _pixels(inner), outer.shape[1] // groups,
        inner.shape[1] // groups, math.prod(weight.shape[2:]), data.item_bytes,
    )  # fmt: skip
    direct = window.taps == 1 and math.prod(stride) == 1
    products = _gradients(window, asked) if first == 4 else (_forward(window),)
    copies = _copies(window, data.channels_last, direct, asked if first == 4 else None)
    biased = asked[2:3] == [True] if first == 4 else call.tensor(2) is not None
    if biased:
        copies = [*copies, (window.output_bytes, 0.0 if first == 4 else window.output_bytes)]
    tags = (
        data.dtype,
        _form(window),
        "nhwc" if data.channels_last else "nchw",
        "".join(str(int(each)) for each in asked),
        "transposed" if transposed else "",
        "aligned" if window.padded(window.terms) == window.terms else "odd",
        "aligned" if window.padded(window.outputs) == window.outputs else "odd",
    )
    width = inner.shape[-1] if len(inner.shape) > 2 else 1
    sizes = window.pixels, width, window.outputs, window.terms, groups, window.taps
    read, written = (sum(side) for side in zip((0.0, 0.0), *copies, strict=True))
    return CallWork(
        products, PRECISION.get(data.dtype, "tf32" if groups == 1 else "fp32"),
        call.read_bytes + read, call.written_bytes + written,
        (*logs(sizes), *logs([math.prod(stride)])), tags,
        len(copies) + sum(product.times for product in products),
    )  # fmt: skip


def _pixels(image: CallTensor) -> int:
    return image.shape[0] * math.prod(image.shape[2:])


def _form(window: _Window) -> str:
    if window.groups > 1:
        return "depthwise" if window.terms == window.outputs == 1 else "grouped"
    if window.terms < 8:
        return "image"
    return "pointwise" if window.taps == 1 else "dense"


def _forward(window: _Window) -> MatrixProduct:
    return _convolution_product(window, window.pixels, window.outputs, window.terms * window.taps)


def _gradients(window: _Window, asked: Sequence[bool]) -> tuple[MatrixProduct, ...]:
    """The products for the gradients of data and of weights, as far as ``asked`` for."""
    terms, outputs, taps = window.terms, window.outputs, window.taps
    of_data = _convolution_product(
        window, window.outer, terms, outputs * taps * window.pixels / window.outer
    )
    of_weights = _convolution_product(window, outputs, terms * taps, window.pixels)
    both = zip((of_data, of_weights), asked, strict=False)
    return tuple(product for product, wanted in both if wanted)


def _convolution_product(window: _Window, m: float, n: float, k: float) -> MatrixProduct:
    if window.depthwise:
        return MatrixProduct(window.groups, m, n, k, tiled=False)
    return MatrixProduct(1, m, n, k, times=window.groups)


def _copies(
    window: _Window, channels_last: bool, direct: bool, asked: Sequence[bool] | None
) -> list[tuple[float, float]]:
    """Bytes read and written by each copy to another layout, or to more channels."""
    if window.depthwise:
        return []
    aligned = [window.padded(each) == each for each in (window.terms, window.outputs)]
    if direct and window.groups == 1:
        pixels = window.pixels // window.images
        if channels_last or window.padded(pixels) == pixels:
            return []
    data, output = (not channels_last or not each for each in aligned)
    weight = not channels_last or not all(aligned)
    every = [
        (window.data_bytes, data), (window.weight_bytes, weight), (window.output_bytes, output),
    ]  # fmt: skip
    once = [(size, size) for size, needed in every if needed]
    return once * (1 if asked is None else sum(asked[:2]))
