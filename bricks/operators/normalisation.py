"""Normalisation and reductions.

Normalisation: 8 operations per input (mean, variance, scale, shift); batch normalisation 2. LRN
takes 2 x size, softmax 5 (maximum, difference, exponential, sum, quotient), log-softmax 6. ATen's
operators are counted as 5 for each element that is read.

Reductions, argmin and argmax, and cumulative sums: 1 operation per input.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from bricks.graph.sketch import DISTINCT, ORDER, ZEROS
from bricks.operators.operator import (
    FLOAT_BYTES,
    Access,
    Features,
    Operator,
    decided_by,
    first_of,
    mask,
    mask_at,
    names,
    no_workspace,
    per_input,
    quantised,
    require_floats,
    shape_at,
    to_first,
)

if TYPE_CHECKING:
    from bricks.operators.node import Node

SOFTMAX = 5
_NORMALISE = 8
_ALONG_AXIS = Features(access=Access.ALONG_AXIS)


def _lrn_work(node: Node) -> int:
    return 2 * node.number("size") * node.type_at(0).elements


def _lrn_workspace(node: Node, threads: int) -> Sequence[int]:
    """A scale for each element, and the squares of one image, padded by channels."""
    require_floats(node, 1)
    data = node.tensor_at(0)
    _, channels, *sizes = data.shape
    padded = (channels + node.number("size") - 1) * math.prod(sizes)
    return (data.size_bytes, padded * FLOAT_BYTES)


def _transposed_copies(node: Node, threads: int) -> Sequence[int]:
    """Transposed copies of input and output, unless the axis is the last one.

    Before version 13 all axes from ``axis`` on were normalised together.
    """
    last = len(node.tensor_at(0).shape) - 1
    if node.version < 13 or node.number("axis", -1) in (-1, last):
        return ()
    return (node.output.size_bytes, node.output.size_bytes)


_NORMALISATION = (
    Operator(
        onnx=names("BatchNormalization"), work=per_input(2), workspace=no_workspace, absorbed=True
    ),
    Operator(
        onnx=names("LayerNormalization LpNormalization"),
        work=per_input(_NORMALISE),
        workspace=no_workspace,
        features=_ALONG_AXIS,
    ),
    # SimplifiedLayerNormalization is onnxruntime's, but it is registered in ONNX's own domain.
    Operator(
        onnx=names("InstanceNormalization RMSNormalization SimplifiedLayerNormalization"),
        work=per_input(_NORMALISE),
        workspace=no_workspace,
    ),
    # Runtimes expand these operators into others, so that no plan has their kernels.
    Operator(
        onnx=names("GroupNormalization MeanVarianceNormalization"), work=per_input(_NORMALISE)
    ),
    Operator(
        onnx=names(
            "com.microsoft.SkipLayerNormalization com.microsoft.SkipSimplifiedLayerNormalization"
        ),
        work=per_input(_NORMALISE + 1),
        workspace=no_workspace,
    ),
    Operator(onnx=names("LRN"), work=_lrn_work, workspace=_lrn_workspace),
    Operator(
        onnx=names("Softmax"),
        aten=names("_softmax"),
        work=per_input(SOFTMAX),
        workspace=_transposed_copies,
        features=_ALONG_AXIS,
    ),
    Operator(
        onnx=names("LogSoftmax"),
        work=per_input(SOFTMAX + 1),
        workspace=_transposed_copies,
        features=_ALONG_AXIS,
    ),
    Operator(onnx=names("Hardmax"), workspace=_transposed_copies),
    Operator(
        onnx=names("com.microsoft.QLinearSoftmax"), work=per_input(SOFTMAX), restrict=quantised
    ),
    Operator(
        aten=names(
            "_batch_norm_with_update _fused_rms_norm _fused_rms_norm_backward _log_softmax"
            " _log_softmax_backward_data _native_batch_norm_legit"
            " _native_batch_norm_legit_functional _native_batch_norm_legit_no_training"
            " _softmax_backward_data batch_norm_backward native_batch_norm"
            " native_batch_norm_backward native_group_norm native_group_norm_backward"
            " native_layer_norm native_layer_norm_backward std var var_mean"
        ),
        work=per_input(5),
    ),
)


_REDUCING = Features(access=Access.REDUCING)
_mask_and_axes = first_of(shape_at(1), mask_at(0))

# Facts that several rows share.
_REDUCTION = Operator(work=per_input(1), workspace=no_workspace)

_REDUCTIONS = (
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

OPERATORS = (*_NORMALISATION, *_REDUCTIONS)
