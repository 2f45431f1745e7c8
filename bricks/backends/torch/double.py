"""A step of a program in double precision: the reference of its results and gradients.

The user's function is called again, its module and inputs are converted to doubles, and the same
step is run. Gradients in double are compared with central differences. Must not know which
differences are too large.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from bricks.backends.torch.differences import slope, to_float64
from bricks.backends.torch.entry import Program, users_errors
from bricks.backends.torch.real_step import array, tensor_leaves
from bricks.errors import BackendError

# The step of a central difference, relative to the magnitude of a tensor's elements. The cube root
# of the precision of doubles would be 6e-6; a smaller step crosses fewer kinks of functions such as
# ReLU.
_STEP = 1e-6


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
                return _scalar(program)

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
        """Return results by name, and whether the step drew random numbers."""
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


def _scalar(program: Program) -> torch.Tensor:
    """Return the loss of a step, or the sum of all outputs with constant random weights."""
    outputs = program.module(*program.inputs)
    if program.loss is not None:
        return program.loss(outputs)
    leaves = [leaf for leaf in tensor_leaves(outputs) if leaf.is_floating_point()]
    if not leaves:
        raise BackendError(f"{program.entry} has no output that can be differentiated")
    generator = torch.Generator().manual_seed(1)
    weights = [torch.randn(x.shape, generator=generator, dtype=torch.float64) for x in leaves]
    return torch.stack([(x * w).sum() for x, w in zip(leaves, weights, strict=True)]).sum()


def _direction(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Return a random direction with the RMS of the tensor's elements, or with 1 if all are 0."""
    drawn = torch.randn(tensor.shape, generator=generator, dtype=torch.float64)
    magnitude = float(tensor.detach().square().mean().sqrt()) if tensor.numel() else 0.0
    return drawn * (magnitude if magnitude > 0 and math.isfinite(magnitude) else 1.0)
