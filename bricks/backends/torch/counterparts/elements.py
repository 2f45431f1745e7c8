"""Counterparts of elementwise operators, activations, softmax, casts, reductions, searches, scans.

See :mod:`bricks.backends.torch.counterparts`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import torch
from torch.nn import functional as F

from bricks.backends.torch.counterparts.node import OPERATORS, TorchNode, dtype_of, operator

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


_WITH_ATTRIBUTES: dict[str, Callable[[TorchNode], torch.Tensor]] = {
    "Celu": lambda n: F.celu(n.tensor(), n.attribute("alpha", 1.0)),
    "Elu": lambda n: F.elu(n.tensor(), n.attribute("alpha", 1.0)),
    "Gelu": lambda n: F.gelu(n.tensor(), approximate=n.attribute("approximate", "none")),
    "LeakyRelu": lambda n: F.leaky_relu(n.tensor(), n.attribute("alpha", 0.01)),
    "ThresholdedRelu": lambda n: F.threshold(n.tensor(), n.attribute("alpha", 1.0), 0.0),
    "Where": lambda n: torch.where(n.tensor(0), n.operand(1), n.operand(2)),
}


def _unary(compute: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[TorchNode], torch.Tensor]:
    return lambda n: compute(n.tensor())


def _operands(n: TorchNode) -> tuple[Any, Any]:
    """Return both inputs; a fixed second number as such, which PyTorch need not broadcast."""
    return n.tensor(0), n.operand(1)


def _binary(compute: Callable[[Any, Any], torch.Tensor]) -> Callable[[TorchNode], torch.Tensor]:
    def computed(n: TorchNode) -> torch.Tensor:
        n.default_only(broadcast=0)  # of versions before 7
        return compute(*_operands(n))

    return computed


OPERATORS.update({name: _unary(compute) for name, compute in _ONE.items()})
OPERATORS.update({name: _binary(compute) for name, compute in _TWO.items()})
OPERATORS.update(_WITH_ATTRIBUTES)


@operator("Identity", "Dropout")
def identity(n: TorchNode) -> torch.Tensor:
    """Return the input; dropout is that of inference."""
    if n.operator == "Dropout" and n.numbers(2, default=False):
        raise n.refused("training_mode")
    if any(n.outputs[1:]):
        raise n.refused("its mask as an output")
    return n.tensor()


@operator("Pow")
def power(n: TorchNode) -> torch.Tensor:
    """Raise to a power, of the type of the base."""
    base, exponent = _operands(n)
    return torch.pow(base, exponent).to(base.dtype)


@operator("Div")
def division(n: TorchNode) -> torch.Tensor:
    """Divide; integers truncate."""
    one, other = _operands(n)
    whole = not one.is_floating_point()
    return torch.div(one, other, rounding_mode="trunc" if whole else None)


@operator("Mod")
def remainder(n: TorchNode) -> torch.Tensor:
    """Return the remainder with the sign of the divisor, or with ``fmod`` of the dividend."""
    return (torch.fmod if n.attribute("fmod", 0) else torch.remainder)(*_operands(n))


@operator("Max", "Min", "Sum", "Mean")
def of_several(n: TorchNode) -> torch.Tensor:
    """Reduce any number of tensors from left to right."""
    joins = {"Max": torch.maximum, "Min": torch.minimum}
    tensors = n.tensors()
    joined = reduce(joins.get(n.operator, torch.add), tensors)
    return torch.div(joined, len(tensors)) if n.operator == "Mean" else joined


@operator("Clip")
def clip(n: TorchNode) -> torch.Tensor:
    """Clamp to two bounds, either of which may be missing."""
    least, most = n.numbers(1, "min"), n.numbers(2, "max")
    return n.tensor() if least is most is None else torch.clamp(n.tensor(), least, most)


@operator("PRelu")
def prelu(n: TorchNode) -> torch.Tensor:
    """Apply one slope below zero to all values, or one for each channel."""
    x, slope = n.tensor(0), n.tensor(1)
    channels = x.shape[1] if x.ndim > 1 else 1
    by_channel = (channels, *(1,) * (x.ndim - 2))
    if slope.numel() != 1 and tuple(slope.shape) not in (by_channel, (1, *by_channel)):
        raise n.refused("slopes that are not one for each channel")
    return F.prelu(x, slope.reshape(-1))


@operator("Selu")
def selu(n: TorchNode) -> torch.Tensor:
    """Apply SELU with its usual factors, the only ones of PyTorch."""
    alpha, gamma = n.attribute("alpha", 1.67326), n.attribute("gamma", 1.0507)
    if abs(alpha - 1.67326) > 1e-4 or abs(gamma - 1.0507) > 1e-4:
        raise n.refused("other factors than usual")
    return F.selu(n.tensor())


@operator("HardSigmoid")
def hard_sigmoid(n: TorchNode) -> torch.Tensor:
    """Call PyTorch's own for a slope of 1/6; else clamp a linear function."""
    alpha, beta = n.attribute("alpha", 0.2), n.attribute("beta", 0.5)
    if abs(alpha - 1 / 6) < 1e-6 and beta == 0.5:
        return F.hardsigmoid(n.tensor())
    return torch.clamp(n.tensor() * alpha + beta, 0.0, 1.0)


