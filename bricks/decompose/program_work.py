"""Operations (FLOPs) of the calls of a recorded program, by ATen operator.

A multiply-add counts as two, an elementary function as one. Views and copies compute nothing. An
operator that is not listed has unknown work, which is said and not guessed. Must not import
PyTorch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import onnx

from bricks.errors import ModelError
from bricks.graph.containers import ValueType
from bricks.graph.program import Call, call_of
from bricks.graph.tensor import TensorType

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Sizes:
    """The shapes of a call's arguments by position, and the elements of all that it makes."""

    call: Call
    inputs: tuple[Shape, ...]
    outputs: tuple[Shape, ...]

    def shape(self, position: int) -> Shape:
        """The shape of a positional argument that is a tensor."""
        told = self.call.arguments[0][position]
        return self.inputs[told["t"]]

    def argument(self, position: int) -> Any:
        """A positional argument that is no tensor."""
        return self.call.arguments[0][position]

    @property
    def made(self) -> int:
        """Elements of the first output."""
        return math.prod(self.outputs[0])

    @property
    def read(self) -> int:
        """Elements of all tensors among the arguments."""
        return sum(map(math.prod, self.inputs))


Rule = Callable[[_Sizes], int]


def call_flops(node: onnx.NodeProto, types: Mapping[str, ValueType]) -> int | None:
    """The operations of a call; None where they are unknown."""
    try:
        call = call_of(node)
        rule = _RULES.get(plain_operator(call.operator))
        return None if rule is None else rule(_sizes(call, node, types))
    except (ModelError, KeyError, IndexError, TypeError, ValueError):
        return None


def plain_operator(operator: str) -> str:
    """An operator's name without overload, and without the marks of what works in place."""
    return operator.partition(".")[0].rstrip("_")


def _sizes(call: Call, node: onnx.NodeProto, types: Mapping[str, ValueType]) -> _Sizes:
    inputs = tuple(_shape(types[name]) for name in node.input)
    return _Sizes(call, inputs, tuple(_shape(types[n]) for n in node.output if n))


def _shape(type_: ValueType) -> Shape:
    return type_.shape if isinstance(type_, TensorType) else ()


def _product(first: int) -> Rule:
    """A product of matrices, the first of which is at this position."""

    def rule(s: _Sizes) -> int:
        return 2 * s.made * s.shape(first)[-1]

    return rule


def _convolution(s: _Sizes) -> int:
    each = 2 * math.prod(s.shape(1)[1:])
    return each * (math.prod(s.shape(0)) if s.argument(6) else s.made)


def _convolution_backward(s: _Sizes) -> int:
    """As much work as the convolution, for each of the gradients of input and weight."""
    each = 2 * math.prod(s.shape(2)[1:])
    places = math.prod(s.shape(1) if s.argument(7) else s.shape(0))
    wanted: list[int] = s.argument(10)
    return each * places * sum(wanted[:2]) + (math.prod(s.shape(0)) if wanted[2] else 0)


def _attention(products: int) -> Rule:
    """Attention as one operator: so many products, forward two; ``query`` is followed by ``key``.

    In the backward pass the gradient comes first.
    """

    def rule(s: _Sizes) -> int:
        first = 0 if products == 2 else 1
        query, key = s.shape(first), s.shape(first + 1)
        return 2 * products * math.prod(query) * key[-2]

    return rule


def _recurrent(s: _Sizes) -> int:
    """A layer of a recurrent network: both weights at each place of the sequence."""
    places = math.prod(s.shape(0)[:-1])
    return 2 * places * (math.prod(s.shape(1)) + math.prod(s.shape(2)))


def _per_made(times: int) -> Rule:
    return lambda s: times * s.made


def _per_read(times: int) -> Rule:
    return lambda s: times * s.read


_NOTHING = (
    "view", "_unsafe_view", "t", "transpose", "permute", "expand", "slice", "select", "unsqueeze",
    "squeeze", "split", "split_with_sizes", "chunk", "unbind", "as_strided", "alias", "detach",
    "reshape", "_reshape_alias", "clone", "copy", "_to_copy", "cat", "stack", "fill", "zero",
    "zeros", "zeros_like", "ones", "ones_like", "full", "full_like", "empty", "empty_like",
    "empty_strided", "new_empty", "new_zeros", "new_ones", "new_full", "new_empty_strided",
    "arange", "index_select", "gather", "embedding", "index", "_unsafe_index", "lift_fresh",
    "constant_pad_nd", "unfold", "repeat", "slice_backward", "select_backward", "_foreach_zero",
    "_foreach_copy", "scalar_tensor", "_local_scalar_dense", "diagonal", "flip", "roll", "tril",
    "triu", "contiguous", "upsample_nearest2d", "repeat_interleave", "unflatten", "view_as_real",
    "view_as_complex", "resize", "set", "is_same_size", "unsafe_split", "squeeze_multiple",
)  # fmt: skip

