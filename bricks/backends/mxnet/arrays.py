"""Translations of operators on arrays: of their shapes, of their elements, and reductions.

See :mod:`bricks.backends.mxnet.translate`.
"""

from __future__ import annotations

from itertools import pairwise

import mxnet as mx
import numpy as np
import onnx

from bricks.backends.mxnet.node import MIN, SourceNode, Symbol, number, of_rank, operator

# ONNX's names of the coordinate transformations that MXNet has.
_TRANSFORMATIONS = ("align_corners", "half_pixel", "pytorch_half_pixel")

_PAD_MODES = ("constant", "reflect", "edge")

# MXNet's reductions by ONNX operator.
_REDUCTIONS = {
    "ReduceMean": "mean", "ReduceSum": "sum", "ReduceMax": "max", "ReduceMin": "min",
    "ReduceProd": "prod", "ReduceL2": "norm",
}  # fmt: skip


@operator("Shape")
def shape_of(n: SourceNode) -> Symbol:
    """The sizes of a value's axes."""
    if n.attribute("start", 0) or n.attribute("end") is not None:
        raise n.refused("it gives all sizes or none")
    return n.apply(mx.sym.shape_array)


@operator("Flatten")
def flatten(n: SourceNode) -> Symbol:
    """A matrix of all elements."""
    if n.attribute("axis", 1) == 1:
        return n.apply(mx.sym.flatten)
    return n.apply(mx.sym.reshape, shape=n.outputs[0].shape)


@operator("Reshape", "Squeeze", "Unsqueeze")
def reshape(n: SourceNode) -> Symbol:
    """Another shape for the same elements."""
    return n.apply(mx.sym.reshape, shape=n.outputs[0].shape or (1,))


@operator("Transpose")
def transpose(n: SourceNode) -> Symbol:
    """Axes in another order."""
    order = n.attribute("perm", list(reversed(range(len(n.shape())))))
    return n.apply(mx.sym.transpose, axes=order)


@operator("Concat")
def concat(n: SourceNode) -> Symbol:
    """Values concatenated along an axis."""
    axis = n.attribute("axis") % len(n.outputs[0].shape)
    return mx.sym.concat(*n.symbols, dim=axis, name=n.name)


@operator("Split")
def split(n: SourceNode) -> list[Symbol]:
    """A value split along an axis."""
    axis = n.attribute("axis", 0) % len(n.shape())
    sizes = [type_.shape[axis] for type_ in n.outputs]
    if len(set(sizes)) == 1:
        parts = n.apply(mx.sym.split, num_outputs=len(sizes), axis=axis)
        return [parts] if len(sizes) == 1 else list(parts)
    ends = np.cumsum([0, *sizes]).tolist()
    return [
        mx.sym.slice_axis(n.symbols[0], axis=axis, begin=a, end=b, name=f"{n.name}_{i}")
        for i, (a, b) in enumerate(pairwise(ends))
    ]


@operator("Slice")
def slice_of(n: SourceNode) -> Symbol:
    """A part of a value along some axes."""
    starts, ends = n.constant(1, "starts"), n.constant(2, "ends")
    axes = n.constant(3, "axes", list(range(len(starts))))
    steps = n.constant(4, default=[1] * len(starts))
    rank = len(n.shape())
    begin, end, step = [0] * rank, list(n.shape()), [1] * rank
    for start, stop, axis, by in zip(starts, ends, axes, steps, strict=True):
        if by < 1:
            raise n.refused("it goes backwards")
        axis %= rank
        begin[axis], end[axis], step[axis] = slice(start, stop, by).indices(n.shape()[axis])
    return n.apply(mx.sym.slice, begin=begin, end=end, step=step)


@operator("Pad")
def pad(n: SourceNode) -> Symbol:
    """Padding of the spatial axes."""
    pads = n.constant(1, "pads")
    rank = len(n.shape())
    if n.has(3):
        raise n.refused("it pads all axes or none")
    mode = n.attribute("mode", "constant")
    if (
        mode not in _PAD_MODES
        or rank not in (4, 5)
        or any(pads[i] or pads[rank + i] for i in (0, 1))
    ):
        raise n.refused("it pads the spatial axes of images only")
    if any(p < 0 for p in pads):
        raise n.refused("it cannot cut with negative padding")
    value = number(n.constant(2, "value", 0.0), MIN)
    width = [p for i in range(rank) for p in (pads[i], pads[rank + i])]
    return n.apply(mx.sym.pad, mode=mode, pad_width=width, constant_value=value)


