"""A program in double precision: the reference of its results and gradients.

The user's function is called again, its module and inputs are converted to doubles, and the same
step is run. The gradients of its loss are compared with central differences, for each parameter.

All is computed in float64, on one batch of the data. Along a direction v, the derivative by
automatic differentiation is the product of gradient and v, and the one by differences is (L(p + hv)
- L(p - hv)) / 2h. Directions are the gradient itself, which reveals a wrong factor best, and random
ones, which reveal other errors. Random number generators are seeded before each loss, so that
dropout omits the same values. Must not know which differences are too large.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch

from bricks.backends.torch.entry import Program, users_errors
from bricks.backends.torch.run.replay import array, tensor_leaves
from bricks.backends.torch.run.training import copy_batch, seed_generators
from bricks.backends.training_checks import GradientDeviation, GradientDeviations
from bricks.errors import BackendError

# The step of a central difference, relative to the magnitude of a tensor's elements. The cube root
# of the precision of doubles would be 6e-6; a smaller step crosses fewer kinks of functions such as
# ReLU.
_STEP = 1e-6

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


class ProgramInDouble:
    """The program that ``make`` returns, as it is and in double; each run has its own state."""

    def __init__(self, make: Callable[[], Program], seed: int) -> None:
        self._make, self._seed = make, seed
        # An inference program is kept, with copies of its buffers, since compiling takes long.
        self._inference: Program | None = None
        self._buffers: dict[str, torch.Tensor] = {}

    def run(self) -> dict[str, np.ndarray]:
        """Return outputs of an inference step, or loss and gradients of a training step."""
        program = self._inference or self._make()
        buffers = dict(program.module.named_buffers())
        if self._inference is not None:
            with torch.no_grad():
                for name, buffer in buffers.items():
                    buffer.copy_(self._buffers[name])
        elif program.optimizer is None:
            self._inference = program
            self._buffers = {name: buffer.clone() for name, buffer in buffers.items()}
        return self._stepped(program)[0]

    def reference(self) -> dict[str, np.ndarray]:
        """Return the results of :meth:`run` in double."""
        program = self._in_double()
        results, random = self._stepped(program)
        if random:
            raise BackendError(
                f"{program.entry} draws random numbers in its step, and draws others in double"
            )
        for name, value in results.items():
            if value.dtype.kind == "f" and value.dtype != np.float64:
                raise BackendError(
                    f"{program.entry} computes {name} as {value.dtype}, though all that it gets is"
                    " in double"
                )
        return results

    def gradients(self) -> list[dict[str, Any]]:
        """Differentiate along a random direction of each parameter and floating-point input."""
        program = self._in_double()
        inputs = [x.requires_grad_() if x.is_floating_point() else x for x in program.inputs]
        program = replace(program, inputs=tuple(inputs))
        tensors = {f"input {k}": x for k, x in enumerate(inputs) if x.requires_grad}
        tensors |= {n: p for n, p in program.module.named_parameters() if p.requires_grad}
        if not tensors:
            raise BackendError(f"{program.entry} has nothing that a gradient could be taken of")
        ready: list[int] = []  # in the order in which the backward pass makes them
        for tensor in tensors.values():
            tensor.register_post_accumulate_grad_hook(lambda t: ready.append(id(t)))

        def seeded() -> torch.Tensor:
            with self._step_of(program):
                outputs = program.module(*program.inputs)
                if program.loss is not None:
                    return program.loss(outputs)
                leaves = [leaf for leaf in tensor_leaves(outputs) if leaf.is_floating_point()]
                if not leaves:
                    raise BackendError(f"{program.entry} has no output that can be differentiated")
                generator = torch.Generator().manual_seed(1)
                weights = [
                    torch.randn(x.shape, generator=generator, dtype=torch.float64) for x in leaves
                ]
                return torch.stack(
                    [(x * w).sum() for x, w in zip(leaves, weights, strict=True)]
                ).sum()

        with torch.enable_grad():
            value = seeded()
            if value.dtype != torch.float64 or not value.requires_grad:
                raise BackendError(f"{program.entry} has no result that can be differentiated")
            with users_errors(program.entry):
                value.backward()
        generator = torch.Generator().manual_seed(self._seed)
        derivatives = {}
        for name, tensor in tensors.items():
            analytic, direction = 0.0, _direction(tensor, generator)
            if tensor.grad is not None:
                analytic = float((tensor.grad.to_dense() * direction).sum())
            with torch.no_grad():
                numeric = slope(seeded, tensor, direction, _STEP)
            derivatives[id(tensor)] = {"of": name, "analytic": analytic, "numeric": numeric}
        return [derivatives[at] for at in dict.fromkeys((*ready, *derivatives))]

    def _in_double(self) -> Program:
        program = self._make()
        to_float64(program)
        # A reference runs without compiled code.
        return replace(program, compiled=None)

    def _stepped(self, program: Program) -> tuple[dict[str, np.ndarray], bool]:
        with self._step_of(program):
            before = torch.get_rng_state()
            result = program.step()
            random = not torch.equal(before, torch.get_rng_state())
        leaves = tensor_leaves(result)
        if program.optimizer is None:
            return {f"output {k}": array(leaf) for k, leaf in enumerate(leaves)}, random
        results = {"loss": array(leaves[0])}
        for name, parameter in program.module.named_parameters():
            if parameter.grad is not None:
                results[f"gradient of {name}"] = array(parameter.grad.to_dense())
        return results, random

    @contextmanager
    def _step_of(self, program: Program) -> Iterator[None]:
        """Seed the generator before a step, and translate errors of the user's code."""
        torch.manual_seed(self._seed)
        with users_errors(program.entry):
            yield


def _direction(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Return a random direction with the RMS of the tensor's elements, or with 1 if all are 0."""
    drawn = torch.randn(tensor.shape, generator=generator, dtype=torch.float64)
    magnitude = float(tensor.detach().square().mean().sqrt()) if tensor.numel() else 0.0
    return drawn * (magnitude if magnitude > 0 and math.isfinite(magnitude) else 1.0)


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
        deviations = []
        for name, parameter in program.module.named_parameters():
            if not parameter.requires_grad:
                continue
            gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            along = [
                _along(seeded_loss, base, parameter, gradient, direction)
                for direction in _directions(gradient, seed)
            ]
            compared = [each for each in along if each is not None]
            deviation = max((deviation for deviation, _ in compared), default=None)
            resolution = max((resolution for _, resolution in compared), default=None)
            deviations.append(GradientDeviation(name, deviation, resolution))
    return GradientDeviations(tuple(deviations))


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
