"""Inputs of calls that lie on the host even where a program runs on a GPU.

Must not know how calls are made.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bricks.backends.torch.replayed_call import ReplayedCall
from bricks.backends.torch.tensor_recipe import TensorRecipe, TensorRecipes

# Optimisers count steps on the host, in tensors of one number, unless they are told otherwise.
_COUNTING = "_foreach_add_.Scalar"


def host_values(calls: Sequence[ReplayedCall], recipes: TensorRecipes) -> frozenset[str]:
    """Return the names of values that stay on the host: numbers, states, counts of steps."""
    made = {recipe.name: recipe for recipe in recipes.tensors}
    states = {recipe.name for recipe in recipes.tensors if recipe.state}
    numbers = {call.inputs[-1] for call in calls if call.takes_numbers}
    return frozenset({*states, *numbers, *_counts(calls, made)})


def _counts(calls: Sequence[ReplayedCall], made: dict[str, TensorRecipe]) -> Iterator[str]:
    for call in calls:
        inputs = [made[name] for name in call.inputs if name in made]
        if call.call.operator == _COUNTING and all(_is_count(recipe) for recipe in inputs):
            yield from (recipe.name for recipe in inputs)


def _is_count(recipe: TensorRecipe) -> bool:
    return recipe.shape == () and recipe.dtype == "float32"
