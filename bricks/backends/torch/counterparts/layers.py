"""Counterparts of layers with weights, pools, normalisations, matrix products, recurrent layers.

PyTorch has the gates of recurrent layers in another order. See
:mod:`bricks.backends.torch.counterparts`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn import functional as F

from bricks.backends.torch.counterparts.node import OPERATORS, TorchNode, operator
from bricks.backends.windows import window_of

_ByRank = dict[int, Callable[..., torch.Tensor]]

_CONVOLUTIONS: _ByRank = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
_TRANSPOSED: _ByRank = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}
_MAXIMA: _ByRank = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
_MEANS: _ByRank = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}
_GLOBAL_MEANS: _ByRank = {
    1: F.adaptive_avg_pool1d, 2: F.adaptive_avg_pool2d, 3: F.adaptive_avg_pool3d,
}  # fmt: skip


_SINGLE_CALLS: dict[str, Callable[[TorchNode], torch.Tensor]] = {
    "Einsum": lambda n: torch.einsum(n.attribute("equation"), *n.tensors()),
    "GlobalMaxPool": lambda n: n.tensor().amax(tuple(range(2, n.tensor().ndim)), keepdim=True),
    "InstanceNormalization": lambda n: F.instance_norm(
        n.tensor(), weight=n.tensor(1), bias=n.tensor(2), eps=n.attribute("epsilon", 1e-5)
    ),
    "LpNormalization": lambda n: F.normalize(
        n.tensor(), n.attribute("p", 2), n.attribute("axis", -1)
    ),
    "MatMul": lambda n: torch.matmul(n.tensor(0), n.tensor(1)),
}
OPERATORS.update(_SINGLE_CALLS)


def _of_rank(n: TorchNode, functions: _ByRank, rank: int) -> Callable[..., torch.Tensor]:
    if rank not in functions:
        raise n.refused(f"{rank} spatial axes")
    return functions[rank]


def _padded(
    x: torch.Tensor, begin: Sequence[int], end: Sequence[int], value: float
) -> torch.Tensor:
    """Pad the spatial axes of ``x``: PyTorch's layers pad both ends equally."""
    pairs = zip(reversed(begin), reversed(end), strict=True)
    return F.pad(x, [size for pair in pairs for size in pair], value=value)


@operator("Conv")
def convolution(n: TorchNode) -> torch.Tensor:
    """Convolve; padding that differs between the ends is a call before it."""
    x, w = n.tensor(0), n.tensor(1)
    compute = _of_rank(n, _CONVOLUTIONS, x.ndim - 2)
    strides, dilations, begin, end = window_of(n.attribute, n.tensor().shape[2:], w.shape[2:])
    if begin != end:
        x, begin = _padded(x, begin, end, 0.0), [0] * len(begin)
    return compute(x, w, n.optional(2), strides, begin, dilations, n.attribute("group", 1))


@operator("ConvTranspose")
def transposed_convolution(n: TorchNode) -> torch.Tensor:
    """Convolve transposed, with equal padding at both ends."""
    x, w = n.tensor(0), n.tensor(1)
    kernel = w.shape[2:]
    n.default_only(auto_pad="NOTSET")
    if n.attribute("output_shape") is not None:
        raise n.refused("output_shape")
    strides, dilations, begin, end = window_of(n.attribute, n.tensor().shape[2:], kernel)
    # Cropping less at the end is the same as adding more there.
    more = list(n.attribute("output_padding", [0] * len(kernel)))
    more = [m + b - e for m, b, e in zip(more, begin, end, strict=True)]
    if any(not 0 <= m < max(s, d) for m, s, d in zip(more, strides, dilations, strict=True)):
        raise n.refused("padding that differs too much at both ends")
    compute = _of_rank(n, _TRANSPOSED, x.ndim - 2)
    group = n.attribute("group", 1)
    return compute(x, w, n.optional(2), strides, begin, more, group, dilations)


