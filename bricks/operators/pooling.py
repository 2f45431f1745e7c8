"""Pooling: window x outputs, global pooling 1 operation per input."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from bricks.operators.operator import Features, Operator, decided_by, names, no_workspace, to_first
from bricks.operators.restrictions import Restriction, first_of, index, quantised, shape_at
from bricks.operators.work_rules import per_input

if TYPE_CHECKING:
    from bricks.operators.node import Node

_WINDOW = Features(window=True)


def _window_work(node: Node) -> int:
    return math.prod(node.numbers("kernel_shape")) * node.output.elements


def _unpool_index(node: Node, port: int) -> Restriction | None:
    shape = node.shape_at(0)
    return index(node, 0, math.prod(shape)) if port == 1 and shape else None


OPERATORS = (
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
