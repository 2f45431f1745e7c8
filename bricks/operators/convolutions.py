"""Convolutions, pooling and resizing: sums over windows of images.

Convolutions: 2 x outputs x terms of each sum, and one for each output and added input. Blocked
layouts are counted with their padding, which the runtime computes too.

Pooling: window x outputs, global pooling 1 operation per input. Resizing: 2 operations for each
input in the weighted sum of an output. Two linear dimensions have 4 inputs; copying the nearest
input is no operation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bricks.graph.sketch import COLUMNS, ORDER, QUANTILES
from bricks.operators.operator import (
    FLOAT_BYTES,
    Features,
    Loops,
    Operator,
    Restriction,
    Steering,
    WeightForm,
    Work,
    decided_by,
    first_of,
    index,
    names,
    no_work,
    no_workspace,
    per_input,
    per_output,
    quantised,
    quantised_around,
    require_floats,
    shape_at,
    to_first,
)

if TYPE_CHECKING:
    from bricks.operators.node import Node

_CONVOLUTION = Features(Loops.CONVOLUTION)
_TRANSPOSED = Features(Loops.CONVOLUTION, transposed=True)
_QUANTISED = Features(Loops.CONVOLUTION, operands=(0, 3))

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


def _unfolded(node: Node, threads: int) -> Sequence[int]:
    """The unfolded input: the whole if there are more filters than pixels, else one segment."""
    require_floats(node)
    filters, *window = node.tensor_at(1).shape
    plain = not any(node.numbers("pads")) and set(node.numbers("strides")) <= {1}
    if math.prod(window[1:]) == 1 and plain and node.text("auto_pad") in ("", "NOTSET", "VALID"):
        return ()
    pixels = math.prod(node.output.shape[2:])
    if filters // node.number("group", 1) > pixels:
        return (pixels * math.prod(window) * FLOAT_BYTES,)
    return (threads * _SEGMENT * FLOAT_BYTES,)


def _columns(node: Node, threads: int) -> Sequence[int]:
    """The columns of one image and group, before they are added up."""
    require_floats(node)
    columns = math.prod(node.tensor_at(1).shape[1:])
    return (columns * math.prod(node.tensor_at(0).shape[2:]) * FLOAT_BYTES,)


_CONVOLUTIONS = (
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


_WINDOW = Features(window=True)


def _window_work(node: Node) -> int:
    return math.prod(node.numbers("kernel_shape")) * node.output.elements


def _unpool_index(node: Node, port: int) -> Restriction | None:
    shape = node.shape_at(0)
    return index(node, 0, math.prod(shape)) if port == 1 and shape else None


_POOLING = (
    Operator(
        onnx=names("MaxPool com.microsoft.nchwc.MaxPool"),
        work=_window_work,
        passes=to_first(0),
        workspace=no_workspace,
        features=_WINDOW,
    ),
    Operator(
        onnx=names("AveragePool LpPool com.microsoft.nchwc.AveragePool"),
        work=_window_work,
        workspace=no_workspace,
        features=_WINDOW,
    ),
    Operator(onnx=names("com.microsoft.NhwcMaxPool"), work=_window_work, features=_WINDOW),
    Operator(
        onnx=names("com.microsoft.QLinearAveragePool"),
        work=_window_work,
        restrict=quantised,
        features=_WINDOW,
    ),
    Operator(
        onnx=names(
            "GlobalAveragePool GlobalMaxPool com.microsoft.nchwc.GlobalAveragePool"
            " com.microsoft.nchwc.GlobalMaxPool"
        ),
        work=per_input(1),
        workspace=no_workspace,
        features=_WINDOW,
    ),
    Operator(onnx=names("GlobalLpPool"), work=per_input(1), features=_WINDOW),
    Operator(
        onnx=names("com.microsoft.QLinearGlobalAveragePool"),
        work=per_input(1),
        restrict=quantised,
        features=_WINDOW,
    ),
    Operator(onnx=names("MaxRoiPool"), features=_WINDOW),
    Operator(onnx=names("MaxUnpool"), restrict=first_of(shape_at(2), _unpool_index)),
    Operator(
        aten=names(
            "_adaptive_avg_pool2d _adaptive_avg_pool2d_backward adaptive_avg_pool2d avg_pool2d"
            " avg_pool2d_backward max_pool2d_with_indices_backward"
        ),
        work=per_input(1),
    ),
    # Maxima are sought in random values, whose branches no processor predicts: synthetic weights
    # would make them look twice as fast.
    Operator(aten=names("max_pool2d_with_indices"), work=per_input(1), values=decided_by(0)),
    Operator(
        aten=names(
            "adaptive_max_pool2d adaptive_max_pool3d fractional_max_pool2d fractional_max_pool3d"
            " max_pool3d_with_indices"
        ),
        values=decided_by(0),
    ),
)


def _resize_work(node: Node) -> int | None:
    """Two, or four, neighbours in each dimension that changes."""
    mode = node.text("mode") or "nearest"
    if mode == "nearest":
        return 0
    sides = zip(node.type_at(0).shape, node.output.shape, strict=True)
    changed = sum(before != after for before, after in sides)
    return 2 * {"linear": 2, "cubic": 4}[mode] ** changed * node.output.elements if changed else 0


def _resize_workspace(node: Node, threads: int) -> Sequence[int]:
    if node.number("antialias"):
        raise LookupError("Resize with antialiasing")
    return ()


def _region_index(node: Node, port: int) -> Restriction | None:
    shape = node.shape_at(0)
    return index(node, 0, shape[0]) if port == 2 and shape else None


_RESIZING = (
    Operator(
        onnx=names("Resize"),
        work=_resize_work,
        restrict=shape_at(3),
        # Region, scales, sizes; before version 11 scales.
        steering=Steering((1, 2, 3)),
        workspace=_resize_workspace,
    ),
    Operator(onnx=names("Upsample"), steering=Steering((1,)), workspace=no_workspace),
    Operator(onnx=names("com.microsoft.nchwc.Upsample"), workspace=no_workspace),
    Operator(
        onnx=names("GridSample"), values=decided_by(1, COLUMNS, ORDER), workspace=no_workspace
    ),
    Operator(onnx=names("com.microsoft.GridSample"), values=decided_by(1, COLUMNS, ORDER)),
    Operator(onnx=names("RoiAlign"), values=decided_by(1, COLUMNS), restrict=_region_index),
    Operator(onnx=names("AffineGrid CenterCropPad"), restrict=shape_at(1)),
    Operator(onnx=names("Col2Im"), restrict=shape_at(1, 2)),
    Operator(aten=names("upsample_nearest2d"), work=no_work),
    Operator(aten=names("upsample_bilinear2d"), work=per_output(1)),
    Operator(
        aten=names("upsample_nearest2d_backward upsample_bilinear2d_backward"), work=per_input(1)
    ),
)

OPERATORS = (*_CONVOLUTIONS, *_POOLING, *_RESIZING)