def _pool_window(n: TorchNode) -> tuple[list[int], list[int], list[int], list[int], list[int]]:
    kernel = list(n.attribute("kernel_shape"))
    if n.attribute("ceil_mode", 0) and n.attribute("auto_pad", "NOTSET") != "NOTSET":
        raise n.refused("ceil_mode and auto_pad")
    strides, dilations, begin, end = window_of(n.attribute, n.tensor().shape[2:], kernel)
    if n.attribute("ceil_mode", 0) and begin != end:
        raise n.refused("ceil_mode and padding that differs at both ends")
    return kernel, strides, dilations, begin, end


def _more_than_half(kernel: Sequence[int], begin: Sequence[int]) -> bool:
    return any(2 * b > k for k, b in zip(kernel, begin, strict=True))


@operator("MaxPool")
def greatest(n: TorchNode) -> torch.Tensor:
    """Pool maxima; padding that differs between the ends is a call before it."""
    if any(n.outputs[1:]):
        raise n.refused("its indices as an output")
    kernel, strides, dilations, begin, end = _pool_window(n)
    x = n.tensor()
    compute = _of_rank(n, _MAXIMA, x.ndim - 2)
    if begin != end or _more_than_half(kernel, begin):
        x, begin = _padded(x, begin, end, -math.inf), [0] * len(begin)
    ceil = bool(n.attribute("ceil_mode", 0))
    return compute(x, kernel, strides, begin, dilations, ceil)


@operator("AveragePool")
def mean(n: TorchNode) -> torch.Tensor:
    """Pool means, with ``count_include_pad`` also of the padding."""
    kernel, strides, dilations, begin, end = _pool_window(n)
    if any(each != 1 for each in dilations):
        raise n.refused("dilations")
    counted = bool(n.attribute("count_include_pad", 0))
    x = n.tensor()
    compute = _of_rank(n, _MEANS, x.ndim - 2)
    if begin != end or _more_than_half(kernel, begin):
        if not counted:
            raise n.refused("padding that differs at both ends and does not count")
        x, begin = _padded(x, begin, end, 0.0), [0] * len(begin)
    ceil = bool(n.attribute("ceil_mode", 0))
    return compute(x, kernel, strides, begin, ceil, counted)


@operator("GlobalAveragePool")
def global_mean(n: TorchNode) -> torch.Tensor:
    """Average each channel."""
    x = n.tensor()
    return _of_rank(n, _GLOBAL_MEANS, x.ndim - 2)(x, 1)


@operator("Gemm")
def sum_and_product(n: TorchNode) -> torch.Tensor:
    """Multiply two matrices and add a third input."""
    a, b = n.tensor(0), n.tensor(1)
    a = a.t() if n.attribute("transA", 0) else a
    b = b.t() if n.attribute("transB", 0) else b
    alpha, beta = n.attribute("alpha", 1.0), n.attribute("beta", 1.0)
    if not n.has(2):
        product = torch.mm(a, b)
        return product if alpha == 1 else product * alpha
    return torch.addmm(n.tensor(2), a, b, beta=beta, alpha=alpha)


@operator("BatchNormalization")
def batch_normalization(n: TorchNode) -> torch.Tensor:
    """Normalise by mean and variance inputs, as in inference."""
    n.default_only(training_mode=0, spatial=1)
    if any(n.outputs[1:]):
        raise n.refused("statistics as outputs")
    x, scale, bias, mean, variance = (n.tensor(k) for k in range(5))
    return F.batch_norm(x, mean, variance, scale, bias, False, 0.0, n.attribute("epsilon", 1e-5))


@operator("LayerNormalization")
def layer_normalization(n: TorchNode) -> torch.Tensor:
    """Normalise over all axes from ``axis`` on."""
    x, scale, bias = n.tensor(0), n.tensor(1), n.optional(2)
    if any(n.outputs[1:]):
        raise n.refused("statistics as outputs")
    shape = list(x.shape[n.attribute("axis", -1) :])
    if any(list(each.shape) != shape for each in (scale, bias) if each is not None):
        raise n.refused("a scale that is broadcast")
    return F.layer_norm(x, shape, scale, bias, n.attribute("epsilon", 1e-5))


@operator("RMSNormalization")
def rms_normalization(n: TorchNode) -> torch.Tensor:
    """Normalise by the root mean square over all axes from ``axis`` on."""
    x, scale = n.tensor(0), n.tensor(1)
    shape = list(x.shape[n.attribute("axis", -1) :])
    if list(scale.shape) != shape:
        raise n.refused("a scale that is broadcast")
    return F.rms_norm(x, shape, scale, n.attribute("epsilon", 1e-5))


