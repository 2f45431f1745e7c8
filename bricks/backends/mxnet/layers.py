"""Translations of layers with weights, pooling and normalisation.

See :mod:`bricks.backends.mxnet.translate`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mxnet as mx

from bricks.backends.mxnet.node import MIN, SourceNode, Symbol, of_rank, operator
from bricks.backends.windows import window_of


def _padded(n: SourceNode, data: Symbol, begin: list[int], end: list[int], value: float) -> Symbol:
    if len(begin) != 2:
        raise n.refused("padding that differs at both ends is for two axes only")
    width = (0, 0, 0, 0, begin[0], end[0], begin[1], end[1])
    name = f"{n.name}_pad"
    return mx.sym.pad(data, mode="constant", pad_width=width, constant_value=value, name=name)


@operator("Conv")
def conv(n: SourceNode) -> Symbol:
    """A convolution; asymmetric padding becomes a separate layer."""
    kernel = n.shape(1)[2:]
    strides, dilations, begin, end = window_of(n.attribute, n.shape()[2:], kernel)
    data = n.symbols[0]
    if begin != end:
        data, begin = _padded(n, data, begin, end, 0.0), [0] * len(begin)
    window = {"kernel": kernel, "stride": strides, "dilate": dilations, "pad": begin}
    return _convolution(n, mx.sym.Convolution, data, num_filter=n.shape(1)[0], **window)


@operator("ConvTranspose")
def conv_transpose(n: SourceNode) -> Symbol:
    """A deconvolution."""
    kernel = n.shape(1)[2:]
    if n.attribute("output_shape") is not None or n.attribute("auto_pad", "NOTSET") != "NOTSET":
        raise n.refused("its padding follows from its output's shape")
    strides, dilations, begin, end = window_of(n.attribute, n.shape()[2:], kernel)
    adjust = list(n.attribute("output_padding", [0] * len(kernel)))
    # Cropping less at the end is the same as adding more there.
    adjust = [a + b - e for a, b, e in zip(adjust, begin, end, strict=True)]
    if any(not 0 <= a < s for a, s in zip(adjust, strides, strict=True)):
        raise n.refused("its padding differs too much at both ends")
    window = {"kernel": kernel, "stride": strides, "dilate": dilations, "pad": begin, "adj": adjust}
    filters = n.shape(1)[1] * n.attribute("group", 1)
    return _convolution(n, mx.sym.Deconvolution, n.symbols[0], num_filter=filters, **window)


def _convolution(
    n: SourceNode, function: Callable[..., Symbol], data: Symbol, **attributes: Any
) -> Symbol:
    return function(
        data,
        n.symbols[1],
        *([n.symbols[2]] if n.has(2) else []),
        num_group=n.attribute("group", 1),
        no_bias=not n.has(2),
        name=n.name,
        **attributes,
    )


@operator("MaxPool", "AveragePool")
def pool(n: SourceNode) -> Symbol:
    """Pooling over a window."""
    kernel = list(n.attribute("kernel_shape"))
    strides, dilations, begin, end = window_of(n.attribute, n.shape()[2:], kernel)
    if any(d != 1 for d in dilations) or len(n.outputs) > 1:
        raise n.refused("it has no dilated pooling, and no indices of maxima")
    largest = n.proto.op_type == "MaxPool"
    counts_padding = bool(n.attribute("count_include_pad", 0))
    full = bool(n.attribute("ceil_mode", 0))
    data = n.symbols[0]
    if begin != end and not full and _as_full(n, kernel, strides, begin):
        end, full = begin, True  # MXNet's convention "full": windows may reach past the end
    if begin != end:
        if not largest and not counts_padding:
            raise n.refused("its padding differs at both ends, and does not count")
        data = _padded(n, data, begin, end, MIN if largest else 0.0)
        begin = [0] * len(begin)
    return mx.sym.Pooling(
        data,
        kernel=kernel,
        stride=strides,
        pad=begin,
        pool_type="max" if largest else "avg",
        pooling_convention="full" if full else "valid",
        count_include_pad=counts_padding,
        name=n.name,
    )


def _as_full(n: SourceNode, kernel: list[int], strides: list[int], begin: list[int]) -> bool:
    """Whether max pooling that rounds sizes up equals max pooling with more padding at the end."""
    if n.proto.op_type != "MaxPool":
        return False
    sizes = n.shape()[2:]
    up = [
        -(-(size + 2 * b - k) // s) + 1
        for size, b, k, s in zip(sizes, begin, kernel, strides, strict=True)
    ]
    return tuple(up) == n.outputs[0].shape[2:]


@operator("GlobalAveragePool", "GlobalMaxPool")
def global_pool(n: SourceNode) -> Symbol:
    """Pooling over all spatial axes."""
    kind = "avg" if n.proto.op_type == "GlobalAveragePool" else "max"
    kernel = (1,) * (len(n.shape()) - 2)
    return n.apply(mx.sym.Pooling, global_pool=True, kernel=kernel, pool_type=kind)


@operator("BatchNormalization")
def batch_norm(n: SourceNode) -> Symbol:
    """Normalisation by stored statistics."""
    return n.apply(
        mx.sym.BatchNorm,
        *n.symbols[1:5],
        eps=n.attribute("epsilon", 1e-5),
        fix_gamma=False,
        use_global_stats=True,
    )


@operator("InstanceNormalization")
def instance_norm(n: SourceNode) -> Symbol:
    """Normalisation by the statistics of each channel of each sample."""
    return n.apply(mx.sym.InstanceNorm, *n.symbols[1:3], eps=n.attribute("epsilon", 1e-5))


@operator("LayerNormalization")
def layer_norm(n: SourceNode) -> Symbol:
    """Normalisation over the last axis."""
    if n.attribute("axis", -1) not in (-1, len(n.shape()) - 1) or not n.has(2):
        raise n.refused("it normalises the last axis only, and adds a bias")
    return n.apply(mx.sym.LayerNorm, *n.symbols[1:3], eps=n.attribute("epsilon", 1e-5))


@operator("LpNormalization")
def lp_norm(n: SourceNode) -> Symbol:
    """Channels scaled to unit length."""
    if n.attribute("p", 2) != 2 or n.attribute("axis", -1) != 1 or len(n.shape()) < 3:
        raise n.refused("it normalises the length of channels only")
    return n.apply(mx.sym.L2Normalization, mode="channel")


@operator("LRN")
def lrn(n: SourceNode) -> Symbol:
    """Local response normalisation."""
    return n.apply(
        mx.sym.LRN,
        nsize=n.attribute("size"),
        alpha=n.attribute("alpha", 1e-4),
        beta=n.attribute("beta", 0.75),
        knorm=n.attribute("bias", 1.0),
    )


@operator("Gemm")
def gemm(n: SourceNode) -> Symbol:
    """A fully connected layer."""
    alpha, beta = n.attribute("alpha", 1.0), n.attribute("beta", 1.0)
    weight = n.symbols[1]
    if n.attribute("transA", 0) or alpha != 1 or (n.has(2) and beta != 1):
        raise n.refused("it has no scaled products")
    if not n.attribute("transB", 0):
        weight = mx.sym.transpose(weight, name=f"{n.name}_weight")
    hidden = n.outputs[0].shape[-1]
    whole = n.has(2) and n.shape(2) == (hidden,)
    product = mx.sym.FullyConnected(
        n.symbols[0],
        weight,
        *([n.symbols[2]] if whole else []),
        num_hidden=hidden,
        no_bias=not whole,
        flatten=False,
        name=n.name if whole or not n.has(2) else f"{n.name}_product",
    )
    if whole or not n.has(2):
        return product
    bias = of_rank(n.symbols[2], n.shape(2), 2, f"{n.name}_bias")
    return mx.sym.broadcast_add(product, bias, name=n.name)


@operator("MatMul")
def matmul(n: SourceNode) -> Symbol:
    """A product of matrices, or of stacks of them."""
    a, b = n.shape(0), n.shape(1)
    if len(b) == 2:
        return n.apply(mx.sym.dot, n.symbols[1])
    if len(a) == len(b) and a[:-2] == b[:-2]:
        return n.apply(mx.sym.linalg_gemm2, n.symbols[1])
    raise n.refused(f"it does not broadcast matrices of shapes {a} and {b}")
