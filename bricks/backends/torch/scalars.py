"""Which scalar arguments of a call do not change its work. Must not import PyTorch."""

from __future__ import annotations

import math

# Operators whose work does not depend on their scalar arguments, without the underscores around
# their names. Scalars of others are part of a call.
_INDIFFERENT = frozenset({
    "add", "sub", "rsub", "mul", "div", "addcmul", "addcdiv", "lerp", "fill", "full", "full_like",
    "scalar_tensor", "clamp_min", "clamp_max", "masked_fill",
    "native_layer_norm", "native_batch_norm", "native_batch_norm_legit",
    "native_batch_norm_legit_functional", "native_batch_norm_backward", "native_group_norm",
    "batch_norm_impl_index", "leaky_relu", "leaky_relu_backward", "elu", "elu_backward",
    "smooth_l1_loss", "smooth_l1_loss_backward", "huber_loss", "huber_loss_backward",
    "scaled_dot_product_flash_attention_for_cpu",
    "scaled_dot_product_flash_attention_for_cpu_backward", "foreach_add", "foreach_sub",
    "foreach_mul", "foreach_div", "foreach_addcmul", "foreach_addcdiv", "foreach_lerp",
    "fused_adam", "fused_adamw", "fused_sgd", "fused_adagrad", "fused_rms_norm", "eq", "ne", "lt",
    "le", "gt", "ge",
})  # fmt: skip

# Scalars for which an operator may have a special case.
_SPECIAL = frozenset({0.0, 0.5, 1.0, 2.0, 3.0})


def is_indifferent(namespace: str, name: str) -> bool:
    """Whether the work of the operator ``name`` does not depend on its scalar arguments."""
    return namespace == "aten" and name.strip("_") in _INDIFFERENT


def is_special(number: float) -> bool:
    """Whether an operator may have a special case for a finite ``number``."""
    return not math.isfinite(number) or abs(number) in _SPECIAL
