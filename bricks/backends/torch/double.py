"""A program's step in double precision: the reference of what it computes and differentiates.

The user's function is called anew, its module and inputs are turned into doubles, and the same step
is run. Gradients in double are held against central differences. Must not know how differences
are judged.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch.utils._pytree import tree_leaves

from bricks.backends.torch.differences import slope, to_float64
from bricks.backends.torch.entry import Program, users_errors
from bricks.backends.torch.stepping import array
from bricks.errors import BackendError

# The step of a central difference, relative to the magnitude of a tensor's elements. The cube root
# of the precision of doubles would be 6e-6; a smaller step crosses fewer kinks of functions such as
# ReLU.
_STEP = 1e-6


class ProgramInDouble:
    """The program that ``make`` makes, as it is and in double; each has a state of its own."""

    def __init__(self, make: Callable[[], Program], seed: int) -> None:
        self._make, self._seed = make, seed
        # An inference program is kept, with its buffers as they were: compiling it takes long.
        self._inference: Program | None = None
        self._buffers: dict[str, torch.Tensor] = {}

    def run(self) -> dict[str, np.ndarray]:
        """Outputs of an inference step, or the loss and the gradients of a training step."""
        program = self._inference or self._make()
        buffers = dict(program.module.named_buffers())
        if self._inference is not None:
            with torch.no_grad():
                for name, buffer in buffers.items():
                    buffer.copy_(self._buffers[name])
        elif program.optimizer is None:
            self._inference = program
            self._buffers = {name: buffer.clone() for name, buffer in buffers.items()}
        found, _ = self._stepped(program)
        return found

    def reference(self) -> dict[str, np.ndarray]:
        """The same in double."""
        program = self._in_double()
        found, random = self._stepped(program)
        if random:
            raise BackendError(
                f"{program.entry} draws random numbers in its step, and draws others in double"
            )
        for name, value in found.items():
            if value.dtype.kind == "f" and value.dtype != np.float64:
                raise BackendError(
                    f"{program.entry} computes {name} as {value.dtype}, though all that it gets is"
                    " in double"
                )
        return found

    def gradients(self) -> list[dict[str, Any]]:
        """The derivative along a random direction of each parameter and floating-point input."""
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
        scalar = _scalar(program)

        def seeded() -> torch.Tensor:
            with self._step_of(program):
                return scalar()

        with torch.enable_grad():
            value = seeded()
            if value.dtype != torch.float64 or not value.requires_grad:
                raise BackendError(f"{program.entry} has no result that can be differentiated")
            with users_errors(program.entry):
                value.backward()
        generator = torch.Generator().manual_seed(self._seed)
        found = {}
        for name, tensor in tensors.items():
            analytic, direction = 0.0, _direction(tensor, generator)
            if tensor.grad is not None:
                analytic = float((tensor.grad.to_dense() * direction).sum())
            with torch.no_grad():
                numeric = slope(seeded, tensor, direction, _STEP)
            found[id(tensor)] = {"of": name, "analytic": analytic, "numeric": numeric}
        return [found[at] for at in dict.fromkeys((*ready, *found))]

    def _in_double(self) -> Program:
        program = self._make()
        to_float64(program)
        # Compiled code is not what is wanted of a reference.
        return replace(program, compiled=None)

    def _stepped(self, program: Program) -> tuple[dict[str, np.ndarray], bool]:
        """Results by name, and whether the step drew random numbers."""
        with self._step_of(program):
            before = torch.get_rng_state()
            result = program.step()
            random = not torch.equal(before, torch.get_rng_state())
        leaves = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        if program.optimizer is None:
            return {f"output {k}": array(leaf) for k, leaf in enumerate(leaves)}, random
        found = {"loss": array(leaves[0])}
        for name, parameter in program.module.named_parameters():
            if parameter.grad is not None:
                found[f"gradient of {name}"] = array(parameter.grad.to_dense())
        return found, random

    @contextmanager
    def _step_of(self, program: Program) -> Iterator[None]:
        """The same random numbers in each step; errors of the user's code as such."""
        torch.manual_seed(self._seed)
        with users_errors(program.entry):
            yield


def _scalar(program: Program) -> Callable[[], torch.Tensor]:
    """What is differentiated: the loss, or the sum of all outputs with random weights."""
    weights: Mapping[int, torch.Tensor] = {}

    def scalar() -> torch.Tensor:
        outputs = program.module(*program.inputs)
        if program.loss is not None:
            return program.loss(outputs)
        nonlocal weights
        leaves = [
            leaf
            for leaf in tree_leaves(outputs)
            if isinstance(leaf, torch.Tensor) and leaf.is_floating_point()
        ]
        if not leaves:
            raise BackendError(f"{program.entry} has no output that can be differentiated")
        if not weights:
            generator = torch.Generator().manual_seed(1)
            weights = {
                k: torch.randn(leaf.shape, generator=generator, dtype=torch.float64)
                for k, leaf in enumerate(leaves)
            }
        return torch.stack([(leaf * weights[k]).sum() for k, leaf in enumerate(leaves)]).sum()

    return scalar


def _direction(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """A random direction of the magnitude of the tensor's elements, or of one where they are 0."""
    drawn = torch.randn(tensor.shape, generator=generator, dtype=torch.float64)
    magnitude = float(tensor.detach().square().mean().sqrt()) if tensor.numel() else 0.0
    return drawn * (magnitude if magnitude > 0 and math.isfinite(magnitude) else 1.0)
