"""Central differences of a program's results in float64: the reference of its gradients.

Must not know which deviation is too large.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from bricks.backends.torch.entry import Program, users_errors


def to_float64(program: Program) -> None:
    """Convert module, inputs and targets to float64 in place, since the loss may refer to them."""
    with users_errors(program.entry):
        program.module.double()
    for tensor in (*program.inputs, *program.targets):
        tensor.data = as_float64(tensor.data)


def as_float64(tensor: Any) -> Any:
    """Convert a floating-point tensor to float64; return other objects unchanged."""
    floating = isinstance(tensor, torch.Tensor) and tensor.is_floating_point()
    return tensor.double() if floating else tensor


def slope(
    value: Callable[[], torch.Tensor], tensor: torch.Tensor, direction: torch.Tensor, h: float
) -> float:
    """Return the central difference of ``value`` along ``direction`` of ``tensor``, of step ``h``.

    ``value`` must be a function of ``tensor``, which is restored. Call it without gradients.
    """
    original = tensor.detach().clone()
    tensor.add_(direction, alpha=h)
    above = float(value())
    tensor.copy_(original).add_(direction, alpha=-h)
    below = float(value())
    tensor.copy_(original)
    return (above - below) / (2 * h)
