"""What is known of calls without PyTorch, as plain data.

Operators that are not PyTorch's own, scalar arguments that do not change the work of a call, and
how the synthetic tensors of a brick are laid out and filled. Must not know how tensors are made:
this module imports neither PyTorch nor ONNX.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# Calls that save and restore the state of the random number generator.
GENERATOR = "generator"
GET_STATE, SET_STATE = "get_state", "set_state"

# Dynamically quantised products, whose weights are a packed object. A recording has a list of the
# int8 weight, the bias, scale and zero point in its place, and a replay packs these again.
QUANTIZED = "quantized"
PACKED = ("linear_dynamic", "linear_relu_dynamic")


@dataclass(frozen=True, slots=True)
class TensorRecipe:
    """A tensor called ``name``: a view of ``storage``; ``offset`` and ``strides`` are in elements.

    Its elements are random: integers are less than ``bound``, or than 2 if it is None. A ``rising``
    tensor has integers that rise evenly from zero to below ``bound``. A ``state`` is one of the
    random number generator.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    storage: int
    offset: int
    strides: tuple[int, ...]
    bound: int | None = None
    rising: bool = False
    state: bool = False

    def to_json(self) -> list[Any]:
        """A list of all fields."""
        return [
            self.name, self.dtype, list(self.shape), self.storage, self.offset,
            list(self.strides), self.bound, self.rising, self.state,
        ]  # fmt: skip

    @classmethod
    def from_json(cls, data: Sequence[Any]) -> TensorRecipe:
        """The inverse of :meth:`to_json`."""
        name, dtype, shape, storage, offset, strides, *filling = data
        return cls(name, dtype, tuple(shape), storage, offset, tuple(strides), *filling)


@dataclass(frozen=True, slots=True)
class TensorRecipes:
    """The tensors of a brick in the order in which they are filled; ``storages`` are in bytes."""

    storages: tuple[int, ...]
    tensors: tuple[TensorRecipe, ...]

    def to_json(self) -> dict[str, Any]:
        """Both fields."""
        tensors = [recipe.to_json() for recipe in self.tensors]
        return {"storages": list(self.storages), "tensors": tensors}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> TensorRecipes:
        """The inverse of :meth:`to_json`."""
        tensors = tuple(map(TensorRecipe.from_json, data["tensors"]))
        return cls(tuple(data["storages"]), tensors)


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
