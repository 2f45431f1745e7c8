"""What each ONNX operator is in MXNet: one small function an operator.

Where MXNet has the layer, it is that layer, so that MXNet's own fusions find it; where it has not,
the function says so, and the brick becomes a named gap. Written for MXNet 1.9.1 and the standard
operators up to opset 19. It must not know of graphs, weights or time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import mxnet as mx
import numpy as np
import onnx

from bricks.errors import BackendError
from bricks.graph.tensor import TensorType
from bricks.graph.topology import label

Symbol = Any  # an mx.sym.Symbol: the package publishes no types

# What stands for minus infinity where a maximum is taken: MXNet pads with finite numbers.
_LEAST = float(np.finfo(np.float32).min)


@dataclass(frozen=True, slots=True)
class Node:
    """A node to translate: its proto, symbols of its inputs (None: left out), and their types.

    ``constants`` holds the values of those inputs that are known, ``outputs`` the types of outputs.
    """

    name: str
    proto: onnx.NodeProto
    symbols: Sequence[Symbol | None]
    types: Sequence[TensorType | None]
    constants: Sequence[np.ndarray | None]
    outputs: Sequence[TensorType]
    opset: int

    def attribute(self, name: str, default: Any = None) -> Any:
        """An attribute's value, texts as ``str``."""
        for attribute in self.proto.attribute:
            if attribute.name == name:
                value = onnx.helper.get_attribute_value(attribute)
                return value.decode() if isinstance(value, bytes) else value
        return default

    def has(self, index: int) -> bool:
        """Whether there is an input at ``index``."""
        return index < len(self.symbols) and self.symbols[index] is not None

    def shape(self, index: int = 0) -> tuple[int, ...]:
        """The shape of an input."""
        type_ = self.types[index]
        assert type_ is not None
        return type_.shape

    def constant(self, index: int, attribute: str = "", default: Any = None) -> Any:
        """What was an attribute in older opsets, and is an input that must be known in newer."""
        if attribute:
            found = self.attribute(attribute)
            if found is not None:
                return found
        if not self.has(index):
            return default
        known = self.constants[index]
        if known is None:
            raise self.refused(f"its input {index} is computed, and MXNet wants it fixed")
        return known.tolist()

    def refused(self, why: str) -> BackendError:
        """The error that says why this node cannot run here."""
        return BackendError(
            f"MXNet cannot run {label(self.proto)}: {why}; choose --runtime onnxruntime"
        )


Translate = Callable[[Node], "Symbol | list[Symbol]"]
OPERATORS: dict[str, Translate] = {}


def operator(*names: str) -> Callable[[Translate], Translate]:
    """Register what translates the ONNX operators called ``names``."""

    def register(translate: Translate) -> Translate:
        for name in names:
            OPERATORS[name] = translate
        return translate

    return register


