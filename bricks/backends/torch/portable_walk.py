"""Groups of bricks in walks: on the processor, or on a GPU in each state of its cache.

A step's calls pass tensors to each other, as in their program. Must not know how bricks are chosen.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import cycle
from typing import Any

import numpy as np
import torch

from bricks.backends.heating import Heating
from bricks.backends.portable import (
    OutOfMemory,
    PortableStep,
    PortableWalk,
    RoundConditions,
    SampledRound,
    most_evicted_bytes,
)
from bricks.backends.torch.call_data import TensorRecipes
from bricks.backends.torch.calls import ReplayedCall
from bricks.backends.torch.device import CudaDevice, Device, Handles
from bricks.backends.torch.recomputation import Recomputation
from bricks.backends.torch.run.call_sequences import row_maxima
from bricks.backends.torch.synthetic_tensors import elements_of, host_values, own_tensors, sets_of
from bricks.graph.call import Call
from bricks.graph.sketch import Sketch
from bricks.units.sample import Sample

# Runs in each further state.
_RUNS = 2
# Steps between two waits for a GPU, whose queue of launches would fill up otherwise.
_PACE = 48
_ROW_BYTES = 4096


class CallPiece:
    """The calls of the brick ``key``, with tensors of their own on ``device``."""

    def __init__(self, key: str, data: Mapping[str, Any], device: Device) -> None:
        self.device = device
        self.inputs, self.outputs = data["inputs"], data["outputs"]
        self.calls = [_replayed(call) for call in data["calls"]]
        recipes = TensorRecipes.from_json(data["recipes"])
        generator = torch.Generator().manual_seed(zlib.crc32(f"0/{key}".encode()))
        made = own_tensors(recipes, generator)
        self._turns = {
            name: _in_turn(made[name], sketch, device) for name, sketch in data["deciding"].items()
        }
        self.own = device.placed(made, host_values(self.calls, recipes))
        viewed = {call.inputs[0] for call in self.calls if call.call.operator == "as_strided"}
        self._needs = {n: self.own[n].untyped_storage().nbytes() for n in viewed if n in self.own}

    def redraw(self) -> None:
        """Write other values into the tensors that decide the time of the calls."""
        for name, turns in self._turns.items():
            elements_of(self.own[name]).copy_(next(turns))

    def fits(self, name: str, tensor: torch.Tensor) -> bool:
        """Whether a tensor of another call can be the input ``name``."""
        own = self.own[name]
        if (tensor.shape, tensor.dtype, tensor.device) != (own.shape, own.dtype, own.device):
            return False
        return bool(tensor.untyped_storage().nbytes() >= self._needs.get(name, 0))


class PieceStep(PortableStep):
    """A step of a walk: a piece whose inputs and outputs are tensors called by handles."""

    def __init__(self, step: Mapping[str, Any], piece: CallPiece, handles: Handles) -> None:
        self.key, self.timed, self.weight = step["key"], step["timed"], step["weight"]
        self._piece, self._handles, self._before = piece, handles, step["before"]
        self._inputs = _handles(piece.inputs, step["inputs"])
        self._outputs = _handles(piece.outputs, step["outputs"])

    def prepare(self) -> None:
        """Allocate and free as omitted calls do, and write other values that decide."""
        self._handles.apply(self._before)
        self._piece.redraw()

    def run(self) -> Sample:
        """Run all calls once; ``host_s`` is the time of their operators alone."""
        piece, tensors = self._piece, self._handles.tensors
        values: dict[str, Any] = dict(piece.own)
        for name, handle in self._inputs:
            tensor = tensors.get(handle)
            if tensor is not None and piece.fits(name, tensor):
                values[name] = tensor
        taken_ns = 0
        with piece.device.sampled():
            for call in piece.calls:
                taken_ns += call.run(values)
                if isinstance(call.operator, Recomputation):
                    taken_ns += call.operator.taken_ns()
        for name, handle in self._outputs:
            tensors[handle] = values[name]
        return Sample(taken_ns * 1e-9)

    def isolated(self) -> PieceStep:
        """This step on tensors of its own."""
        step = {"key": self.key, "timed": True, "weight": 1.0, "before": []}
        return PieceStep({**step, "inputs": [], "outputs": []}, self._piece, self._handles)


def _replayed(data: Sequence[Any]) -> ReplayedCall:
    namespace, operator, positional, named, inputs, outputs, aliases, on_host = data
    arguments = positional, named
    call = Call(namespace, operator, arguments, aliases=tuple(aliases), on_host=on_host)
    return ReplayedCall(call, inputs, outputs)


def _in_turn(
    random: torch.Tensor, sketch: Mapping[str, Any] | None, device: Device
) -> Iterator[torch.Tensor]:
    """Cycle through values on ``device`` that processors do not learn."""
    sets = sets_of(None if sketch is None else Sketch.from_json(sketch), random)
    return cycle([device.placed({"": each})[""] for each in sets])


def _handles(names: Sequence[str], handles: Sequence[int | None]) -> list[tuple[str, int]]:
    pairs = zip(names, handles, strict=False)
    return [(name, handle) for name, handle in pairs if handle is not None]


class TorchWalked(PortableWalk):
    """A group as plain data, loaded on ``device``."""

    memory_errors = (MemoryError, torch.OutOfMemoryError)

    def __init__(
        self,
        group: Mapping[str, Any],
        pieces: Mapping[str, Any],
        device: Device,
        conditions: RoundConditions,
    ) -> None:
        self._device, self._handles = device, Handles(device)
        loaded: dict[str, CallPiece] = {}
        self._own: list[PieceStep] = []
        for step in group["steps"]:
            if step["load"] not in loaded:
                loaded[step["load"]] = CallPiece(step["key"], pieces[step["key"]], device)
            self._own.append(PieceStep(step, loaded[step["load"]], self._handles))
        super().__init__(self._own, conditions)
        self._on_gpu = isinstance(device, CudaDevice)
        evicted_bytes = 0 if self._on_gpu else group["eviction_bytes"]
        rows = min(evicted_bytes, most_evicted_bytes()) // _ROW_BYTES
        self._evicted = np.ones(rows * _ROW_BYTES, np.uint8)
        self._displaced: Sequence[int] = group["displaced_bytes"] if self._on_gpu else []
        self._heating = Heating()

    def wait(self) -> None:
        """Wait until the device has no work."""
        self._device.synchronise()

    def warm_up(self) -> None:
        """Warm up the caches, then a GPU that the walk holds at its limit of power."""
        super().warm_up()
        self._heating.heat(self._waited, self._device.state)

    def _waited(self) -> None:
        self.one_pass()
        self.wait()

    def evict(self) -> None:
        """Read memory in place of the weights that a pass leaves out."""
        if self._evicted.size:
            row_maxima(self._evicted, _ROW_BYTES).sample()

    def end(self) -> None:
        """Free all tensors that calls have passed on."""
        self._handles.clear()

    def rounds(self) -> Iterator[SampledRound]:
        """A round of each brick in the walk, then in each other state."""
        with torch.no_grad():
            yield from super().rounds()
            for displaced_bytes in self._displaced:
                yield from self._in_state(displaced_bytes)

    def sampled(self) -> list[Sample]:
        """A sample of each timed step; on a GPU with its kernels, in a pass of their own."""
        if not self._on_gpu:
            return super().sampled()
        samples = self._paced([partial(_prepared, step) for step in self.steps])
        self.end()
        kernels = self._device.kernels([partial(_prepared, step) for step in self.steps])
        self.end()
        return [
            replace(sample, kernels=tuple(own))
            for step, sample, own in zip(self.steps, samples, kernels, strict=True)
            if step.timed
        ]

    def _paced(self, runs: Sequence[Callable[[], Sample]]) -> list[Sample]:
        samples = []
        for number, run in enumerate(runs):
            if number % _PACE == 0:
                self.wait()
            samples.append(run())
        self.wait()
        return samples

    def _in_state(self, displaced_bytes: int) -> Iterator[SampledRound]:
        """Kernels of each brick after other memory was touched; 0: after it ran itself."""

        def after(step: PieceStep) -> Sample:
            if displaced_bytes:
                self._device.displace(displaced_bytes)
            else:
                step.run()
            return step.run()

        left = {step.key for step in self.steps}
        first = {step.key: step for step in reversed(self._own) if step.timed}
        steps = [step.isolated() for key, step in first.items() if key in left]
        runs = [partial(after, step) for step in steps for _ in range(_RUNS)]
        self.conditions.begin()
        samples = self._paced(runs)
        kernels = self._device.kernels(runs)
        observed = self.conditions.end()
        for number, step in enumerate(steps):
            own = range(number * _RUNS, (number + 1) * _RUNS)
            known = [Sample(samples[n].host_s, tuple(kernels[n]), displaced_bytes) for n in own]
            if any(sample.kernels for sample in known):
                yield SampledRound(step.key, known, observed)


def loaded_group(
    group: Mapping[str, Any],
    pieces: Mapping[str, Any],
    device: Device,
    conditions: RoundConditions,
) -> TorchWalked:
    """Load a group; :class:`OutOfMemory` where it does not fit."""
    try:
        return TorchWalked(group, pieces, device, conditions)
    except TorchWalked.memory_errors as exc:
        raise OutOfMemory(str(exc)) from exc


def _prepared(step: PortableStep) -> Sample:
    step.prepare()
    return step.run()
