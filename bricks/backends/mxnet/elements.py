"""Translations of elementwise operators on one or two values, softmax and cast.

See :mod:`bricks.backends.mxnet.operators`.
"""

from __future__ import annotations

import mxnet as mx
import numpy as np
import onnx

from bricks.backends.mxnet.node import MIN, SourceNode, Symbol, number, of_rank, operator

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
        result = _broadcast(n, result, shape, i, (equal, broadcast), name)
        shape = np.broadcast_shapes(shape, n.shape(i))
    return result


def _broadcast(
    n: SourceNode, left: Symbol, shape: tuple[int, ...], i: int, names: tuple[str, str], name: str
) -> Symbol:
    """``left``, of this ``shape``, with input ``i``, under the operator for their shapes."""
    right = n.symbols[i]
    if shape == n.shape(i):
        return getattr(mx.sym, names[0])(left, right, name=name)
    rank = max(len(shape), len(n.shape(i)), 1)
    left = of_rank(left, shape, rank, f"{name}_left")
    right = of_rank(right, n.shape(i), rank, f"{name}_right")
    return getattr(mx.sym, names[1])(left, right, name=name)


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
