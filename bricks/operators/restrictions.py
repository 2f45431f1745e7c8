"""Restrictions of operators on their integer inputs, and rules that state them.

:mod:`bricks.operators.integer_ranges` applies the rules. Must not know operators, nor how values
are followed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import onnx

from bricks.operators.node import Node

EXACT: Final = "exact"  # the values must lie in low … high
MASKING: Final = "masking"  # any value runs, 1 means valid
STEERING: Final = "steering"  # the value gives a shape, count, axis or branch: none is safe

NOT_INTEGER: Final = frozenset(
    number
    for name, number in onnx.TensorProto.DataType.items()
    if "FLOAT" in name or name in ("DOUBLE", "BOOL")
)
_QUANTISED: Final = ("INT8", "UINT8", "INT4", "UINT4", "INT2", "UINT2", "INT16", "UINT16")
# Zero points of weights: tools quantise weights around the middle. Kernels depend on it: ONNX
# Runtime's depthwise convolution takes fifty times as long where channels have different ones.
_MIDDLE: Final = {"INT8": 0, "UINT8": 128}


@dataclass(frozen=True, slots=True)
class Restriction:
    """The restriction of a value by one use; ``EXACT`` values are from ``low`` below ``high``."""

    kind: str
    why: str
    low: int = 0
    high: int = 0


# The restriction of a node on the input at a port; None if there is none.
Restrict = Callable[[Node, int], Restriction | None]


def first_of(*rules: Restrict) -> Restrict:
    """Return a rule that returns the first restriction of ``rules``."""

    def rule(node: Node, port: int) -> Restriction | None:
        return next(
            (restriction for restrict in rules if (restriction := restrict(node, port))), None
        )

    return rule


def shape_at(*ports: int) -> Restrict:
    """Return a rule for inputs that give shapes, counts or axes, or choose a branch."""

    def rule(node: Node, port: int) -> Restriction | None:
        if port not in ports:
            return None
        return Restriction(
            STEERING, f"{node.operator} takes a shape, count, axis or branch from it"
        )

    return rule


def mask(node: Node, port: int) -> Restriction:
    """Restrict any input to a mask."""
    return Restriction(MASKING, f"a mask for {node.operator}")


def mask_at(*ports: int) -> Restrict:
    """Return a rule that restricts these inputs to masks."""
    return lambda node, port: mask(node, port) if port in ports else None


def quantised(node: Node, port: int) -> Restriction | None:
    """Restrict quantised data to the whole range of a type of few bits."""
    dtype = node.dtype_at(port)
    if dtype not in _QUANTISED:
        return None
    bits = int(dtype.removeprefix("U").removeprefix("INT"))
    low = 0 if dtype.startswith("U") else -(1 << bits - 1)
    return Restriction(EXACT, f"quantised data of {node.operator}", low, low + (1 << bits))


def quantised_around(zero_point: int) -> Restrict:
    """Return a rule for quantised data; the port ``zero_point`` has the zero points of weights."""

    def rule(node: Node, port: int) -> Restriction | None:
        middle = _MIDDLE.get(node.dtype_at(port))
        if port != zero_point or middle is None:
            return quantised(node, port)
        return Restriction(EXACT, f"a zero point of {node.operator}'s weights", middle, middle + 1)

    return rule


def index(node: Node, low: int, high: int) -> Restriction:
    """Restrict an input to indices from ``low`` up to, not including, ``high``."""
    return Restriction(EXACT, f"an index of {node.operator}, from {low} to {high - 1}", low, high)


def length(node: Node, value: int) -> Restriction:
    """Restrict an input to ``value``, the length of a whole sequence."""
    return Restriction(EXACT, f"the sequence length of {node.operator}, {value}", value, value + 1)


def axis_index(default_axis: int) -> Restrict:
    """Return a rule for indices at input 1 into the axis of input 0 that an attribute names."""

    def rule(node: Node, port: int) -> Restriction | None:
        shape = node.shape_at(0)
        axis = node.number("axis", default_axis)
        if port != 1 or not shape or not -len(shape) <= axis < len(shape):
            return None
        return index(node, 0, shape[axis])

    return rule
