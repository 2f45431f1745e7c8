"""Features of a call on a GPU that are known without running it.

Calls of one family have kernels of one kind, and the same sizes and tags in the same order, so that
a call that was never measured is compared with those that were. Must not know durations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from bricks.operators.registry import is_known
from bricks.predict.kernels.call_tensors import TensorCall, single_call
from bricks.predict.kernels.products import (
    PARTS,
    attention,
    attention_gradients,
    convolution,
    convolution_gradients,
    product,
)
from bricks.predict.kernels.work import (
    CallWork,
    KernelFeatures,
    foreach,
    gather,
    normalisation,
    pointwise,
    reduction,
    resampling,
    scatter,
)

if TYPE_CHECKING:
    from bricks.decompose.plan import Brick

Extract = Callable[[TensorCall], CallWork]

# The families of operators: name and extractor; most pointwise ones are not listed.
_FAMILIES: Mapping[str, tuple[Extract, tuple[str, ...]]] = {
    "product": (product, ("mm", "addmm", "bmm", "baddbmm", "addmv", "mv", "dot")),
    "convolution": (convolution, ("convolution", "cudnn_convolution")),
    "convolution gradients": (convolution_gradients, ("convolution_backward",)),
    "attention": (
        attention,
        (
            "_scaled_dot_product_cudnn_attention",
            "_scaled_dot_product_flash_attention",
            "_scaled_dot_product_efficient_attention",
        ),
    ),
    "attention gradients": (
        attention_gradients,
        (
            "_scaled_dot_product_cudnn_attention_backward",
            "_scaled_dot_product_flash_attention_backward",
            "_scaled_dot_product_efficient_attention_backward",
        ),
    ),
    "normalisation": (
        normalisation,
        (
            "cudnn_batch_norm", "native_batch_norm", "native_layer_norm", "native_group_norm",
            "_fused_rms_norm", "cudnn_batch_norm_backward", "native_batch_norm_backward",
            "native_layer_norm_backward", "native_group_norm_backward", "_fused_rms_norm_backward",
            "_softmax", "_log_softmax", "_safe_softmax", "_softmax_backward_data",
            "_log_softmax_backward_data", "_weight_norm_interface", "_batch_norm_impl_index",
            "_weight_norm_interface_backward",
        ),
    ),
    "reduction": (
        reduction,
        (
            "sum", "mean", "amax", "amin", "max", "min", "prod", "var", "std", "var_mean", "argmax",
            "argmin", "linalg_vector_norm", "norm", "logsumexp", "nll_loss_forward",
            "nll_loss2d_forward", "mse_loss", "binary_cross_entropy_with_logits", "cumsum", "any",
            "all", "topk", "sort", "cumprod", "std_mean",
        ),
    ),
    "foreach": (
        foreach,
        ("_fused_adamw", "_fused_adam", "_fused_sgd"),
    ),
    "gather": (
        gather,
        ("embedding", "index", "index_select", "gather", "_embedding_bag", "take_along_dim"),
    ),
    "scatter": (
        scatter,
        (
            "embedding_dense_backward", "_embedding_bag_backward", "index_put", "index_add",
            "index_copy", "scatter", "scatter_add", "select_backward", "slice_backward",
            "nll_loss_backward", "nll_loss2d_backward", "_ctc_loss", "_ctc_loss_backward",
            "_index_put_impl",
        ),
    ),
    "resampling": (
        resampling,
        (
            "max_pool2d_with_indices", "max_pool2d_with_indices_backward", "avg_pool2d",
            "avg_pool2d_backward", "_adaptive_avg_pool2d", "_adaptive_avg_pool2d_backward",
            "upsample_bilinear2d", "upsample_bilinear2d_backward", "upsample_nearest2d",
            "upsample_nearest2d_backward", "upsample_bicubic2d", "grid_sampler_2d", "avg_pool3d",
        ),
    ),
    "pointwise": (
        pointwise,
        (
            "randint", "linspace", "eye", "one_hot", "angle", "polar", "nan_to_num", "kl_div",
            "pixel_shuffle", "pixel_unshuffle", "reflection_pad1d", "reflection_pad2d",
            "replication_pad2d", "im2col", "col2im", "diag_embed",
        ),
    ),
}  # fmt: skip
_BY_OPERATOR: Mapping[str, tuple[str, Extract]] = {
    operator: (family, extract)
    for family, (extract, operators) in _FAMILIES.items()
    for operator in operators
}

# Calls that start no kernel although they make a tensor of their own.
_ALLOCATING = frozenset({"empty", "empty_strided", "new_empty", "new_empty_strided", "empty_like"})


def starts_kernels(call: TensorCall) -> bool:
    """Whether a call runs anything on the device.

    Views and allocations do not, nor do calls on the host.
    """
    if call.call.on_host:
        return False
    if call.operator == "_local_scalar_dense":
        return True
    return not (call.views or call.operator in _ALLOCATING or call.operator.startswith("_use_"))


def has_known_work(brick: Brick) -> bool:
    """Whether the kind of kernels of a brick of one call is known.

    An operator without a family is taken as pointwise if it has a row of facts; ValueError as of
    :func:`kernel_features`.
    """
    call = single_call(brick)
    listed = call.operator in _BY_OPERATOR or call.operator in PARTS
    known = listed or call.operator.startswith("_foreach_") or is_known(brick.operators[0])
    return known or not starts_kernels(call)


def kernel_features(brick: Brick) -> tuple[KernelFeatures, ...]:
    """The features of a brick of one call, or of its parts; empty if it starts no kernel.

    Raises ValueError for a brick that is not a call of a recorded program.
    """
    call = single_call(brick)
    if not starts_kernels(call):
        return ()
    if (parts := PARTS.get(call.operator)) is not None:
        return tuple(parts(call))
    if call.operator.startswith("_foreach_"):
        return (KernelFeatures("foreach", call.operator, foreach(call)),)
    # Operators without a family are pointwise.
    family, extract = _BY_OPERATOR.get(call.operator, ("pointwise", pointwise))
    return (KernelFeatures(family, call.operator, extract(call)),)