@operator("GroupNormalization")
def group_normalization(n: TorchNode) -> torch.Tensor:
    """Normalise groups of channels; before version 21 with one scale for each group."""
    if n.opset < 21:
        raise n.refused("one scale for each group")
    x, scale, bias = (n.tensor(k) for k in range(3))
    return F.group_norm(x, n.attribute("num_groups"), scale, bias, n.attribute("epsilon", 1e-5))


@operator("LRN")
def local_response_normalization(n: TorchNode) -> torch.Tensor:
    """Normalise each channel by its neighbours, equally many on both sides."""
    size = n.attribute("size")
    if size % 2 == 0:
        raise n.refused("an even size")
    alpha, beta, bias = (
        n.attribute(name, default)
        for name, default in (("alpha", 1e-4), ("beta", 0.75), ("bias", 1.0))
    )
    return F.local_response_norm(n.tensor(), size, alpha, beta, bias)


# The positions in ONNX of PyTorch's gates.
_GATES = {"LSTM": (0, 2, 3, 1), "GRU": (1, 0, 2), "RNN": (0,)}
_USUAL = {"LSTM": ["Sigmoid", "Tanh", "Tanh"], "GRU": ["Sigmoid", "Tanh"], "RNN": ["Tanh"]}


@operator("LSTM", "GRU", "RNN")
def recurrent(n: TorchNode) -> tuple[torch.Tensor | None, ...]:
    """Run a layer in one or both directions: all hidden states, and the last states."""
    compute = _function(n)
    x = n.tensor(0)
    directions = n.tensor(1).shape[0]
    parameters = n.once("parameters", lambda: _parameters(n, directions))
    states = [_state(n, port, x, directions) for port in ((5, 6) if n.operator == "LSTM" else (5,))]
    initial = states if n.operator == "LSTM" else states[0]
    hidden, *last = compute(
        x, initial, parameters, n.has(3), 1, 0.0, False, directions == 2, False
    )  # fmt: skip
    steps, batch = x.shape[:2]
    split = hidden.reshape(steps, batch, directions, -1).permute(0, 2, 1, 3)
    return split, *last


def _function(n: TorchNode) -> Any:
    n.default_only(layout=0, input_forget=0, clip=None)
    if n.attribute("direction", "forward") == "reverse":
        raise n.refused("direction reverse")
    if n.has(4):
        raise n.refused("lengths of sequences")
    if n.has(7):
        raise n.refused("peepholes")
    if n.operator == "GRU" and not n.attribute("linear_before_reset", 0):
        raise n.refused("linear_before_reset 0")
    usual = _USUAL[n.operator]
    activations = n.attribute("activations", usual)
    if n.operator == "RNN" and set(activations) == {"Relu"}:
        return torch.rnn_relu
    if any(name != usual[k % len(usual)] for k, name in enumerate(activations)):
        raise n.refused("other activations than usual")
    return {"LSTM": torch.lstm, "GRU": torch.gru, "RNN": torch.rnn_tanh}[n.operator]


def _parameters(n: TorchNode, directions: int) -> list[torch.Tensor]:
    parameters = []
    for k in range(directions):
        parameters += [_in_order(n, n.tensor(port)[k]) for port in (1, 2)]
        if n.has(3):
            parameters += [_in_order(n, half) for half in n.tensor(3)[k].chunk(2)]
    return parameters


def _in_order(n: TorchNode, rows: torch.Tensor) -> torch.Tensor:
    gates = rows.chunk(len(_GATES[n.operator]))
    return torch.cat([gates[k] for k in _GATES[n.operator]])


def _state(n: TorchNode, port: int, x: torch.Tensor, directions: int) -> torch.Tensor:
    if n.has(port):
        return n.tensor(port)
    shape = directions, x.shape[1], n.tensor(2).shape[-1]
    zeros: torch.Tensor = n.once("zeros", lambda: torch.zeros(shape, dtype=x.dtype))
    return zeros
