"""Work of convolutions and of their gradients, as cuDNN runs them.

A convolution is a product of matrices: pixels by outputs, over the terms of a window. Its kernels
want channels innermost, and a multiple of 16 bytes of them: images in the other layout are copied
before and after, others are padded by a copy. Only where a window is one pixel are images already
matrices. Groups run one after another, those of one channel without tensor cores.

Source: NVIDIA, *Convolutional Layers User's Guide* (implicit products, channels in and out, layouts
of tensors). Must not know durations.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bricks.predict.kernels.work import PRECISION, CallWork, MatrixProduct, logs

if TYPE_CHECKING:
    from bricks.predict.kernels.call_tensors import CallTensor, TensorCall

# Bytes of the channels of a pixel are a multiple of this for kernels on tensor cores.
_ALIGNED = 16


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
        """The channels after padding."""
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
    return _product(window, window.pixels, window.outputs, window.terms * window.taps)


def _gradients(window: _Window, asked: Sequence[bool]) -> tuple[MatrixProduct, ...]:
    """The products for the gradients of data and of weights, as far as ``asked`` for."""
    terms, outputs, taps = window.terms, window.outputs, window.taps
    of_data = _product(window, window.outer, terms, outputs * taps * window.pixels / window.outer)
    of_weights = _product(window, outputs, terms * taps, window.pixels)
    both = zip((of_data, of_weights), asked, strict=False)
    return tuple(product for product, wanted in both if wanted)


def _product(window: _Window, m: float, n: float, k: float) -> MatrixProduct:
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
