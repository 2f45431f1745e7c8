"""Losses, random numbers, and updates of parameters by optimisers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bricks.graph.sketch import QUANTILES
from bricks.operators.operator import Operator, decided_by, names
from bricks.operators.restrictions import Restriction, index, shape_at
from bricks.operators.work_rules import per_input, per_output

if TYPE_CHECKING:
    from bricks.operators.node import Node


def _class_index(node: Node, port: int) -> Restriction | None:
    shape = node.shape_at(0)
    return index(node, 0, shape[1]) if port == 1 and shape and len(shape) > 1 else None


OPERATORS = (
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
