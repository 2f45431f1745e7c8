"""Counterparts of elementwise operators, activations, softmax and casts.

See :mod:`bricks.backends.torch.counterparts`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import torch
from torch.nn import functional as F

from bricks.backends.torch.counterparts.node import OPERATORS, Node, dtype_of, operator

_ONE: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "Abs": torch.abs, "Acos": torch.acos, "Acosh": torch.acosh, "Asin": torch.asin,
    "Asinh": torch.asinh, "Atan": torch.atan, "Atanh": torch.atanh, "Ceil": torch.ceil,
    "Cos": torch.cos, "Cosh": torch.cosh, "Erf": torch.erf, "Exp": torch.exp,
    "Floor": torch.floor, "HardSwish": F.hardswish, "IsNaN": torch.isnan, "Log": torch.log,
    "Mish": F.mish, "Neg": torch.neg, "Not": torch.logical_not, "Reciprocal": torch.reciprocal,
    "Relu": torch.relu, "Round": torch.round, "Sigmoid": torch.sigmoid, "Sign": torch.sign,
    "Sin": torch.sin, "Sinh": torch.sinh, "Softplus": F.softplus, "Softsign": F.softsign,
    "Sqrt": torch.sqrt, "Tan": torch.tan, "Tanh": torch.tanh,
}  # fmt: skip

_TWO: dict[str, Callable[[Any, Any], torch.Tensor]] = {
    "Add": torch.add, "And": torch.logical_and, "Equal": torch.eq, "Greater": torch.gt,
    "GreaterOrEqual": torch.ge, "Less": torch.lt, "LessOrEqual": torch.le, "Mul": torch.mul,
    "Or": torch.logical_or, "Sub": torch.sub, "Xor": torch.logical_xor,
}  # fmt: skip


def _unary(compute: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Node], torch.Tensor]:
    return lambda n: compute(n.tensor())


def _operands(n: Node) -> tuple[Any, Any]:
    """Both inputs; the second a number where it is one, else PyTorch would broadcast a tensor."""
    return n.tensor(0), n.operand(1)


def _binary(compute: Callable[[Any, Any], torch.Tensor]) -> Callable[[Node], torch.Tensor]:
    def computed(n: Node) -> torch.Tensor:
        n.default_only(broadcast=0)  # of versions before 7
        return compute(*_operands(n))

    return computed


OPERATORS.update({name: _unary(compute) for name, compute in _ONE.items()})
OPERATORS.update({name: _binary(compute) for name, compute in _TWO.items()})


@operator("Identity", "Dropout")
def identity(n: Node) -> torch.Tensor:
    """The input itself; of dropout, as in inference."""
    if n.operator == "Dropout" and n.numbers(2, default=False):
        raise n.refused("training_mode")
    if any(n.outputs[1:]):
        raise n.refused("its mask as an output")
    return n.tensor()


@operator("Pow")
def power(n: Node) -> torch.Tensor:
    """A power, of the type of its base."""
    base, exponent = _operands(n)
    return torch.pow(base, exponent).to(base.dtype)


@operator("Div")
def division(n: Node) -> torch.Tensor:
    """A quotient; of integers, without its fraction."""
    one, other = _operands(n)
    whole = not one.is_floating_point()
    return torch.div(one, other, rounding_mode="trunc" if whole else None)


@operator("Mod")
def remainder(n: Node) -> torch.Tensor:
    """The remainder with the sign of the divisor, or with ``fmod`` that of the dividend."""
    return (torch.fmod if n.attribute("fmod", 0) else torch.remainder)(*_operands(n))


@operator("Max", "Min", "Sum", "Mean")
def of_several(n: Node) -> torch.Tensor:
    """An operation on any number of tensors, from left to right."""
    joins = {"Max": torch.maximum, "Min": torch.minimum}
    tensors = [n.tensor(k) for k in range(len(n.inputs))]
    joined = reduce(joins.get(n.operator, torch.add), tensors)
    return torch.div(joined, len(tensors)) if n.operator == "Mean" else joined


@operator("Clip")
def clip(n: Node) -> torch.Tensor:
    """Values between two bounds, either of which may be missing."""
    least, most = n.numbers(1, "min"), n.numbers(2, "max")
    return n.tensor() if least is most is None else torch.clamp(n.tensor(), least, most)


@operator("LeakyRelu")
def leaky_relu(n: Node) -> torch.Tensor:
    """A smaller slope below zero."""
    return F.leaky_relu(n.tensor(), n.attribute("alpha", 0.01))


@operator("PRelu")
def prelu(n: Node) -> torch.Tensor:
    """One slope below zero for all values, or one for each channel."""
    x, slope = n.tensor(0), n.tensor(1)
    channels = x.shape[1] if x.ndim > 1 else 1
    by_channel = (channels, *(1,) * (x.ndim - 2))
    if slope.numel() != 1 and tuple(slope.shape) not in (by_channel, (1, *by_channel)):
        raise n.refused("slopes that are not one for each channel")
    return F.prelu(x, slope.reshape(-1))


@operator("Elu")
def elu(n: Node) -> torch.Tensor:
    """Exponential below zero."""
    return F.elu(n.tensor(), n.attribute("alpha", 1.0))


@operator("Celu")
def celu(n: Node) -> torch.Tensor:
    """Exponential below zero, with a continuous derivative."""
    return F.celu(n.tensor(), n.attribute("alpha", 1.0))


@operator("Selu")
def selu(n: Node) -> torch.Tensor:
    """With its usual factors, which PyTorch has alone."""
    alpha, gamma = n.attribute("alpha", 1.67326), n.attribute("gamma", 1.0507)
    if abs(alpha - 1.67326) > 1e-4 or abs(gamma - 1.0507) > 1e-4:
        raise n.refused("other factors than usual")
    return F.selu(n.tensor())


@operator("HardSigmoid")
def hard_sigmoid(n: Node) -> torch.Tensor:
    """PyTorch's own with a slope of a sixth; else what it is made of."""
    alpha, beta = n.attribute("alpha", 0.2), n.attribute("beta", 0.5)
    if abs(alpha - 1 / 6) < 1e-6 and beta == 0.5:
        return F.hardsigmoid(n.tensor())
    return torch.clamp(n.tensor() * alpha + beta, 0.0, 1.0)


@operator("ThresholdedRelu")
def thresholded_relu(n: Node) -> torch.Tensor:
    """Zero up to a threshold."""
    return F.threshold(n.tensor(), n.attribute("alpha", 1.0), 0.0)


@operator("Gelu")
def gelu(n: Node) -> torch.Tensor:
    """Exact, or by a hyperbolic tangent."""
    return F.gelu(n.tensor(), approximate=n.attribute("approximate", "none"))


@operator("Softmax", "LogSoftmax")
def softmax(n: Node) -> torch.Tensor:
    """Over one axis; before version 13 over all axes from that one on."""
    compute = torch.softmax if n.operator == "Softmax" else torch.log_softmax
    x = n.tensor()
    if n.opset >= 13:
        return compute(x, n.attribute("axis", -1))
    axis = n.attribute("axis", 1) % max(x.ndim, 1)
    if axis == x.ndim - 1:
        return compute(x, axis)
    return compute(x.flatten(axis), axis).reshape(x.shape)


@operator("Cast")
def cast(n: Node) -> torch.Tensor:
    """Another type of numbers."""
    n.default_only(saturate=1)
    return n.tensor().to(dtype_of(n, n.attribute("to")))


@operator("Where")
def where(n: Node) -> torch.Tensor:
    """The second input where the first is true, else the third."""
    return torch.where(n.tensor(0), n.operand(1), n.operand(2))
