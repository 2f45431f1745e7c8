"""One real step from a known state, and the same state again for its calls one by one.

So the calls of a program can be checked: what they compute, chained, must be what the step itself
computes. Must not know how calls are cut into bricks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import torch

from bricks.backends.torch.call_recorder import CallRecorder
from bricks.backends.torch.entry import Program
from bricks.backends.torch.held_tensors import held_by
from bricks.backends.torch.replay import ReplayedCall
from bricks.backends.torch.values import numbers_of
from bricks.errors import BackendError
from bricks.graph.model_metadata import without_sketches
from bricks.reading.digest import digest


class RealStep:
    """A step of ``program``, whose graph of calls must be ``proto``.

    ``expected`` holds the step's results by the name of the value in the graph: outputs or loss,
    gradients, and everything that the program holds between steps. ``deterministic`` says whether
    running the step twice gives the same bits. ``begin`` puts the program back to where the step
    began, and returns the values that are there, by name.
    """

    def __init__(self, program: Program, proto: onnx.ModelProto, warm_up: int) -> None:
        for _ in range(warm_up):
            program.step()
        held = [tensor for named in held_by(program).values() for tensor in named.values()]
        self._storages = {t.untyped_storage()._cdata: t.untyped_storage() for t in held}
        self._copies = {key: storage.clone() for key, storage in self._storages.items()}
        self._random = torch.get_rng_state()
        self._program = program
        recorder = CallRecorder(program)
        with recorder, recorder.watching():
            result = program.step(recorder.mark)
            recorder.finish()
        names = [recorder.latest(tensor) for tensor in _results(program, result)]
        if digest(recorder.model(None)) != digest(without_sketches(proto)):
            raise BackendError(
                f"{program.entry} makes other calls than when it was recorded: record it again"
            )
        self._constants = {
            name: tensor.clone()
            for name, tensor in recorder.begins.items()
            if tensor.untyped_storage()._cdata not in self._storages
        }
        self._begins = recorder.begins
        self._numbers = recorder.numbers
        first, second = self._stepped(), self._stepped()
        self.deterministic = all(map(torch.equal, first, second))
        self.expected: Mapping[str, np.ndarray] = {
            name: array(tensor) for name, tensor in zip(names, first, strict=True) if name
        }

    def _stepped(self) -> list[torch.Tensor]:
        self.begin()
        result = self._program.step()
        return [tensor.detach().clone() for tensor in _results(self._program, result)]

    def begin(self) -> dict[str, torch.Tensor]:
        """Put every storage, and the random numbers, back to where the step began."""
        for key, storage in self._storages.items():
            storage.copy_(self._copies[key])
        torch.set_rng_state(self._random)
        values = {name: tensor.detach() for name, tensor in self._begins.items()}
        for name, tensor in self._constants.items():
            values[name] = tensor.clone()
        return values | {
            name: torch.tensor(held, dtype=torch.float64) for name, held in self._numbers.items()
        }

    @staticmethod
    def call(brick: onnx.ModelProto, values: Mapping[str, Any]) -> dict[str, Any]:
        """What a brick computes, in place where it does so, from inputs and weights by name."""
        known = dict(values)
        for node in brick.graph.node:
            call = ReplayedCall(node)
            positional, named = call.arguments(known)
            known |= call.results(call.operator(*positional, **named), known)
        return known


def array(tensor: torch.Tensor) -> np.ndarray:
    """A copy of a tensor's numbers, in a type that NumPy has."""
    return numbers_of(tensor.detach().clone())


def _results(program: Program, result: Any) -> Sequence[torch.Tensor]:
    """What a step leaves: its result, gradients, and what the program holds."""
    grads = [p.grad for p in program.module.parameters() if p.grad is not None]
    held = (tensor for named in held_by(program).values() for tensor in named.values())
    return [*_leaves(result), *grads, *held]


def _leaves(value: Any) -> list[torch.Tensor]:
    from torch.utils._pytree import tree_leaves

    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]
