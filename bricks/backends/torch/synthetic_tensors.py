"""Synthetic tensors for the inputs and weights of a brick, made and filled by its recipes.

Floats are between zero and one; calls whose time depends on other values have a sketch of their
inputs. Indices are below a bound; offsets of bags rise evenly. Some values lie on the host even
where a program runs on a GPU. Must not know how calls run.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from bricks.backends.input_values import sets_in_turn
from bricks.backends.torch.call_data import TensorRecipe, TensorRecipes
from bricks.backends.torch.calls import ReplayedCall
from bricks.graph.sketch import Sketch


def fill_rising(tensor: torch.Tensor, bound: int) -> None:
    """Write integers that rise evenly from zero to below ``bound``."""
    count = tensor.numel()
    rising = torch.arange(count, dtype=torch.int64) * bound // max(count, 1)
    tensor.copy_(rising.view(tensor.shape))


def numbers_of(tensor: torch.Tensor) -> np.ndarray:
    """Convert a tensor to an array, of a type that NumPy has."""
    plain = tensor.detach()
    if plain.dtype.is_floating_point and plain.dtype.itemsize < 4:
        plain = plain.float()
    return np.asarray(plain.cpu().numpy())


def elements_of(tensor: torch.Tensor) -> torch.Tensor:
    """Return a view to write other values to a tensor: the tensor if its elements are distinct.

    Of an expanded tensor it is one of the equal elements; of overlapping windows, the storage.
    """
    for axis, (size, stride) in enumerate(zip(tensor.shape, tensor.stride(), strict=True)):
        if stride == 0 and size > 1:
            tensor = tensor.narrow(axis, 0, 1)
    reach = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True)) + 1
    if reach >= tensor.numel():
        return tensor
    whole = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    return whole.set_(tensor.untyped_storage())


def drawn(sketch: Sketch, random: torch.Tensor, seed: int) -> torch.Tensor:
    """Draw values of a ``sketch`` with the shape and type of ``random``."""
    made = np.ascontiguousarray(sketch.drawn(numbers_of(random), seed))
    return torch.from_numpy(made).to(random)


def sets_of(sketch: Sketch | None, random: torch.Tensor) -> list[torch.Tensor]:
    """Return values that take turns, so that processors do not learn them: see ``rotation``.

    They are drawn from the ``sketch``; without one, they are those of ``random`` in other orders.
    """
    elements, seeds = elements_of(random), range(sets_in_turn(random.numel()))
    if sketch is not None:
        return [drawn(sketch, elements, seed) for seed in seeds]
    generator = torch.Generator().manual_seed(0)
    flat = elements.reshape(-1)
    orders = (torch.randperm(flat.numel(), generator=generator) for _ in seeds)
    return [flat[order.to(flat.device)].reshape(elements.shape) for order in orders]


def fill(tensor: torch.Tensor, generator: torch.Generator, bound: int | None = None) -> None:
    """Write synthetic values to the storage of a tensor; integers below ``bound``, or 2."""
    dtype = torch.float32 if tensor.dtype.is_complex else tensor.dtype
    # Elements of an expanded tensor share memory: write to the storage.
    whole = torch.empty(0, dtype=dtype).set_(tensor.untyped_storage())
    if dtype.is_floating_point and dtype.itemsize < 2:
        whole.copy_(torch.full((), 0.5).to(dtype).expand(whole.shape))
    elif dtype.is_floating_point:
        whole.uniform_(0.05, 1.0, generator=generator)
    elif dtype == torch.bool:
        whole.copy_(torch.rand(whole.shape, generator=generator) < 0.5)
    else:
        whole.random_(0, max(1, bound if bound is not None else 2), generator=generator)


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


def host_values(calls: Sequence[ReplayedCall], recipes: TensorRecipes) -> frozenset[str]:
    """Return the names of values that stay on the host: numbers, states, those of calls there."""
    states = {recipe.name for recipe in recipes.tensors if recipe.state}
    numbers = {call.inputs[-1] for call in calls if call.takes_numbers}
    own = {name for call in calls if call.call.on_host for name in call.inputs}
    return frozenset({*states, *numbers, *own})