@operator("Resize", "Upsample")
def resize(n: SourceNode) -> Symbol:
    """A resized image: nearest neighbour by whole factors, or bilinear."""
    (_, _, *sizes), (_, _, *resized) = n.shape(), n.outputs[0].shape
    mode = n.attribute("mode", "nearest")
    default = "asymmetric" if n.proto.op_type == "Upsample" else "half_pixel"
    transformation = n.attribute("coordinate_transformation_mode", default)
    if len(sizes) != 2 or n.shape()[:2] != n.outputs[0].shape[:2]:
        raise n.refused("it resizes images only")
    if mode == "nearest":
        factors = {new / size for new, size in zip(resized, sizes, strict=True)}
        factor = factors.pop()
        if factors or factor != int(factor) or not _repeats(n, transformation):
            raise n.refused("it repeats neighbours by one whole factor only")
        return n.apply(mx.sym.UpSampling, scale=int(factor), sample_type="nearest", num_args=1)
    if mode == "linear" and _same_samples(n, transformation) and not n.attribute("antialias", 0):
        return n.apply(
            mx.sym.contrib.BilinearResize2D,
            height=resized[0],
            width=resized[1],
            align_corners=transformation == "align_corners",
        )
    raise n.refused(f"it does not resize by {mode}, {transformation}")


def _same_samples(n: SourceNode, transformation: str) -> bool:
    """Whether MXNet, which takes sizes and no factors, samples at the same coordinates."""
    (_, _, *sizes), (_, _, *resized) = n.shape(), n.outputs[0].shape
    factors = n.constant(2) or [1, 1, *(w / s for w, s in zip(resized, sizes, strict=True))]
    whole = all(
        abs(size * factor - new) < 1e-3
        for size, factor, new in zip(sizes, factors[2:], resized, strict=True)
    )
    single = transformation == "pytorch_half_pixel" and min(resized) <= 1
    return transformation in _TRANSFORMATIONS and whole and not single


def _repeats(n: SourceNode, transformation: str) -> bool:
    """Whether each input pixel is repeated equally often."""
    if n.proto.op_type == "Upsample":
        return True
    rounding = n.attribute("nearest_mode", "round_prefer_floor")
    if transformation == "asymmetric":
        return bool(rounding == "floor")
    centred = transformation in _TRANSFORMATIONS[1:]
    return centred and rounding in ("round_prefer_floor", "round_prefer_ceil")


