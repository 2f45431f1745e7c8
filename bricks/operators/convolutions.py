"""Convolutions: 2 x outputs x terms of each sum, and one for each output and added input.

Blocked layouts are counted with their padding, which the runtime computes too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bricks.graph.sketch import QUANTILES
from bricks.operators.operator import (
    Features,
    Loops,
    Operator,
    WeightForm,
    Work,
    decided_by,
    names,
    no_workspace,
)
from bricks.operators.restrictions import quantised_around

if TYPE_CHECKING:
    from bricks.operators.node import Node

_CONVOLUTION = Features(Loops.CONVOLUTION)
_TRANSPOSED = Features(Loops.CONVOLUTION, transposed=True)
_QUANTISED = Features(Loops.CONVOLUTION, operands=(0, 3))

_FLOAT_BYTES = 4
# Of a convolution that is cut into segments, the elements that each thread unfolds at a time.
_SEGMENT = 32 * 1024
# Positions of arguments of PyTorch's convolution and of its gradients.
_TRANSPOSED_AT, _GRADIENT_TRANSPOSED_AT, _GRADIENTS_AT = 6, 7, 10


def convolution(weight: int = 1, added: Sequence[int] = ()) -> Work:
    """Return the work of a convolution; inputs at the ports ``added`` are added to each output."""

    def work(node: Node) -> int:
        terms = math.prod(node.type_at(weight).shape[1:])
        activation = bool(node.text("activation"))
        per_output = 2 * terms + sum(node.has(port) for port in added) + activation
        return per_output * node.output.elements

    return work


def _transposed_work(node: Node) -> int:
    per_input = 2 * math.prod(node.type_at(1).shape[1:])
    return per_input * node.type_at(0).elements + node.has(2) * node.output.elements


def _call_work(node: Node) -> int:
    """The work of PyTorch's convolution, transposed or not; its bias is not counted."""
    per_position = 2 * math.prod(node.type_at(1).shape[1:])
    transposed = node.attribute("transposed", False, _TRANSPOSED_AT)
    return per_position * (node.type_at(0).elements if transposed else node.output.elements)


def _gradient_work(node: Node) -> int:
    """As much work as the convolution, for each of the gradients of input and weight."""
    per_position = 2 * math.prod(node.type_at(2).shape[1:])
    transposed = node.attribute("transposed", False, _GRADIENT_TRANSPOSED_AT)
    pixels = node.type_at(1 if transposed else 0).elements
    computed: list[int] = node.attribute("output_mask", [], _GRADIENTS_AT)
    return per_position * pixels * sum(computed[:2]) + (
        node.type_at(0).elements if computed[2] else 0
    )


def _require_floats(node: Node) -> None:
    if any(node.tensor_at(port).dtype != "FLOAT" for port in (0, 1)):
        raise LookupError(f"{node.operator} of other types than float")


def _unfolded(node: Node, threads: int) -> Sequence[int]:
    """The unfolded input: the whole if there are more filters than pixels, else one segment."""
    _require_floats(node)
    filters, *window = node.tensor_at(1).shape
    plain = not any(node.numbers("pads")) and set(node.numbers("strides")) <= {1}
    if math.prod(window[1:]) == 1 and plain and node.text("auto_pad") in ("", "NOTSET", "VALID"):
        return ()
    pixels = math.prod(node.output.shape[2:])
    if filters // node.number("group", 1) > pixels:
        return (pixels * math.prod(window) * _FLOAT_BYTES,)
    return (threads * _SEGMENT * _FLOAT_BYTES,)


def _columns(node: Node, threads: int) -> Sequence[int]:
    """The columns of one image and group, before they are added up."""
    _require_floats(node)
    columns = math.prod(node.tensor_at(1).shape[1:])
    return (columns * math.prod(node.tensor_at(0).shape[2:]) * _FLOAT_BYTES,)


OPERATORS = (
    Operator(
        onnx=names("Conv"), work=convolution(added=(2,)), workspace=_unfolded, features=_CONVOLUTION
    ),
    Operator(
        onnx=names("com.microsoft.FusedConv"),
        work=convolution(added=(2, 3)),
        workspace=_unfolded,
        features=_CONVOLUTION,
    ),
    Operator(
        onnx=names("com.microsoft.nchwc.Conv"),
        work=convolution(added=(2, 3)),
        workspace=no_workspace,
        weights=WeightForm.BLOCKED,
        features=_CONVOLUTION,
    ),
    Operator(
        onnx=names("com.microsoft.NhwcConv com.microsoft.NhwcFusedConv"), features=_CONVOLUTION
    ),
    Operator(aten=names("convolution"), work=_call_work, features=_CONVOLUTION),
    Operator(aten=names("_convolution"), work=_call_work),
    Operator(
        aten=names("convolution_backward"),
        work=_gradient_work,
        features=Features(Loops.CONVOLUTION, operands=(1, 2), gradients=True),
    ),
    Operator(
        onnx=names("ConvTranspose"),
        work=_transposed_work,
        workspace=_columns,
        weights=WeightForm.REARRANGED_IN_ARENA,
        features=_TRANSPOSED,
    ),
    Operator(onnx=names("com.microsoft.ConvTransposeWithDynamicPads"), features=_TRANSPOSED),
    Operator(onnx=names("DeformConv"), values=decided_by(2, QUANTILES), features=_CONVOLUTION),
    Operator(
        onnx=names("ConvInteger"),
        work=convolution(),
        restrict=quantised_around(3),
        features=_CONVOLUTION,
    ),
    Operator(
        onnx=names("QLinearConv"),
        work=convolution(3, added=(8,)),
        restrict=quantised_around(5),
        features=_QUANTISED,
    ),
    Operator(
        onnx=names("com.microsoft.QLinearConv"), restrict=quantised_around(5), features=_QUANTISED
    ),
    Operator(
        onnx=names("com.microsoft.QLinearConvTranspose"),
        features=Features(Loops.CONVOLUTION, operands=(0, 3), transposed=True),
    ),
)