_POINTWISE = (
    "add", "sub", "rsub", "mul", "div", "neg", "abs", "sign", "sqrt", "rsqrt", "reciprocal", "pow",
    "exp", "log", "log1p", "expm1", "sin", "cos", "tanh", "sigmoid", "relu", "clamp", "clamp_min",
    "clamp_max", "hardtanh", "hardsigmoid", "hardswish", "silu", "gelu", "erf", "mish", "softplus",
    "leaky_relu", "elu", "maximum", "minimum", "where", "masked_fill", "eq", "ne", "lt", "le", "gt",
    "ge", "logical_and", "logical_or", "logical_not", "bitwise_and", "bitwise_or", "bitwise_not",
    "threshold_backward", "tanh_backward", "sigmoid_backward", "hardtanh_backward",
    "hardsigmoid_backward", "hardswish_backward", "silu_backward", "gelu_backward",
    "leaky_relu_backward", "elu_backward", "softplus_backward", "mish_backward", "native_dropout",
    "native_dropout_backward", "bernoulli", "uniform", "normal", "rand", "randn", "index_add",
    "scatter_add", "scatter", "index_put", "_index_put_impl", "mse_loss", "smooth_l1_loss",
    "huber_loss", "mse_loss_backward", "smooth_l1_loss_backward", "huber_loss_backward",
    "binary_cross_entropy_with_logits", "nll_loss_backward", "embedding_dense_backward", "glu",
    "glu_backward", "upsample_bilinear2d", "square", "floor", "round", "isnan", "atan2", "fmod",
    "remainder", "softshrink", "log_sigmoid_forward", "log_sigmoid_backward", "exponential",
)  # fmt: skip

_REDUCTIONS = (
    "sum", "mean", "amax", "amin", "max", "min", "argmax", "argmin", "prod", "any", "all",
    "nll_loss_forward", "linalg_vector_norm", "cumsum", "_foreach_norm", "count_nonzero",
    "_embedding_bag", "_embedding_bag_forward_only", "_embedding_bag_dense_backward",
    "avg_pool2d", "_adaptive_avg_pool2d", "max_pool2d_with_indices", "avg_pool2d_backward",
    "_adaptive_avg_pool2d_backward", "max_pool2d_with_indices_backward", "adaptive_avg_pool2d",
    "upsample_nearest2d_backward", "upsample_bilinear2d_backward", "topk", "sort",
)  # fmt: skip

# A function of means and variances: a few operations for each element.
_NORMS = (
    "native_layer_norm", "native_batch_norm", "_native_batch_norm_legit",
    "_native_batch_norm_legit_no_training", "native_group_norm", "_fused_rms_norm",
    "_batch_norm_with_update", "var", "var_mean", "std", "_softmax", "_log_softmax",
    "native_batch_norm_backward", "native_layer_norm_backward", "native_group_norm_backward",
    "_softmax_backward_data", "_log_softmax_backward_data", "_fused_rms_norm_backward",
    "batch_norm_backward", "_native_batch_norm_legit_functional",
)  # fmt: skip

_RULES: Mapping[str, Rule] = {
    **dict.fromkeys(_NOTHING, lambda s: 0),
    **dict.fromkeys(_POINTWISE, _per_made(1)),
    **dict.fromkeys(_REDUCTIONS, _per_read(1)),
    **dict.fromkeys(_NORMS, _per_read(5)),
    "addcmul": _per_made(3),
    "addcdiv": _per_made(3),
    "lerp": _per_made(3),
    "mm": _product(0),
    "bmm": _product(0),
    "mv": _product(0),
    "dot": lambda s: 2 * math.prod(s.shape(0)),
    "addmm": _product(1),
    "baddbmm": _product(1),
    "addbmm": _product(1),
    "linear": _product(0),
    "mkldnn_linear": _product(0),
    "convolution": _convolution,
    "_convolution": _convolution,
    "convolution_backward": _convolution_backward,
    "_scaled_dot_product_flash_attention_for_cpu": _attention(2),
    "_scaled_dot_product_flash_attention_for_cpu_backward": _attention(5),
    "mkldnn_rnn_layer": _recurrent,
    **{
        f"_foreach_{name}": _per_read(times)
        for name, times in {
            "add": 1, "sub": 1, "mul": 1, "div": 1, "sqrt": 1, "neg": 1, "addcmul": 1, "addcdiv": 1,
            "lerp": 1, "maximum": 1, "reciprocal": 1, "pow": 1, "abs": 1,
        }.items()
    },
    # Updates by moments: a dozen operations for each parameter, of four or five tensors each.
    "_fused_sgd": _per_read(2),
    "_fused_adam": _per_read(3),
    "_fused_adamw": _per_read(3),
    "_fused_adagrad": _per_read(2),
}  # fmt: skip
