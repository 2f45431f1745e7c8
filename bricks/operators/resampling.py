"""Resizing: 2 operations for each input in the weighted sum of an output.

Two linear dimensions have 4 inputs. Copying the nearest input is no operation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bricks.graph.sketch import COLUMNS, ORDER
from bricks.operators.operator import Operator, Steering, decided_by, names, no_workspace
from bricks.operators.restrictions import Restriction, index, shape_at
from bricks.operators.work_rules import no_work, per_input, per_output

if TYPE_CHECKING:
    from bricks.operators.node import Node


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


OPERATORS = (
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
