"""Replays the calls of a recorded program one by one, on synthetic tensors or results of others.

A call allocates its results, as it does in the program. So calls pass tensors to each other, by
numbered handles; a walk says when a handle is released. Chained from the known state in which a
real step began (:class:`RealStep`), calls must compute the same values as the step. Must not know
how synthetic values are chosen, nor how calls are cut into bricks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import cycle
from typing import Any

import numpy as np
import onnx
import torch
from torch.utils._pytree import tree_leaves

from bricks.backends.base import Binding, RotatingInputs
from bricks.backends.input_values import Turns
from bricks.backends.torch.call_data import TensorRecipes
from bricks.backends.torch.calls import ReplayedCall, storage_key
from bricks.backends.torch.device import PROCESSOR, Device, TensorHandles
from bricks.backends.torch.entry import Program
from bricks.backends.torch.recomputation import Recomputation
from bricks.backends.torch.record import CallRecorder
from bricks.backends.torch.recorded_values import program_tensors
from bricks.backends.torch.synthetic_tensors import (
    elements_of,
    host_values,
    numbers_of,
    own_tensors,
    sets_of,
)
from bricks.errors import BackendError
from bricks.graph.model_metadata import without_sketches
from bricks.graph.program import call_of
from bricks.graph.sketch import Sketch
from bricks.operators.registry import returns_to_host
from bricks.reading.digest import digest
from bricks.units.sample import Sample


def replayed(node: onnx.NodeProto) -> ReplayedCall:
    """Return the call of a node, ready to be made."""
    return ReplayedCall(call_of(node), node.input, node.output)


class LoadedCalls:
    """The calls of one brick in order, on a ``device``; ``recipes`` make its inputs and weights.

    ``deciding`` are the names of values that decide the time of calls, with their sketches. Calls
    that wait for the device do so while it is idle, so that they ``wait`` for their own work alone.
    """

    def __init__(
        self,
        proto: onnx.ModelProto,
        recipes: TensorRecipes,
        generator: Callable[[], torch.Generator],
        handles: TensorHandles,
        deciding: Mapping[str, Sketch | None],
        device: Device = PROCESSOR,
    ) -> None:
        self.calls = [replayed(node) for node in proto.graph.node]
        self.inputs = [info.name for info in proto.graph.input]
        self.outputs = [info.name for info in proto.graph.output]
        self.handles, self.device = handles, device
        self.waits = any(returns_to_host(call.call.operator) for call in self.calls)
        self._deciding = deciding
        self._own: Callable[[], dict[str, torch.Tensor]] = lambda: own_tensors(recipes, generator())
        self._on_host = host_values(self.calls, recipes)
        self.turns: dict[str, Iterator[torch.Tensor]] = {}

    def bind(self, binding: Binding, region: Any) -> BoundCalls:
        """Return the calls with inputs from tensor handles or of their own, and bound outputs."""
        own = self.device.placed(self._own(), self._on_host)
        for name in self._deciding.keys() - self.turns.keys():
            self.turns[name] = cycle(sets_of(self._deciding[name], own[name]))
        return BoundCalls(self, own, binding)


class BoundCalls(RotatingInputs):
    """The calls of ``loaded`` with bound tensor handles.

    A call reads its ``own`` tensor in place of an empty handle, and of a tensor with another shape
    than recorded. So it does where a call views an input as_strided whose storage is too small,
    because the walk began behind the call that allocated it.
    """

    def __init__(
        self, loaded: LoadedCalls, own: Mapping[str, torch.Tensor], binding: Binding
    ) -> None:
        self._loaded, self._own = loaded, own
        viewed = {call.inputs[0] for call in loaded.calls if call.call.operator == "as_strided"}
        self._needs = {name: own[name].untyped_storage().nbytes() for name in viewed if name in own}
        self._inputs = _handles(loaded.inputs, binding.inputs)
        self._outputs = _handles(loaded.outputs, binding.outputs)
        self._next()

    def rotation(self, turns: Turns) -> Callable[[], None] | None:
        """What writes the next values to the tensors that decide the time of the calls."""
        return self._next if self._loaded.turns else None

    def _next(self) -> None:
        for name, turns in self._loaded.turns.items():
            elements_of(self._own[name]).copy_(next(turns))

    def sample(self) -> Sample:
        """Run all calls once; ``host_s`` is the time of their operators alone."""
        values, handles = dict(self._own), self._loaded.handles
        for name, handle in self._inputs:
            tensor = handles.get(handle)
            if tensor is None or tensor.shape != self._own[name].shape:
                continue
            if tensor.untyped_storage().nbytes() >= self._needs.get(name, 0):
                values[name] = tensor
        if self._loaded.waits:
            self._loaded.device.synchronise()
        taken_ns = 0
        with self._loaded.device.sampled():
            for call in self._loaded.calls:
                taken_ns += call.run(values)
                if isinstance(call.operator, Recomputation):
                    taken_ns += call.operator.taken_ns()
        for name, handle in self._outputs:
            handles[handle] = values[name]
        return Sample(taken_ns * 1e-9)


def _handles(names: Sequence[str], handles: Sequence[int | None]) -> list[tuple[str, int]]:
    return [(n, handle) for n, handle in zip(names, handles, strict=True) if handle is not None]


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
    gradients = [p.grad for p in program.module.parameters() if p.grad is not None]
    return [*tensor_leaves(result), *gradients, *_living(program)]


def _living(program: Program) -> list[torch.Tensor]:
    return [tensor for named in program_tensors(program).values() for tensor in named.values()]


def tensor_leaves(value: Any) -> list[torch.Tensor]:
    """Return the tensors in nested containers, in order."""
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]
