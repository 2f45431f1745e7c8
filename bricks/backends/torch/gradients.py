"""Gradients of a program's loss, beside central finite differences, parameter by parameter.

All of it in float64, on one batch of the data. Along a direction v, the derivative by automatic
differentiation is the product of gradient and v, and that by differences is (L(p + hv) - L(p - hv))
/ 2h. Directions are the gradient itself, which shows a wrong factor best, and random ones, which
show errors elsewhere. Generators of random numbers are seeded anew before each loss, so that
dropout leaves out the same values. Must not know which deviation is too large.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial

import numpy as np
import torch

from bricks.backends.torch.differences import as_float64, slope, to_float64
from bricks.backends.torch.entry import Program, users_errors
from bricks.backends.torch.training import copy_batch
from bricks.backends.training_checks import GradientDeviation, GradientDeviations
from bricks.errors import BackendError

# Random directions for each parameter, beside the gradient.
RANDOM_DIRECTIONS = 2

# Of a parameter's root mean square: first the cube root of float64's precision, where the error of
# truncation (h²) and that of rounding (precision / h) are about equal. Kinks, as those of ReLU, add
# an error that shrinks with h: the smaller steps are for losses that have many.
_STEPS = (6e-6, 6e-7, 6e-8)
# With a deviation below this, no smaller step is needed.
_CLOSE = 1e-5
# The size that counts for a parameter that is zero, as biases are at first.
_MIN_SIZE = 1e-2

# Losses are sums of many terms: so many roundings may be wrong in one of them.
_ROUNDINGS = 100


def gradients(program: Program, seed: int) -> GradientDeviations:
    """The deviation of each parameter's gradient from finite differences.

    Raises BackendError for data without a batch.
    """
    to_float64(program)
    if program.data is not None:
        with users_errors(program.entry):
            batch = next(iter(program.data), None)
        if batch is None:
            raise BackendError(f"{program.entry}: its data yield no batch")
        places = (*program.inputs, *program.targets)
        copy_batch(program, [as_float64(each) for each in batch], 1, places)
    loss = _loss(program, seed)
    if loss.dtype != torch.float64:
        reason = f"its loss is computed in {loss.dtype}, which is too coarse"
        return GradientDeviations(reason=reason)
    with users_errors(program.entry):
        loss.backward()
    base = float(loss.detach())
    with torch.no_grad():
        if float(_loss(program, seed)) != base:
            reason = "two losses of the same batch and seed differ"
            return GradientDeviations(reason=reason)
        found = tuple(
            _compared(program, name, parameter, base, seed)
            for name, parameter in program.module.named_parameters()
            if parameter.requires_grad
        )
    return GradientDeviations(found)


def _compared(
    program: Program, name: str, parameter: torch.nn.Parameter, base: float, seed: int
) -> GradientDeviation:
    gradient = parameter.grad
    if gradient is None:
        gradient = torch.zeros_like(parameter)
    size = max(float(parameter.square().mean().sqrt()), _MIN_SIZE)
    found = [
        each
        for direction in _directions(gradient, seed)
        if (each := _along(program, parameter, gradient, direction, size, base, seed)) is not None
    ]
    return GradientDeviation(
        name,
        deviation=max((deviation for deviation, _ in found), default=None),
        resolution=max((resolution for _, resolution in found), default=None),
    )


def _along(
    program: Program,
    parameter: torch.nn.Parameter,
    gradient: torch.Tensor,
    direction: torch.Tensor,
    size: float,
    base: float,
    seed: int,
) -> tuple[float, float] | None:
    """Deviation and resolution along a direction; None where both derivatives are zero.

    Of several steps the one that agrees best counts: a wrong gradient deviates with all of them.
    """
    exact = float((gradient * direction).sum())
    # Along a random direction of unit root mean square, the derivative is usually so large.
    usual = float(gradient.norm())
    best: tuple[float, float] | None = None
    for step in _STEPS:
        h = step * size
        noise = _ROUNDINGS * torch.finfo(torch.float64).eps * max(abs(base), 1e-300) / h
        differences = slope(partial(_loss, program, seed), parameter, direction, h)
        whole = max(abs(exact), abs(differences), usual)
        if whole <= noise:
            break
        deviation, resolution = abs(exact - differences) / whole, noise / whole
        if best is None or (deviation < best[0] and resolution < best[0]):
            best = deviation, resolution
        if best[0] <= _CLOSE:
            break
    return best


def _directions(gradient: torch.Tensor, seed: int) -> Iterator[torch.Tensor]:
    """Of unit root mean square: the gradient's own direction, and random ones."""
    size = float(gradient.square().mean().sqrt())
    if size > 0:
        yield gradient / size
    generator = torch.Generator().manual_seed(seed)
    for _ in range(RANDOM_DIRECTIONS):
        yield torch.randn(gradient.shape, generator=generator, dtype=torch.float64)


def _loss(program: Program, seed: int) -> torch.Tensor:
    torch.manual_seed(seed)
    np.random.seed(seed % (1 << 32))
    random.seed(seed)
    assert program.loss is not None, "only a training step has a loss"
    with users_errors(program.entry):
        loss = program.loss(program.module(*program.inputs))
    if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
        raise BackendError(f"{program.entry}: its loss is no scalar tensor")
    return loss
