"""Tags and sizes of convolutions and products, in the order of ``features.TAGS`` and ``SIZES``.

ONNX nodes and calls of recorded programs have the same tags and sizes, so that an unmeasured kernel
is predicted from kernels with the same loops. Must not know latencies.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from bricks.graph.program import Call, call_of
from bricks.operators.registry import plain_name

if TYPE_CHECKING:
    from bricks.predict.brick_node import BrickNode, Shape

Description = tuple[tuple[str, ...], tuple[float, ...]]

# Of windows with more rows, the padding is not subtracted.
_MAX_ROWS = 1 << 16


def weight_shape(node: BrickNode) -> Shape:
    """The shape of the weights: the convolution's filter, or the right operand."""
    if node.features.blockwise:
        return int(node.attribute("K", 1)), int(node.attribute("N", 1))
    return node.shape(node.features.operands[1])


def node_convolution(node: BrickNode) -> Description:
    """Describe a convolution of an ONNX model."""
    weight, data = weight_shape(node), node.shape(0)
    window, transposed = weight[2:], node.features.transposed
    # A transposed convolution does the work of others' output pixels for each pixel of its input.
    space = (data if transposed else node.output_shape)[2:]
    groups = max(1, int(node.attribute("group", 1)))
    first, second = weight[:2] if len(weight) > 1 else (groups, 1)
    terms, outputs = (first // groups, second) if transposed else (second, first // groups)
    taps = math.prod(window) if transposed else _reaching(node, data[2:], window)
    pixels = math.prod(node.output_shape[:1]) * math.prod(space)
    stride = math.prod(node.attribute("strides", ()))
    dilation = max(node.attribute("dilations", ()), default=1)
    sizes = (
        pixels, space[-1] if space else 1, terms, outputs, groups, taps, stride, dilation,
    )  # fmt: skip
    channels = data[1] if len(data) > 1 else math.inf
    quantised = node.features.operands[1] != 1
    tags = (
        _form(groups, terms, math.prod(window), channels, blocked=bool(node.layout)),
        f"{node.layout}.{node.operator}",
        node.dtype,
        str(node.attribute("activation", "")),
        str(node.layout != "" and node.has(3) and not quantised),
    )
    return tags, tuple(map(float, sizes))


def _reaching(node: BrickNode, data: Sequence[int], window: Sequence[int]) -> float:
    """The average number of window taps that are computed: kernels skip rows in the padding.

    Where a dilated window exceeds its input, most rows are in the padding. Within a row, skipping
    the padding costs about as much time as it saves.
    """
    rank = len(window)
    strides = tuple(node.attribute("strides", ())) or (1,) * rank
    dilations = tuple(node.attribute("dilations", ())) or (1,) * rank
    pads = tuple(node.attribute("pads", ())) or (0,) * rank
    space = node.output_shape[2:]
    explicit = node.attribute("auto_pad", "NOTSET") in ("NOTSET", "VALID")
    known = explicit and min(map(len, (strides, dilations, pads, data, space))) >= rank
    if not known or max(window, default=0) > _MAX_ROWS:
        return float(math.prod(window))
    reaching = float(window[-1]) if window else 1.0
    outer = zip(window[:-1], strides, dilations, pads, data, space, strict=False)
    for count, stride, dilation, pad, size, steps in outer:
        # A tap reads from ``step * stride - before``, which must lie in the data.
        before, stride = pad - np.arange(count) * dilation, max(1, stride)
        first, last = -(-before // stride), (size - 1 + before) // stride
        steps_in = np.minimum(last, steps - 1) - np.maximum(first, 0) + 1
        reaching *= float(np.maximum(steps_in, 0).sum()) / max(1, steps)
    return reaching


def _form(groups: int, terms: int, taps: int, channels: float, *, blocked: bool = False) -> str:
    """The form of a convolution; runtimes have a separate kernel for each."""
    if groups > 1:
        return "depthwise" if terms == 1 else "grouped pointwise" if taps == 1 else "grouped"
    if channels < 8:
        return "image"
    if blocked and channels < 16:  # less than a block, for blocks of this size
        return "narrow"
    return "pointwise" if taps == 1 else "dense"


def node_product(node: BrickNode) -> Description:
    """Describe a product of matrices of an ONNX model."""
    left, right, out = node.shape(0), weight_shape(node), node.output_shape
    flipped = node.attribute("transA", 0)
    terms = (left[-2] if flipped and len(left) > 1 else left[-1]) if left else 1
    columns = out[-1] if len(right) > 1 and out else 1
    rows = math.prod(out) / max(1, columns)
    batch = math.prod(out[:-2]) if len(right) > 2 else 1
    sizes = (batch, rows / max(1, batch), columns, terms)
    tags = (
        # A vector's product streams the other operand; weights are packed before the first run.
        "vector" if sizes[1] <= 1 else "packed" if node.is_weight(1) else "plain",
        node.layout,
        node.dtype,
        str(node.attribute("activation", "")),
        f"{flipped}{node.attribute('transB', 0)}",
        str(node.is_weight(1)),
    )
    return tags, tuple(map(float, sizes))


def call_convolution(node: BrickNode) -> Description:
    """Describe a convolution of a recorded program, or its gradients."""
    call, gradients = call_of(node.proto), node.features.gradients
    first = node.features.operands[0]
    data, weight = (node.shape(_port(call, at)) for at in node.features.operands)
    output = node.shape(_port(call, 0)) if gradients else node.output_shape
    stride, _, dilation, transposed, _, groups = call.arguments[0][first + 3 : first + 9]
    space = (data if transposed else output)[2:]
    terms, outputs = (weight[0] // groups, weight[1]) if transposed else (
        weight[1], weight[0] // groups,
    )  # fmt: skip
    taps = math.prod(weight[2:])
    sizes = (
        output[0] * math.prod(space), space[-1] if space else 1, terms, outputs, groups, taps,
        math.prod(stride), max(dilation, default=1),
    )  # fmt: skip
    tags = (
        _form(groups, terms, taps, data[1]),
        f"{node.layout}.{plain_name(node.operator)}",
        node.dtype_at(0),
        # Which gradients are asked for decides how much is computed.
        "".join(str(int(asked)) for asked in call.arguments[0][10]) if gradients else "",
        str(_channels_last(call, _port(call, first))),
    )
    return tags, tuple(map(float, sizes))


def call_product(node: BrickNode) -> Description:
    """Describe a product of matrices of a recorded program."""
    call = call_of(node.proto)
    ports = [_port(call, position) for position in node.features.operands]
    left, right = (node.shape(port) for port in ports)
    sizes = (math.prod(left[:-2]), left[-2], right[-1], left[-1])
    tags = (
        "vector" if left[-2] <= 1 or right[-1] <= 1 else "plain",
        node.layout,
        node.dtype_at(0),
        "sum" if len(node.proto.input) > 2 else "",
        "".join(str(int(_transposed(call, port))) for port in ports),
        "False",
    )
    return tags, tuple(map(float, sizes))


def _port(call: Call, position: int) -> int:
    """The number, among a call's tensors, of the argument at a position."""
    reference: dict[str, int] = call.arguments[0][position]
    return int(reference["t"])


def _strides(call: Call, port: int) -> Shape:
    return call.ports[port].strides if call.ports else ()


def _transposed(call: Call, port: int) -> bool:
    """Whether a matrix is stored in column-major order."""
    strides = _strides(call, port)
    return len(strides) > 1 and strides[-2] < strides[-1]


def _channels_last(call: Call, port: int) -> bool:
    strides = _strides(call, port)
    return len(strides) > 2 and strides[1] == 1