def _window(n: Node, kernel: Sequence[int]) -> tuple[list[int], list[int], list[int], list[int]]:
    """Strides, dilations, and padding at the beginning and end of each axis."""
    rank = len(kernel)
    strides = list(n.attribute("strides", [1] * rank))
    dilations = list(n.attribute("dilations", [1] * rank))
    auto = n.attribute("auto_pad", "NOTSET")
    if auto == "NOTSET":
        pads = list(n.attribute("pads", [0] * (2 * rank)))
        return strides, dilations, pads[:rank], pads[rank:]
    if auto == "VALID":
        return strides, dilations, [0] * rank, [0] * rank
    begin, end = [], []
    for size, k, stride, dilation in zip(n.shape()[2:], kernel, strides, dilations, strict=True):
        needed = max(0, (-(-size // stride) - 1) * stride + dilation * (k - 1) + 1 - size)
        less, more = needed // 2, needed - needed // 2
        begin.append(less if auto == "SAME_UPPER" else more)
        end.append(more if auto == "SAME_UPPER" else less)
    return strides, dilations, begin, end


def _padded(n: Node, data: Symbol, begin: list[int], end: list[int], value: float) -> Symbol:
    """``data`` padded on its spatial axes."""
    if len(begin) != 2:
        raise n.refused("padding that differs at both ends is for two axes only")
    width = (0, 0, 0, 0, begin[0], end[0], begin[1], end[1])
    name = f"{n.name}_pad"
    return mx.sym.pad(data, mode="constant", pad_width=width, constant_value=value, name=name)


@operator("Conv")
def conv(n: Node) -> Symbol:
    """A convolution; padding that differs at both ends becomes a layer of its own."""
    kernel = n.shape(1)[2:]
    strides, dilations, begin, end = _window(n, kernel)
    data = n.symbols[0]
    if begin != end:
        data, begin = _padded(n, data, begin, end, 0.0), [0] * len(begin)
    return mx.sym.Convolution(
        data,
        n.symbols[1],
        *([n.symbols[2]] if n.has(2) else []),
        kernel=kernel,
        stride=strides,
        dilate=dilations,
        pad=begin,
        num_filter=n.shape(1)[0],
        num_group=n.attribute("group", 1),
        no_bias=not n.has(2),
        name=n.name,
    )


@operator("ConvTranspose")
def conv_transpose(n: Node) -> Symbol:
    """A deconvolution."""
    kernel = n.shape(1)[2:]
    if n.attribute("output_shape") is not None or n.attribute("auto_pad", "NOTSET") != "NOTSET":
        raise n.refused("its padding follows from its output's shape")
    strides, dilations, begin, end = _window(n, kernel)
    adjust = list(n.attribute("output_padding", [0] * len(kernel)))
    # Less cut off at the end is the same as more added there.
    adjust = [a + b - e for a, b, e in zip(adjust, begin, end, strict=True)]
    if any(not 0 <= a < s for a, s in zip(adjust, strides, strict=True)):
        raise n.refused("its padding differs too much at both ends")
    groups = n.attribute("group", 1)
    return mx.sym.Deconvolution(
        n.symbols[0],
        n.symbols[1],
        *([n.symbols[2]] if n.has(2) else []),
        kernel=kernel,
        stride=strides,
        dilate=dilations,
        pad=begin,
        adj=adjust,
        num_filter=n.shape(1)[1] * groups,
        num_group=groups,
        no_bias=not n.has(2),
        name=n.name,
    )


@operator("MaxPool", "AveragePool")
def pool(n: Node) -> Symbol:
    """Pooling over a window."""
    kernel = list(n.attribute("kernel_shape"))
    strides, dilations, begin, end = _window(n, kernel)
    if any(d != 1 for d in dilations) or len(n.outputs) > 1:
        raise n.refused("it has no dilated pooling, and no indices of maxima")
    largest = n.proto.op_type == "MaxPool"
    counts_padding = bool(n.attribute("count_include_pad", 0))
    full = bool(n.attribute("ceil_mode", 0))
    data = n.symbols[0]
    if begin != end and not full and _as_full(n, kernel, strides, begin):
        end, full = begin, True  # a window that reaches over the end is MXNet's own convention
    if begin != end:
        if not largest and not counts_padding:
            raise n.refused("its padding differs at both ends, and does not count")
        data = _padded(n, data, begin, end, _LEAST if largest else 0.0)
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


def _as_full(n: Node, kernel: list[int], strides: list[int], begin: list[int]) -> bool:
    """Whether rounding up gives the output that more padding at the end gives, for a maximum."""
    if n.proto.op_type != "MaxPool":
        return False
    sizes = n.shape()[2:]
    up = [
        -(-(size + 2 * b - k) // s) + 1
        for size, b, k, s in zip(sizes, begin, kernel, strides, strict=True)
    ]
    return tuple(up) == n.outputs[0].shape[2:]


@operator("GlobalAveragePool", "GlobalMaxPool")
def global_pool(n: Node) -> Symbol:
    """Pooling over all spatial axes."""
    kind = "avg" if n.proto.op_type == "GlobalAveragePool" else "max"
    kernel = (1,) * (len(n.shape()) - 2)
    return mx.sym.Pooling(
        n.symbols[0], global_pool=True, kernel=kernel, pool_type=kind, name=n.name
    )


@operator("BatchNormalization")
def batch_norm(n: Node) -> Symbol:
    """Normalisation by stored statistics."""
    return mx.sym.BatchNorm(
        *n.symbols[:5],
        eps=n.attribute("epsilon", 1e-5),
        fix_gamma=False,
        use_global_stats=True,
        name=n.name,
    )


@operator("InstanceNormalization")
def instance_norm(n: Node) -> Symbol:
    """Normalisation by the statistics of each channel of each sample."""
    return mx.sym.InstanceNorm(*n.symbols[:3], eps=n.attribute("epsilon", 1e-5), name=n.name)


@operator("LayerNormalization")
def layer_norm(n: Node) -> Symbol:
    """Normalisation over the last axis."""
    if n.attribute("axis", -1) not in (-1, len(n.shape()) - 1) or not n.has(2):
        raise n.refused("it normalises the last axis only, and adds a bias")
    return mx.sym.LayerNorm(*n.symbols[:3], eps=n.attribute("epsilon", 1e-5), name=n.name)


@operator("LpNormalization")
def lp_norm(n: Node) -> Symbol:
    """Channels scaled to unit length."""
    if n.attribute("p", 2) != 2 or n.attribute("axis", -1) != 1 or len(n.shape()) < 3:
        raise n.refused("it normalises the length of channels only")
    return mx.sym.L2Normalization(n.symbols[0], mode="channel", name=n.name)


@operator("LRN")
def lrn(n: Node) -> Symbol:
    """Local response normalisation."""
    return mx.sym.LRN(
        n.symbols[0],
        nsize=n.attribute("size"),
        alpha=n.attribute("alpha", 1e-4),
        beta=n.attribute("beta", 0.75),
        knorm=n.attribute("bias", 1.0),
        name=n.name,
    )


@operator("Gemm")
def gemm(n: Node) -> Symbol:
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
    bias = _of_rank(n.symbols[2], n.shape(2), 2, f"{n.name}_bias")
    return mx.sym.broadcast_add(product, bias, name=n.name)


@operator("MatMul")
def matmul(n: Node) -> Symbol:
    """A product of matrices, or of stacks of them."""
    a, b = n.shape(0), n.shape(1)
    if len(b) == 2:
        return mx.sym.dot(n.symbols[0], n.symbols[1], name=n.name)
    if len(a) == len(b) and a[:-2] == b[:-2]:
        return mx.sym.linalg_gemm2(n.symbols[0], n.symbols[1], name=n.name)
    raise n.refused(f"it does not broadcast matrices of shapes {a} and {b}")


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
def arithmetic(n: Node) -> Symbol:
    """Arithmetic on two values, or on several from left to right."""
    equal, broadcast = _PAIRS[n.proto.op_type]
    result, shape = n.symbols[0], n.shape(0)
    for i in range(1, len(n.symbols)):
        name = n.name if i == len(n.symbols) - 1 else f"{n.name}_{i}"
        result = _joined(n, result, shape, i, (equal, broadcast), name)
        shape = np.broadcast_shapes(shape, n.shape(i))
    return result


def _joined(
    n: Node, left: Symbol, shape: tuple[int, ...], i: int, names: tuple[str, str], name: str
) -> Symbol:
    right = n.symbols[i]
    if shape == n.shape(i):
        return getattr(mx.sym, names[0])(left, right, name=name)
    rank = max(len(shape), len(n.shape(i)), 1)
    left = _of_rank(left, shape, rank, f"{name}_left")
    right = _of_rank(right, n.shape(i), rank, f"{name}_right")
    return getattr(mx.sym, names[1])(left, right, name=name)


def _of_rank(symbol: Symbol, shape: tuple[int, ...], rank: int, name: str) -> Symbol:
    """``symbol`` with axes of one element before the others: MXNet does not add them by itself."""
    if len(shape) == rank or (not shape and rank == 1):
        return symbol
    return mx.sym.reshape(symbol, shape=(1,) * (rank - len(shape)) + shape, name=name)


@operator("Sum")
def sum_of(n: Node) -> Symbol:
    """A sum of values of one shape."""
    if len({type_ for type_ in n.types}) > 1:
        raise n.refused("it adds values of one shape only")
    if len(n.symbols) == 1:
        return mx.sym.identity(n.symbols[0], name=n.name)
    if len(n.symbols) == 2:
        return mx.sym.elemwise_add(*n.symbols, name=n.name)
    return mx.sym.add_n(*n.symbols, name=n.name)


_UNARY = {
    "Abs": "abs", "Ceil": "ceil", "Cos": "cos", "Erf": "erf", "Exp": "exp", "Floor": "floor",
    "Identity": "identity", "Dropout": "identity", "Log": "log", "Neg": "negative",
    "Reciprocal": "reciprocal", "Relu": "relu", "Sigmoid": "sigmoid",
    "Sign": "sign", "Sin": "sin", "Softsign": "softsign", "Sqrt": "sqrt", "Tanh": "tanh",
}  # fmt: skip
# Layers that MXNet's fusions know under the name of Activation.
_ACTIVATIONS = {
    "Relu": "relu", "Sigmoid": "sigmoid", "Tanh": "tanh", "Softplus": "softrelu",
    "Softsign": "softsign",
}  # fmt: skip


@operator(*_UNARY, "Softplus")
def unary(n: Node) -> Symbol:
    """What is done to each element by itself."""
    if len(n.proto.output) > 1 and any(n.proto.output[1:]):
        raise n.refused("it has no mask of what was dropped")
    kind = _ACTIVATIONS.get(n.proto.op_type)
    if kind:
        return mx.sym.Activation(n.symbols[0], act_type=kind, name=n.name)
    return getattr(mx.sym, _UNARY[n.proto.op_type])(n.symbols[0], name=n.name)


_LEAKY = {"LeakyRelu": ("leaky", 0.01), "Elu": ("elu", 1.0)}


@operator(*_LEAKY)
def leaky(n: Node) -> Symbol:
    """Rectifiers with a slope below zero."""
    kind, default = _LEAKY[n.proto.op_type]
    slope = n.attribute("alpha", default)
    return mx.sym.LeakyReLU(n.symbols[0], act_type=kind, slope=slope, name=n.name)


# The slope and the scale that keep mean and variance (Klambauer et al., NIPS 2017).
_SELU = (1.67326319, 1.05070102)


@operator("Selu")
def selu(n: Node) -> Symbol:
    """Scaled exponential rectifier."""
    if not np.allclose([n.attribute("alpha", _SELU[0]), n.attribute("gamma", _SELU[1])], _SELU):
        raise n.refused("it has one scale and one slope, the usual ones")
    return mx.sym.LeakyReLU(n.symbols[0], act_type="selu", name=n.name)


@operator("PRelu")
def prelu(n: Node) -> Symbol:
    """A rectifier whose slope is learnt, one for each channel or one for all."""
    slope = n.symbols[1]
    elements = n.types[1].elements if n.types[1] else 0
    channels = n.shape()[1] if len(n.shape()) > 1 else 1
    if elements not in (1, channels):
        raise n.refused(f"its slope is of shape {n.shape(1)}")
    if len(n.shape(1)) != 1:
        slope = mx.sym.reshape(slope, shape=(-1,), name=f"{n.name}_slope")
    return mx.sym.LeakyReLU(n.symbols[0], slope, act_type="prelu", name=n.name)


@operator("HardSigmoid")
def hard_sigmoid(n: Node) -> Symbol:
    """A sigmoid made of straight lines."""
    return mx.sym.hard_sigmoid(
        n.symbols[0], alpha=n.attribute("alpha", 0.2), beta=n.attribute("beta", 0.5), name=n.name
    )


@operator("Clip")
def clip(n: Node) -> Symbol:
    """Values kept between two bounds."""
    low, high = n.constant(1, "min", -np.inf), n.constant(2, "max", np.inf)
    return mx.sym.clip(
        n.symbols[0], a_min=_number(low, _LEAST), a_max=_number(high, -_LEAST), name=n.name
    )


def _number(value: Any, instead: float) -> float:
    value = float(np.asarray(value).reshape(()))
    return value if np.isfinite(value) else instead


@operator("Softmax", "LogSoftmax")
def softmax(n: Node) -> Symbol:
    """Softmax along an axis; before opset 13, over all axes from there on."""
    rank = len(n.shape())
    axis = n.attribute("axis", -1 if n.opset >= 13 else 1) % rank
    if n.opset < 13 and any(size != 1 for size in n.shape()[axis + 1 :]):
        raise n.refused("it takes a softmax along one axis only")
    kind = mx.sym.softmax if n.proto.op_type == "Softmax" else mx.sym.log_softmax
    return kind(n.symbols[0], axis=axis, name=n.name)


@operator("Shape")
def shape_of(n: Node) -> Symbol:
    """The sizes of a value's axes."""
    if n.attribute("start", 0) or n.attribute("end") is not None:
        raise n.refused("it gives all sizes or none")
    return mx.sym.shape_array(n.symbols[0], name=n.name)


@operator("Flatten")
def flatten(n: Node) -> Symbol:
    """A matrix of all that there is."""
    if n.attribute("axis", 1) == 1:
        return mx.sym.flatten(n.symbols[0], name=n.name)
    return mx.sym.reshape(n.symbols[0], shape=n.outputs[0].shape, name=n.name)


@operator("Reshape", "Squeeze", "Unsqueeze")
def reshape(n: Node) -> Symbol:
    """Another shape for the same elements."""
    return mx.sym.reshape(n.symbols[0], shape=n.outputs[0].shape or (1,), name=n.name)


@operator("Transpose")
def transpose(n: Node) -> Symbol:
    """Axes in another order."""
    order = n.attribute("perm", list(reversed(range(len(n.shape())))))
    return mx.sym.transpose(n.symbols[0], axes=order, name=n.name)


@operator("Concat")
def concat(n: Node) -> Symbol:
    """Values behind each other along an axis."""
    axis = n.attribute("axis") % len(n.outputs[0].shape)
    return mx.sym.concat(*n.symbols, dim=axis, name=n.name)


@operator("Split")
def split(n: Node) -> list[Symbol]:
    """A value in pieces along an axis."""
    axis = n.attribute("axis", 0) % len(n.shape())
    sizes = [type_.shape[axis] for type_ in n.outputs]
    if len(set(sizes)) == 1:
        parts = mx.sym.split(n.symbols[0], num_outputs=len(sizes), axis=axis, name=n.name)
        return [parts] if len(sizes) == 1 else list(parts)
    ends = np.cumsum([0, *sizes]).tolist()
    return [
        mx.sym.slice_axis(n.symbols[0], axis=axis, begin=a, end=b, name=f"{n.name}_{i}")
        for i, (a, b) in enumerate(pairwise(ends))
    ]


@operator("Slice")
def slice_of(n: Node) -> Symbol:
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
    return mx.sym.slice(n.symbols[0], begin=begin, end=end, step=step, name=n.name)


_PAD_MODES = {"constant": "constant", "reflect": "reflect", "edge": "edge"}


@operator("Pad")
def pad(n: Node) -> Symbol:
    """Padding of the spatial axes."""
    pads = n.constant(1, "pads")
    rank = len(n.shape())
    if n.has(3):
        raise n.refused("it pads all axes or none")
    mode = _PAD_MODES.get(n.attribute("mode", "constant"))
    if mode is None or rank not in (4, 5) or any(pads[i] or pads[rank + i] for i in (0, 1)):
        raise n.refused("it pads the spatial axes of images only")
    if any(p < 0 for p in pads):
        raise n.refused("it cannot cut with negative padding")
    value = _number(n.constant(2, "value", 0.0), _LEAST)
    width = [p for i in range(rank) for p in (pads[i], pads[rank + i])]
    return mx.sym.pad(n.symbols[0], mode=mode, pad_width=width, constant_value=value, name=n.name)


@operator("Resize", "Upsample")
def resize(n: Node) -> Symbol:
    """An image at another size: nearest neighbours by whole factors, or bilinear."""
    (_, _, *sizes), (_, _, *wanted) = n.shape(), n.outputs[0].shape
    mode = n.attribute("mode", "nearest")
    way = n.attribute("coordinate_transformation_mode", "half_pixel")
    if len(sizes) != 2 or n.shape()[:2] != n.outputs[0].shape[:2]:
        raise n.refused("it resizes images only")
    if mode == "nearest":
        factors = {w / s for w, s in zip(wanted, sizes, strict=True)}
        factor = factors.pop()
        if factors or factor != int(factor) or not _repeats(n, way):
            raise n.refused("it repeats neighbours by one whole factor only")
        return mx.sym.UpSampling(
            n.symbols[0], scale=int(factor), sample_type="nearest", num_args=1, name=n.name
        )
    larger = all(w >= s for w, s in zip(wanted, sizes, strict=True))
    if mode == "linear" and way in _WAYS and larger and not n.attribute("antialias", 0):
        return mx.sym.contrib.BilinearResize2D(
            n.symbols[0],
            height=wanted[0],
            width=wanted[1],
            align_corners=way == "align_corners",
            name=n.name,
        )
    raise n.refused(f"it does not resize by {mode}, {way}")


# How MXNet places pixels, and how ONNX calls that.
_WAYS = ("align_corners", "half_pixel", "pytorch_half_pixel")


def _repeats(n: Node, way: str) -> bool:
    """Whether each neighbour is taken as often as the next."""
    if n.proto.op_type == "Upsample":
        return True
    rounding = n.attribute("nearest_mode", "round_prefer_floor")
    if way == "asymmetric":
        return bool(rounding == "floor")
    return way in _WAYS[1:] and rounding in ("round_prefer_floor", "round_prefer_ceil")


@operator("DepthToSpace")
def depth_to_space(n: Node) -> Symbol:
    """Channels laid out as pixels."""
    size = n.attribute("blocksize")
    if n.attribute("mode", "DCR") == "DCR":
        return mx.sym.depth_to_space(n.symbols[0], block_size=size, name=n.name)
    batch, channels, height, width = n.shape()
    apart = (batch, channels // size**2, size, size, height, width)
    result = mx.sym.reshape(n.symbols[0], shape=apart, name=f"{n.name}_apart")
    result = mx.sym.transpose(result, axes=(0, 1, 4, 2, 5, 3), name=f"{n.name}_moved")
    return mx.sym.reshape(result, shape=n.outputs[0].shape, name=n.name)


_REDUCED = {
    "ReduceMean": "mean", "ReduceSum": "sum", "ReduceMax": "max", "ReduceMin": "min",
    "ReduceProd": "prod",
}  # fmt: skip


@operator(*_REDUCED)
def reduce(n: Node) -> Symbol:
    """One number for each row along some axes."""
    axes = n.constant(1, "axes")
    if not axes and n.attribute("noop_with_empty_axes", 0):
        return mx.sym.identity(n.symbols[0], name=n.name)
    how = getattr(mx.sym, _REDUCED[n.proto.op_type])
    axes = tuple(axes) if axes else tuple(range(len(n.shape())))
    kept = bool(n.attribute("keepdims", 1))
    return how(n.symbols[0], axis=axes, keepdims=kept, name=n.name)


@operator("ReduceL2")
def reduce_l2(n: Node) -> Symbol:
    """The length of each row along some axes."""
    axes = n.constant(1, "axes")
    axes = tuple(axes) if axes else tuple(range(len(n.shape())))
    kept = bool(n.attribute("keepdims", 1))
    return mx.sym.norm(n.symbols[0], ord=2, axis=axes, keepdims=kept, name=n.name)


@operator("Expand")
def expand(n: Node) -> Symbol:
    """A value repeated to a larger shape."""
    wanted = n.outputs[0].shape
    result = _of_rank(n.symbols[0], n.shape(), len(wanted), f"{n.name}_rank")
    return mx.sym.broadcast_to(result, shape=wanted, name=n.name)


@operator("Tile")
def tile(n: Node) -> Symbol:
    """A value repeated along its axes."""
    return mx.sym.tile(n.symbols[0], reps=n.constant(1), name=n.name)


@operator("Gather")
def gather(n: Node) -> Symbol:
    """Rows picked by their numbers."""
    axis = n.attribute("axis", 0) % len(n.shape())
    picked = mx.sym.take(n.symbols[0], n.symbols[1], axis=axis, mode="wrap", name=f"{n.name}_taken")
    return mx.sym.reshape(picked, shape=n.outputs[0].shape or (1,), name=n.name)


@operator("Cast")
def cast(n: Node) -> Symbol:
    """Another element type."""
    dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(n.attribute("to")))
    if dtype.kind not in "fiu":
        raise n.refused(f"it has no values of type {dtype}")
    return mx.sym.cast(n.symbols[0], dtype=dtype.name, name=n.name)
