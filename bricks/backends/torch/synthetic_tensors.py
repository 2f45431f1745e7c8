"""Synthetic tensors for the inputs and weights of a brick, made by its recipes.

Must not know how calls run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from bricks.backends.torch.filling import fill, fill_rising

if TYPE_CHECKING:
    from bricks.backends.torch.tensor_recipe import TensorRecipe, TensorRecipes


def own_tensors(recipes: TensorRecipes, generator: torch.Generator) -> dict[str, torch.Tensor]:
    """Return a tensor with synthetic values for each recipe, by name."""
    storages = [torch.UntypedStorage(size_bytes) for size_bytes in recipes.storages]
    made = {recipe.name: _view(recipe, storages[recipe.storage]) for recipe in recipes.tensors}
    for recipe in recipes.tensors:
        if recipe.rising:
            fill_rising(made[recipe.name], recipe.bound or 0)
        else:
            fill(made[recipe.name], generator, recipe.bound)
    states = {recipe.name: torch.get_rng_state() for recipe in recipes.tensors if recipe.state}
    return made | states


def _view(recipe: TensorRecipe, storage: torch.UntypedStorage) -> torch.Tensor:
    made = torch.empty(0, dtype=getattr(torch, recipe.dtype))
    return made.set_(storage, recipe.offset, recipe.shape, recipe.strides)
