"""Inputs of calls that lie on the host even where a program runs on a GPU.

Must not know how calls are made.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bricks.backends.torch.replayed_call import ReplayedCall
    from bricks.backends.torch.tensor_recipe import TensorRecipes


def host_values(calls: Sequence[ReplayedCall], recipes: TensorRecipes) -> frozenset[str]:
    """Return the names of values that stay on the host: numbers, states, those of calls there."""
    states = {recipe.name for recipe in recipes.tensors if recipe.state}
    numbers = {call.inputs[-1] for call in calls if call.takes_numbers}
    own = {name for call in calls if call.call.on_host for name in call.inputs}
    return frozenset({*states, *numbers, *own})
