"""Central differences of what a program computes, in float64.

The reference of gradients, of single operators and of whole training steps alike. Must not know
which deviation from them is too large.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from bricks.backends.torch.entry import Program, users_errors


def to_float64(program: Program) -> None:
    """Everything in float64 from here on, in place, since the loss may refer to it."""
    with users_errors(program.entry):
        program.module.double()
    for tensor in (*program.inputs, *program.targets):
        tensor.data = as_float64(tensor.data)


def as_float64(tensor: Any) -> Any:
    """The tensor in float64 if it holds floating-point numbers; anything else as it is."""
    floating = isinstance(tensor, torch.Tensor) and tensor.is_floating_point()
    return tensor.double() if floating else tensor


def slope(
    value: Callable[[], torch.Tensor], tensor: torch.Tensor, direction: torch.Tensor, h: float
) -> float:
    """How fast ``value`` grows as ``tensor`` moves along ``direction``, by a step ``h`` each way.

    ``value`` must compute the same for the same ``tensor``, which is left as it was. Call it
    without gradients.
    """
    kept = tensor.detach().clone()
    tensor.add_(direction, alpha=h)
    above = float(value())
    tensor.copy_(kept).add_(direction, alpha=-h)
    below = float(value())
    tensor.copy_(kept)
    return (above - below) / (2 * h)
