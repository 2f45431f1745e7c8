"""Quantising, and operators on quantised data that have no family of their own."""

from __future__ import annotations

from bricks.operators.operator import Access, Features, Operator, Steering, names, no_workspace
from bricks.operators.restrictions import quantised
from bricks.operators.work_rules import no_work, per_output

# A convolution with a bias is computed in integers only if the bias's scale is the product of those
# of its input and its weight.
_SCALES = Steering(quantization=(1, 2))

OPERATORS = (
    Operator(
        onnx=names("QuantizeLinear"), work=per_output(2), steering=_SCALES, workspace=no_workspace
    ),
    Operator(
        onnx=names("DequantizeLinear"),
        work=per_output(2),
        restrict=quantised,
        steering=_SCALES,
        workspace=no_workspace,
    ),
    Operator(onnx=names("DynamicQuantizeLinear"), work=per_output(4), workspace=no_workspace),
    Operator(onnx=names("com.microsoft.QuantizeLinear"), work=per_output(2)),
    Operator(onnx=names("com.microsoft.DequantizeLinear"), work=per_output(2), restrict=quantised),
    Operator(
        onnx=names("com.microsoft.QLinearAdd com.microsoft.QLinearMul"),
        work=per_output(1),
        restrict=quantised,
        workspace=no_workspace,
        features=Features(access=Access.BROADCASTING),
    ),
    Operator(
        onnx=names("com.microsoft.QLinearLeakyRelu com.microsoft.QLinearSigmoid"),
        work=per_output(1),
        restrict=quantised,
    ),
    Operator(
        onnx=names("com.microsoft.QLinearConcat"),
        work=no_work,
        restrict=quantised,
        features=Features(access=Access.ALONG_AXIS),
    ),
    Operator(onnx=names("com.microsoft.QLinearWhere"), restrict=quantised),
)