@operator("DepthToSpace")
def depth_to_space(n: SourceNode) -> Symbol:
    """Channels rearranged into pixels."""
    size = n.attribute("blocksize")
    if n.attribute("mode", "DCR") == "DCR":
        return n.apply(mx.sym.depth_to_space, block_size=size)
    batch, channels, height, width = n.shape()
    blocks = (batch, channels // size**2, size, size, height, width)
    result = mx.sym.reshape(n.symbols[0], shape=blocks, name=f"{n.name}_blocks")
    result = mx.sym.transpose(result, axes=(0, 1, 4, 2, 5, 3), name=f"{n.name}_moved")
    return mx.sym.reshape(result, shape=n.outputs[0].shape, name=n.name)


@operator(*_REDUCTIONS)
def reduce(n: SourceNode) -> Symbol:
    """A reduction along some axes."""
    operator, axes = n.proto.op_type, n.constant(1, "axes")
    if not axes and n.attribute("noop_with_empty_axes", 0) and operator != "ReduceL2":
        return n.apply(mx.sym.identity)
    return n.apply(
        getattr(mx.sym, _REDUCTIONS[operator]),
        axis=tuple(axes) if axes else tuple(range(len(n.shape()))),
        keepdims=bool(n.attribute("keepdims", 1)),
        **({"ord": 2} if operator == "ReduceL2" else {}),
    )


@operator("Expand")
def expand(n: SourceNode) -> Symbol:
    """A value broadcast to a larger shape."""
    shape = n.outputs[0].shape
    result = of_rank(n.symbols[0], n.shape(), len(shape), f"{n.name}_rank")
    return mx.sym.broadcast_to(result, shape=shape, name=n.name)


@operator("Tile")
def tile(n: SourceNode) -> Symbol:
    """A value repeated along its axes."""
    return n.apply(mx.sym.tile, reps=n.constant(1))


@operator("Gather")
def gather(n: SourceNode) -> Symbol:
    """Slices selected by index."""
    axis = n.attribute("axis", 0) % len(n.shape())
    picked = mx.sym.take(n.symbols[0], n.symbols[1], axis=axis, mode="wrap", name=f"{n.name}_taken")
    return mx.sym.reshape(picked, shape=n.outputs[0].shape or (1,), name=n.name)


# By ONNX name: the operator on equal shapes, and on shapes to be broadcast.
_PAIRS = {
    "Add": ("elemwise_add", "broadcast_add"),
    "Sub": ("elemwise_sub", "broadcast_sub"),
    "Mul": ("elemwise_mul", "broadcast_mul"),
    "Div": ("elemwise_div", "broadcast_div"),
    "Pow": ("broadcast_power", "broadcast_power"),
    "Max": ("broadcast_maximum", "broadcast_maximum"),
    "Min": ("broadcast_minimum", "broadcast_minimum"),
}


@operator(*_PAIRS)
def arithmetic(n: SourceNode) -> Symbol:
    """Arithmetic on two values, or on several from left to right."""
    equal, broadcast = _PAIRS[n.proto.op_type]
    result, shape = n.symbols[0], n.shape(0)
    for i in range(1, len(n.symbols)):
        name = n.name if i == len(n.symbols) - 1 else f"{n.name}_{i}"
        right = n.symbols[i]
        if shape == n.shape(i):
            result = getattr(mx.sym, equal)(result, right, name=name)
            continue
        rank = max(len(shape), len(n.shape(i)), 1)
        left = of_rank(result, shape, rank, f"{name}_left")
        right = of_rank(right, n.shape(i), rank, f"{name}_right")
        result = getattr(mx.sym, broadcast)(left, right, name=name)
        shape = np.broadcast_shapes(shape, n.shape(i))
    return result


@operator("Sum")
def sum_of(n: SourceNode) -> Symbol:
    """A sum of values of one shape."""
    if len({*n.types}) > 1:
        raise n.refused("it adds values of one shape only")
    if len(n.symbols) == 1:
        return n.apply(mx.sym.identity)
    return n.apply(mx.sym.elemwise_add if len(n.symbols) == 2 else mx.sym.add_n, *n.symbols[1:])


_UNARY = {
    "Abs": "abs", "Ceil": "ceil", "Cos": "cos", "Erf": "erf", "Exp": "exp", "Floor": "floor",
    "Identity": "identity", "Dropout": "identity", "Log": "log", "Neg": "negative",
    "Reciprocal": "reciprocal", "Relu": "relu", "Sigmoid": "sigmoid",
    "Sign": "sign", "Sin": "sin", "Softsign": "softsign", "Sqrt": "sqrt", "Tanh": "tanh",
}  # fmt: skip
# Operators that MXNet's fusions recognise as the operator Activation.
_ACTIVATIONS = {
    "Relu": "relu", "Sigmoid": "sigmoid", "Tanh": "tanh", "Softplus": "softrelu",
    "Softsign": "softsign",
}  # fmt: skip


@operator(*_UNARY, "Softplus")
def unary(n: SourceNode) -> Symbol:
    """A function of each element."""
    if len(n.proto.output) > 1 and any(n.proto.output[1:]):
        raise n.refused("it has no mask of what was dropped")
    kind = _ACTIVATIONS.get(n.proto.op_type)
    if kind:
        return n.apply(mx.sym.Activation, act_type=kind)
    return n.apply(getattr(mx.sym, _UNARY[n.proto.op_type]))


_LEAKY = {"LeakyRelu": ("leaky", 0.01), "Elu": ("elu", 1.0)}


@operator(*_LEAKY)
def leaky(n: SourceNode) -> Symbol:
    """Rectifiers with a slope for negative inputs."""
    kind, default = _LEAKY[n.proto.op_type]
    return n.apply(mx.sym.LeakyReLU, act_type=kind, slope=n.attribute("alpha", default))


# The slope and the scale that keep mean and variance (Klambauer et al., NIPS 2017).
_SELU = (1.67326319, 1.05070102)


@operator("Selu")
def selu(n: SourceNode) -> Symbol:
    """Scaled exponential rectifier."""
    if not np.allclose([n.attribute("alpha", _SELU[0]), n.attribute("gamma", _SELU[1])], _SELU):
        raise n.refused("it has one scale and one slope, the usual ones")
    return n.apply(mx.sym.LeakyReLU, act_type="selu")


@operator("PRelu")
def prelu(n: SourceNode) -> Symbol:
    """A rectifier whose slope is learnt, one for each channel or one for all."""
    slope = n.symbols[1]
    elements = n.types[1].elements if n.types[1] else 0
    channels = n.shape()[1] if len(n.shape()) > 1 else 1
    if elements not in (1, channels):
        raise n.refused(f"its slope is of shape {n.shape(1)}")
    if len(n.shape(1)) != 1:
        slope = mx.sym.reshape(slope, shape=(-1,), name=f"{n.name}_slope")
    return n.apply(mx.sym.LeakyReLU, slope, act_type="prelu")


@operator("HardSigmoid")
def hard_sigmoid(n: SourceNode) -> Symbol:
    """A piecewise linear sigmoid."""
    alpha, beta = n.attribute("alpha", 0.2), n.attribute("beta", 0.5)
    return n.apply(mx.sym.hard_sigmoid, alpha=alpha, beta=beta)


@operator("Clip")
def clip(n: SourceNode) -> Symbol:
    """Values clamped between two bounds."""
    low, high = n.constant(1, "min", -np.inf), n.constant(2, "max", np.inf)
    return n.apply(mx.sym.clip, a_min=number(low, MIN), a_max=number(high, -MIN))


@operator("Softmax", "LogSoftmax")
def softmax(n: SourceNode) -> Symbol:
    """Softmax along an axis; before opset 13, over that axis and all later ones."""
    rank = len(n.shape())
    axis = n.attribute("axis", -1 if n.opset >= 13 else 1) % rank
    if n.opset < 13 and any(size != 1 for size in n.shape()[axis + 1 :]):
        raise n.refused("it takes a softmax along one axis only")
    is_plain = n.proto.op_type == "Softmax"
    return n.apply(mx.sym.softmax if is_plain else mx.sym.log_softmax, axis=axis)


@operator("Cast")
def cast(n: SourceNode) -> Symbol:
    """Another element type."""
    dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(n.attribute("to")))
    if dtype.kind not in "fiu":
        raise n.refused(f"it has no values of type {dtype}")
    return n.apply(mx.sym.cast, dtype=dtype.name)