@operator("Softmax", "LogSoftmax")
def softmax(n: TorchNode) -> torch.Tensor:
    """Normalise over one axis; before version 13 over all axes from it on."""
    compute = torch.softmax if n.operator == "Softmax" else torch.log_softmax
    x = n.tensor()
    if n.opset >= 13:
        return compute(x, n.attribute("axis", -1))
    axis = n.attribute("axis", 1) % max(x.ndim, 1)
    if axis == x.ndim - 1:
        return compute(x, axis)
    return compute(x.flatten(axis), axis).reshape(x.shape)


@operator("Cast")
def cast(n: TorchNode) -> torch.Tensor:
    """Convert to another element type."""
    n.default_only(saturate=1)
    return n.tensor().to(dtype_of(n, n.attribute("to")))


_Axes = Sequence[int]
_Reduce = Callable[[torch.Tensor, _Axes, bool], torch.Tensor]


def _product(x: torch.Tensor, axes: _Axes, keep: bool) -> torch.Tensor:
    """Multiply along one axis at a time, as PyTorch does."""
    for axis in sorted((axis % x.ndim for axis in axes), reverse=True):
        x = x.prod(axis, keepdim=keep)
    return x


_REDUCTIONS: dict[str, _Reduce] = {
    "ReduceSum": lambda x, axes, keep: x.sum(axes, keepdim=keep),
    "ReduceMean": lambda x, axes, keep: x.mean(axes, keepdim=keep),
    "ReduceMax": lambda x, axes, keep: x.amax(axes, keepdim=keep),
    "ReduceMin": lambda x, axes, keep: x.amin(axes, keepdim=keep),
    "ReduceProd": _product,
    "ReduceL1": lambda x, axes, keep: x.abs().sum(axes, keepdim=keep),
    "ReduceL2": lambda x, axes, keep: torch.linalg.vector_norm(x, 2, axes, keep),
    "ReduceSumSquare": lambda x, axes, keep: x.square().sum(axes, keepdim=keep),
    "ReduceLogSum": lambda x, axes, keep: x.sum(axes, keepdim=keep).log(),
    "ReduceLogSumExp": lambda x, axes, keep: x.logsumexp(list(axes), keepdim=keep),
}


@operator(*_REDUCTIONS)
def reduction(n: TorchNode) -> torch.Tensor:
    """Reduce some axes, or all."""
    x = n.tensor()
    axes = n.numbers(1, "axes")
    if not axes:
        if n.attribute("noop_with_empty_axes", 0):
            raise n.refused("noop_with_empty_axes")
        axes = range(x.ndim)
    reduced = _REDUCTIONS[n.operator](x, tuple(axes), bool(n.attribute("keepdims", 1)))
    return reduced.to(x.dtype)  # PyTorch adds integers in more bits


@operator("ArgMax", "ArgMin")
def position(n: TorchNode) -> torch.Tensor:
    """Return the index of the greatest or least value along an axis."""
    n.default_only(select_last_index=0)
    compute = torch.argmax if n.operator == "ArgMax" else torch.argmin
    return compute(n.tensor(), n.attribute("axis", 0), bool(n.attribute("keepdims", 1)))


@operator("CumSum")
def running_sum(n: TorchNode) -> torch.Tensor:
    """Sum all values up to each along an axis."""
    n.default_only(exclusive=0, reverse=0)
    axis = n.numbers(1)
    x = n.tensor()
    return torch.cumsum(x, axis[0] if isinstance(axis, list) else axis, dtype=x.dtype)


@operator("TopK")
def top_k(n: TorchNode) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the greatest or least values along an axis, and their indices; of equal ones, any."""
    count = n.numbers(1, "k")
    (count,) = count if isinstance(count, list) else (count,)
    top = torch.topk(
        n.tensor(), count, n.attribute("axis", -1), bool(n.attribute("largest", 1)),
        bool(n.attribute("sorted", 1)),
    )  # fmt: skip
    return top.values, top.indices
