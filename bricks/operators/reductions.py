"""Reductions, argmin and argmax, and cumulative sums: 1 operation per input."""

from __future__ import annotations

from dataclasses import replace

from bricks.graph.sketch import DISTINCT, ORDER, ZEROS
from bricks.operators.operator import (
    Access,
    Features,
    Operator,
    decided_by,
    names,
    no_workspace,
    to_first,
)
from bricks.operators.restrictions import first_of, mask, mask_at, shape_at
from bricks.operators.work_rules import per_input

_REDUCING = Features(access=Access.REDUCING)
_mask_and_axes = first_of(shape_at(1), mask_at(0))

# Facts that several rows share.
_REDUCTION = Operator(work=per_input(1), workspace=no_workspace)

OPERATORS = (
    replace(
        _REDUCTION,
        onnx=names(
            "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMean ReduceProd ReduceSum"
        ),
        aten=names("linalg_vector_norm mean prod sum"),
        restrict=_mask_and_axes,
        features=_REDUCING,
    ),
    replace(
        _REDUCTION,
        onnx=names("ReduceMax ReduceMin"),
        aten=names("amax amin max min"),
        restrict=_mask_and_axes,
        passes=to_first(0),
        features=_REDUCING,
    ),
    replace(_REDUCTION, onnx=names("ReduceSumSquare"), features=_REDUCING),
    Operator(onnx=names("com.microsoft.ReduceSumInteger"), features=_REDUCING),
    replace(
        _REDUCTION,
        onnx=names("ArgMax ArgMin"),
        aten=names("argmax argmin"),
        features=Features(access=Access.ALONG_AXIS),
    ),
    replace(
        _REDUCTION, onnx=names("CumSum"), aten=names("cumsum"), restrict=first_of(shape_at(1), mask)
    ),
    Operator(onnx=names("CumProd"), restrict=shape_at(1)),
    Operator(
        aten=names("_cummax_helper _cummin_helper"), values=decided_by(0, DISTINCT, ORDER, ZEROS)
    ),
    Operator(aten=names("all any _foreach_norm"), work=per_input(1)),
    Operator(aten=names("count_nonzero"), work=per_input(1), values=decided_by(0, ZEROS)),
)
