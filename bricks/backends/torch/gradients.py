"""Compares the gradients of a program's loss with central differences, for each parameter.

All is computed in float64, on one batch of the data. Along a direction v, the derivative by
automatic differentiation is the product of gradient and v, and the one by differences is (L(p + hv)
- L(p - hv)) / 2h. Directions are the gradient itself, which reveals a wrong factor best, and random
ones, which reveal other errors. Random number generators are seeded before each loss, so that
dropout omits the same values. Must not know which deviation is too large.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch

from bricks.backends.torch.differences import as_float64, slope, to_float64
from bricks.backends.torch.entry import Program, users_errors
from bricks.backends.torch.training import copy_batch, seed_generators
from bricks.backends.training_checks import GradientDeviation, GradientDeviations
from bricks.errors import BackendError

# Random directions for each parameter, in addition to the gradient.
RANDOM_DIRECTIONS = 2

# Step widths relative to a parameter's root mean square: first the cube root of the precision,
# where the errors of truncation (h²) and rounding (precision / h) are about equal. Kinks such as
# those of ReLU add an error that shrinks with h: smaller steps are for losses with many kinks.
_STEPS = (6e-6, 6e-7, 6e-8)
# With a deviation below this, no smaller step is needed.
_CLOSE = 1e-5
# The least size of a parameter: biases are zero at first.
_MIN_SIZE = 1e-2

# Losses are sums of many terms: the number of roundings that may err in one direction.
_ROUNDINGS = 100


def gradients(program: Program, seed: int) -> GradientDeviations:
    """Compare the gradient of each parameter with finite differences.

    Raises :class:`BackendError` for data without a batch.
    """
    to_float64(program)
    if program.data is not None:
        with users_errors(program.entry):
            batch = next(iter(program.data), None)
        if batch is None:
            raise BackendError(f"{program.entry}: its data yield no batch")
        buffers = (*program.inputs, *program.targets)
        copy_batch(program, [as_float64(part) for part in batch], 1, buffers)
    seeded_loss = partial(_loss, program, seed)
    loss = seeded_loss()
    if loss.dtype != torch.float64:
        reason = f"its loss is computed in {loss.dtype}, which is too coarse"
        return GradientDeviations(reason=reason)
    with users_errors(program.entry):
        loss.backward()
    base = float(loss.detach())
    with torch.no_grad():
        if float(seeded_loss()) != base:
            reason = "two losses of the same batch and seed differ"
            return GradientDeviations(reason=reason)
        deviations = tuple(
            _compared(seeded_loss, base, name, parameter, seed)
            for name, parameter in program.module.named_parameters()
            if parameter.requires_grad
        )
    return GradientDeviations(deviations)


def _compared(
    loss: Callable[[], torch.Tensor],
    base: float,
    name: str,
    parameter: torch.nn.Parameter,
    seed: int,
) -> GradientDeviation:
    gradient = parameter.grad
    if gradient is None:
        gradient = torch.zeros_like(parameter)
    along = [
        _along(loss, base, parameter, gradient, direction)
        for direction in _directions(gradient, seed)
    ]
    compared = [each for each in along if each is not None]
    return GradientDeviation(
        name,
        deviation=max((deviation for deviation, _ in compared), default=None),
        resolution=max((resolution for _, resolution in compared), default=None),
    )


def _along(
    loss: Callable[[], torch.Tensor],
    base: float,
    parameter: torch.nn.Parameter,
    gradient: torch.Tensor,
    direction: torch.Tensor,
) -> tuple[float, float] | None:
    """Return deviation and resolution along a direction; None where both derivatives are zero.

    The step width that agrees best counts: a wrong gradient deviates with all of them. ``base`` is
    the loss.
    """
    exact = float((gradient * direction).sum())
    # The usual size of the derivative along a random direction of unit root mean square.
    usual = float(gradient.norm())
    size = max(float(parameter.square().mean().sqrt()), _MIN_SIZE)
    best: tuple[float, float] | None = None
    for step in _STEPS:
        h = step * size
        noise = _ROUNDINGS * torch.finfo(torch.float64).eps * max(abs(base), 1e-300) / h
        differences = slope(loss, parameter, direction, h)
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
    """Yield directions of unit root mean square: the gradient's own, and random ones."""
    size = float(gradient.square().mean().sqrt())
    if size > 0:
        yield gradient / size
    generator = torch.Generator().manual_seed(seed)
    for _ in range(RANDOM_DIRECTIONS):
        yield torch.randn(gradient.shape, generator=generator, dtype=torch.float64)


def _loss(program: Program, seed: int) -> torch.Tensor:
    seed_generators(seed)
    assert program.loss is not None, "only a training step has a loss"
    with users_errors(program.entry):
        loss = program.loss(program.module(*program.inputs))
    if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
        raise BackendError(f"{program.entry}: its loss is no scalar tensor")
    return loss
