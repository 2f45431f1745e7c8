"""Functions of one element, or of elements at the same position: 1 operation per output.

Functions of n operands take n - 1. The functions whose latency depends on values were found by
experiment: functions of ONNX with ONNX Runtime, functions of ATen with PyTorch.

Among them are quantising and operators on quantised data without a family of their own, losses,
random numbers, and updates of parameters by optimisers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from bricks.graph.sketch import DENSITY, LARGE, QUANTILES, SIGNS, ZEROS
from bricks.operators.operator import (
    EXACT,
    NOT_INTEGER,
    Access,
    Dependence,
    Features,
    Operator,
    Restriction,
    Steering,
    decided_by,
    first_of,
    from_any,
    index,
    mask,
    mask_at,
    names,
    no_work,
    no_workspace,
    per_input,
    per_output,
    quantised,
    shape_at,
    to_first,
)

if TYPE_CHECKING:
    import onnx

    from bricks.operators.node import Node

_BROADCASTING = Features(access=Access.BROADCASTING)
# The dependence of functions that take longer on large numbers only.
_GROWING = (Dependence(0, (LARGE,), decisive=False),)


def _variadic(node: Node) -> int:
    return max(node.arity - 1, 0) * node.output.elements


def _fast_gelu(node: Node) -> int:
    """One more operation for each output for a bias."""
    return (1 + node.has(1)) * node.output.elements


def _divisor(node: Node, port: int) -> Restriction | None:
    """An integer division by zero ends the process that attempts it."""
    return Restriction(EXACT, f"a divisor of {node.operator}", 1, 128) if port == 1 else None


def _mask_unless_constant(node: Node, port: int) -> Restriction | None:
    """Restrict an operand to a mask if another operand is not constant either."""
    others = [name for i, name in enumerate(node.proto.input) if i != port]
    return mask(node, port) if any(name not in node.constants for name in others) else None


def _cast_mask(node: Node, port: int) -> Restriction | None:
    return mask(node, port) if node.number("to") in NOT_INTEGER else None


def _cast(node: onnx.NodeProto, port: int) -> Iterator[str]:
    """Pass on integers only: a float or a boolean cannot be an index."""
    to = next((a.i for a in node.attribute if a.name == "to"), 0)
    return iter(node.output[:1] if port == 0 and to not in NOT_INTEGER else ())


def _choices(node: Node, threads: int) -> Sequence[int]:
    """Both choices, each broadcast with the condition."""
    condition = node.tensor_at(0).shape
    element_bytes = node.output.size_bytes // node.output.elements
    return [
        element_bytes * math.prod(_broadcast(condition, node.tensor_at(port).shape))
        for port in (1, 2)
    ]


def _broadcast(a: Sequence[int], b: Sequence[int]) -> list[int]:
    rank = max(len(a), len(b))
    sizes = zip((1,) * (rank - len(a)) + tuple(a), (1,) * (rank - len(b)) + tuple(b), strict=True)
    return [y if x == 1 else x for x, y in sizes]


def _biased(node: Node, threads: int) -> Sequence[int]:
    """The input with the bias added, if there is one."""
    return (node.output.size_bytes,) if node.has(1) else ()


# Facts that several rows share.
_BINARY = Operator(work=per_output(1), workspace=no_workspace, features=_BROADCASTING)
_ABSORBED_BINARY = replace(_BINARY, absorbed=True)
_FUNCTION = Operator(work=per_output(1), workspace=no_workspace)
_ABSORBED = replace(_FUNCTION, absorbed=True)

_ARITHMETIC = (
    replace(_ABSORBED_BINARY, onnx=names("Add PRelu"), aten=names("add")),
    replace(
        _ABSORBED_BINARY,
        onnx=names("Sub"),
        aten=names("sub rsub"),
        restrict=first_of(mask_at(1), _mask_unless_constant),
    ),
    replace(_ABSORBED_BINARY, onnx=names("Mul"), aten=names("mul"), restrict=_mask_unless_constant),
    replace(_ABSORBED_BINARY, onnx=names("Div"), aten=names("div"), restrict=_divisor),
    replace(
        _BINARY,
        onnx=names("Mod"),
        values=(*decided_by(0, QUANTILES), *decided_by(1, QUANTILES)),
        restrict=_divisor,
    ),
    Operator(aten=names("fmod remainder"), work=per_output(1), values=decided_by(0, QUANTILES)),
    replace(
        _ABSORBED_BINARY,
        onnx=names("Pow"),
        aten=names("pow"),
        # Squares and roots have fast paths.
        steering=Steering((1,), scalars_only=True),
    ),
    replace(_ABSORBED_BINARY, onnx=names("Max Min"), work=_variadic, passes=from_any),
    replace(_ABSORBED_BINARY, onnx=names("Sum"), work=_variadic),
    replace(_BINARY, onnx=names("Mean"), work=_variadic),
    Operator(aten=names("addcmul addcdiv lerp"), work=per_output(3)),
    Operator(aten=names("xlogy"), values=decided_by(1, QUANTILES)),
)

_LOGIC = (
    replace(
        _BINARY,
        onnx=names("And Equal Greater GreaterOrEqual Less LessOrEqual Or Xor"),
        aten=names("logical_and eq gt ge lt le logical_or"),
        restrict=mask,
    ),
    replace(
        _FUNCTION, onnx=names("IsNaN Not Sign"), aten=names("isnan logical_not sign"), restrict=mask
    ),
    Operator(
        onnx=names("BitShift BitwiseAnd BitwiseOr BitwiseXor"),
        aten=names("bitwise_and bitwise_or"),
        work=per_output(1),
        features=_BROADCASTING,
    ),
    Operator(
        onnx=names("Where"),
        work=per_output(1),
        restrict=mask_at(0),
        passes=to_first(1, 2),
        workspace=_choices,
        features=_BROADCASTING,
    ),
    Operator(aten=names("where"), work=per_output(1), values=decided_by(0, ZEROS)),
    Operator(aten=names("masked_fill"), work=per_output(1), values=decided_by(1, ZEROS)),
)

_FUNCTIONS = (
    replace(
        _ABSORBED,
        onnx=names("Abs Erf Gelu HardSigmoid LeakyRelu Neg Relu Sigmoid Softsign Tanh"),
        aten=names("abs erf gelu hardsigmoid leaky_relu neg relu sigmoid tanh"),
    ),
    replace(_ABSORBED, onnx=names("Exp Sqrt com.microsoft.Gelu com.microsoft.QuickGelu")),
    Operator(onnx=names("HardSwish"), aten=names("hardswish"), work=per_output(1), absorbed=True),
    replace(
        _ABSORBED,
        onnx=names("Clip"),
        aten=names("clamp clamp_min clamp_max hardtanh"),
        passes=to_first(0),
    ),
    replace(
        _FUNCTION,
        onnx=names("Atan Ceil Floor IsInf Log Reciprocal Round Shrink ThresholdedRelu"),
        aten=names("floor reciprocal round softshrink"),
    ),
    Operator(
        onnx=names("Acos Asin BitwiseNot Swish"), aten=names("bitwise_not silu"), work=per_output(1)
    ),
    replace(_ABSORBED, onnx=names("Celu Elu Selu Softplus"), values=_GROWING),
    Operator(onnx=names("Mish"), work=per_output(1), values=_GROWING, absorbed=True),
    replace(_FUNCTION, onnx=names("Cos Sin"), values=_GROWING),
    replace(_FUNCTION, onnx=names("Cosh Sinh Tan"), values=decided_by(0, QUANTILES)),
    Operator(onnx=names("Acosh Asinh Atanh"), work=per_output(1), values=decided_by(0, QUANTILES)),
    Operator(onnx=names("com.microsoft.FastGelu"), work=_fast_gelu, workspace=_biased),
    Operator(onnx=names("com.microsoft.BiasGelu"), work=per_output(2), workspace=_biased),
    # A library handles zeros one by one.
    Operator(aten=names("log sqrt"), work=per_output(1), values=decided_by(0, DENSITY)),
    Operator(
        aten=names("_foreach_log _foreach_log10 _foreach_log2 log10 log2"),
        values=decided_by(0, DENSITY),
    ),
    Operator(aten=names("_foreach_sqrt"), work=per_input(1), values=decided_by(0, DENSITY)),
    Operator(aten=names("elu"), work=per_output(1), values=decided_by(0, SIGNS)),
    Operator(aten=names("celu selu"), values=decided_by(0, SIGNS)),
    Operator(aten=names("exp softplus"), work=per_output(1), values=decided_by(0, LARGE)),
    Operator(aten=names("erfc special_erfc"), values=decided_by(0, LARGE)),
    Operator(
        aten=names(
            "acos acosh asin asinh digamma erfinv lgamma logit sinc special_entr special_i1"
            " special_log_ndtr special_ndtri"
        ),
        values=decided_by(0, QUANTILES),
    ),
    Operator(
        aten=names(
            "atan2 cos elu_backward expm1 gelu_backward glu glu_backward hardsigmoid_backward"
            " hardswish_backward hardtanh_backward leaky_relu_backward log1p log_sigmoid_backward"
            " log_sigmoid_forward maximum minimum mish mish_backward ne rsqrt sigmoid_backward"
            " silu_backward sin softplus_backward square tanh_backward threshold_backward"
        ),
        work=per_output(1),
    ),
)

_CONVERSIONS = (
    Operator(
        onnx=names("Cast"),
        aten=names("_to_copy"),
        work=no_work,
        restrict=_cast_mask,
        passes=_cast,
        workspace=no_workspace,
    ),
    Operator(onnx=names("CastLike"), work=no_work, passes=to_first(0), workspace=no_workspace),
)


# A convolution with a bias is computed in integers only if the bias's scale is the product of those
# of its input and its weight.
_SCALES = Steering(quantization=(1, 2))

_QUANTISATION = (
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


def _class_index(node: Node, port: int) -> Restriction | None:
    shape = node.shape_at(0)
    return index(node, 0, shape[1]) if port == 1 and shape and len(shape) > 1 else None


_TRAINING = (
    Operator(
        onnx=names("NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss"), restrict=_class_index
    ),
    Operator(aten=names("nll_loss_forward"), work=per_input(1)),
    Operator(
        aten=names(
            "binary_cross_entropy_with_logits huber_loss huber_loss_backward mse_loss"
            " mse_loss_backward nll_loss_backward smooth_l1_loss smooth_l1_loss_backward"
        ),
        work=per_output(1),
    ),
    Operator(aten=names("binary_cross_entropy"), values=decided_by(0, QUANTILES)),
    Operator(onnx=names("RandomUniform"), restrict=shape_at(0)),
    Operator(
        aten=names(
            "bernoulli exponential native_dropout native_dropout_backward normal rand randn uniform"
        ),
        work=per_output(1),
    ),
    Operator(aten=names("poisson"), values=decided_by(0, QUANTILES)),
    # Computed values may be no probabilities.
    Operator(aten=names("multinomial"), values=decided_by(0)),
    Operator(
        aten=names(
            "_foreach_abs _foreach_add _foreach_addcdiv _foreach_addcmul _foreach_div"
            " _foreach_lerp _foreach_maximum _foreach_mul _foreach_neg _foreach_pow"
            " _foreach_reciprocal _foreach_sub"
        ),
        work=per_input(1),
    ),
    # Updates by moments: a dozen operations for each parameter, of four or five tensors each.
    Operator(aten=names("_fused_adam _fused_adamw"), work=per_input(3)),
    Operator(aten=names("_fused_adagrad _fused_sgd"), work=per_input(2)),
)

OPERATORS = (*_ARITHMETIC, *_LOGIC, *_FUNCTIONS, *_CONVERSIONS, *_QUANTISATION, *_TRAINING)
