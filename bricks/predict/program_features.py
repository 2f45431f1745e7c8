"""Features of the calls of recorded programs that are convolutions and products of matrices.

So that a call that was never measured is predicted from others with the same loops: PyTorch passes
what ONNX has as attributes by position. All other calls are streams, as the nodes of a model are.
Must not import PyTorch, and must not know latencies.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import onnx

from bricks.decompose.program_work import plain_operator
from bricks.graph.containers import ValueType
from bricks.graph.program import Call, call_of
from bricks.graph.tensor import TensorType

Shape = tuple[int, ...]
Description = tuple[tuple[str, ...], tuple[float, ...]]

# The positions of the two factors of a product.
_FACTORS = {"mm": (0, 1), "bmm": (0, 1), "addmm": (1, 2), "baddbmm": (1, 2)}
# Where the arguments of a convolution begin: input, weight, bias, strides, and so on.
_CONVOLUTIONS = {"convolution": 0, "convolution_backward": 1}


def is_product(node: onnx.NodeProto) -> bool:
    """Whether a call is a product of matrices."""
    return plain_operator(node.op_type) in _FACTORS


def is_convolution(node: onnx.NodeProto) -> bool:
    """Whether a call is a convolution, or computes its gradients."""
    return plain_operator(node.op_type) in _CONVOLUTIONS


def described_product(node: onnx.NodeProto, types: Mapping[str, ValueType]) -> Description:
    """Tags and sizes of a product, as ``features.TAGS`` and ``features.SIZES`` list them."""
    call = call_of(node)
    ports = [_port(call, position) for position in _FACTORS[plain_operator(call.operator)]]
    left, right = (_shape(types, node, port) for port in ports)
    batch = float(math.prod(left[:-2]))
    sizes = (batch, float(left[-2]), float(right[-1]), float(left[-1]))
    tags = (
        "vector" if left[-2] <= 1 or right[-1] <= 1 else "plain",
        node.domain,
        _dtype(types, node),
        "sum" if len(node.input) > 2 else "",
        "".join(str(int(_transposed(call, port))) for port in ports),
        "False",
    )
    return tags, sizes


def described_convolution(node: onnx.NodeProto, types: Mapping[str, ValueType]) -> Description:
    """Tags and sizes of a convolution or its gradients, in the order of ``features``."""
    call = call_of(node)
    operator = plain_operator(call.operator)
    first = _CONVOLUTIONS[operator]
    data = _shape(types, node, _port(call, first))
    weight = _shape(types, node, _port(call, first + 1))
    made = _shape(types, node, _port(call, 0)) if first else _made(types, node)
    stride, _, dilation, transposed, _, groups = call.arguments[0][first + 3 : first + 9]
    space = (data if transposed else made)[2:]
    terms, outputs = (weight[0] // groups, weight[1]) if transposed else (
        weight[1], weight[0] // groups,
    )  # fmt: skip
    taps = math.prod(weight[2:])
    sizes = (
        made[0] * math.prod(space), space[-1] if space else 1, terms, outputs, groups, taps,
        math.prod(stride), max(dilation, default=1),
    )  # fmt: skip
    tags = (
        _form(groups, terms, taps, data[1]),
        f"{node.domain}.{operator}",
        _dtype(types, node),
        # Which gradients are asked for decides how much is computed.
        "".join(str(int(asked)) for asked in call.arguments[0][10]) if first else "",
        str(_channels_last(call, _port(call, first))),
    )
    return tags, tuple(map(float, sizes))


def _form(groups: int, terms: int, taps: int, channels: int) -> str:
    if groups > 1:
        return "depthwise" if terms == 1 else "grouped pointwise" if taps == 1 else "grouped"
    if channels < 8:
        return "image"
    return "pointwise" if taps == 1 else "dense"


def _port(call: Call, position: int) -> int:
    """Which of a call's tensors the argument at a position is."""
    told: Mapping[str, Any] = call.arguments[0][position]
    return int(told["t"])


def _shape(types: Mapping[str, ValueType], node: onnx.NodeProto, port: int) -> Shape:
    type_ = types[node.input[port]]
    return type_.shape if isinstance(type_, TensorType) else ()


def _made(types: Mapping[str, ValueType], node: onnx.NodeProto) -> Shape:
    type_ = types[next(name for name in node.output if name)]
    return type_.shape if isinstance(type_, TensorType) else ()


def _dtype(types: Mapping[str, ValueType], node: onnx.NodeProto) -> str:
    type_ = types[node.input[0]]
    return type_.dtype if isinstance(type_, TensorType) else ""


def _strides(call: Call, port: int) -> Sequence[int]:
    return call.ports[port].strides if call.ports else ()


def _transposed(call: Call, port: int) -> bool:
    """Whether a matrix lies in memory column by column."""
    strides = _strides(call, port)
    return len(strides) > 1 and strides[-2] < strides[-1]


def _channels_last(call: Call, port: int) -> bool:
    strides = _strides(call, port)
    return len(strides) > 2 and strides[1] == 1
