"""A real step from a known state, which is restored to replay its calls one by one.

The chained calls must compute the same values as the step. Must not know how calls are cut into
bricks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_leaves

from bricks.backends.torch.call_arguments import storage_key
from bricks.backends.torch.call_recorder import CallRecorder
from bricks.backends.torch.devices.device import PROCESSOR, Device
from bricks.backends.torch.filling import numbers_of
from bricks.backends.torch.program_tensors import program_tensors
from bricks.backends.torch.replay import replayed
from bricks.errors import BackendError
from bricks.graph.model_metadata import without_sketches
from bricks.reading.digest import digest

if TYPE_CHECKING:
    import numpy as np
    import onnx

    from bricks.backends.torch.entry import Program


class RealStep:
    """A step of ``program``, whose graph of calls must be ``proto``.

    ``expected`` are the results of the step by the names of values in the graph: outputs or loss,
    gradients, and all tensors that live between steps. ``deterministic`` is whether two runs of the
    step give the same bits.
    """

    def __init__(
        self, program: Program, proto: onnx.ModelProto, warm_up: int, device: Device = PROCESSOR
    ) -> None:
        for _ in range(warm_up):
            program.step()
        self._storages = {storage_key(t): t.untyped_storage() for t in _living(program)}
        self._copies = {key: storage.clone() for key, storage in self._storages.items()}
        self._device, self._random = device, device.random_states()
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
            if storage_key(tensor) not in self._storages
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
        """Restore all storages and the generator to the begin of the step; its values by name."""
        for key, storage in self._storages.items():
            storage.copy_(self._copies[key])
        self._device.restore(self._random)
        values = {name: tensor.detach() for name, tensor in self._begins.items()}
        for name, tensor in self._constants.items():
            values[name] = tensor.clone()
        return values | {
            name: torch.tensor(n, dtype=torch.float64) for name, n in self._numbers.items()
        }

    @staticmethod
    def call(brick: onnx.ModelProto, values: Mapping[str, Any]) -> dict[str, Any]:
        """Replay the calls of a brick on its inputs and weights; return these with its values."""
        known = dict(values)
        for node in brick.graph.node:
            replayed(node).run(known)
        return known


def array(tensor: torch.Tensor) -> np.ndarray:
    """Return a copy of a tensor as an array, of a type that NumPy has."""
    return numbers_of(tensor.detach().clone())


def _results(program: Program, result: Any) -> Sequence[torch.Tensor]:
    """Return the result of a step, gradients, and the tensors that live between steps."""
    gradients = [p.grad for p in program.module.parameters() if p.grad is not None]
    return [*tensor_leaves(result), *gradients, *_living(program)]


def _living(program: Program) -> list[torch.Tensor]:
    return [tensor for named in program_tensors(program).values() for tensor in named.values()]


def tensor_leaves(value: Any) -> list[torch.Tensor]:
    """Return the tensors in nested containers, in order."""
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]
