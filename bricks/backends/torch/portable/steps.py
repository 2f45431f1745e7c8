"""The steps of a group of bricks: calls that pass tensors to each other, as in their program.

Must not know how steps are timed.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import cycle
from typing import TYPE_CHECKING, Any

import torch

from bricks.backends.portable_walk import PortableStep
from bricks.backends.torch.devices.host_values import host_values
from bricks.backends.torch.filling import elements_of, sets_of
from bricks.backends.torch.recomputation import Recomputation
from bricks.backends.torch.replayed_call import ReplayedCall
from bricks.backends.torch.synthetic_tensors import own_tensors
from bricks.backends.torch.tensor_recipe import TensorRecipes
from bricks.graph.call import Call
from bricks.graph.sketch import Sketch
from bricks.units.sample import Sample

if TYPE_CHECKING:
    from bricks.backends.torch.devices.device import Device

Tensors = dict[int, torch.Tensor]  # that calls pass to each other, by handle


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


class Handles:
    """The ``tensors`` that calls pass on; allocates and frees in place of omitted calls."""

    def __init__(self, device: Device) -> None:
        self.tensors: Tensors = {}
        self._device = device
        self._touched: Tensors = {}

    def apply(self, events: Sequence[Sequence[int]]) -> None:
        """Allocate ``[handle, bytes]``; free a handle for 0 bytes, and all for handle -1."""
        for handle, size_bytes in events:
            if size_bytes:
                self._touched[handle] = self._device.touched(size_bytes)
            elif handle >= 0:
                self.tensors.pop(handle, None)
                self._touched.pop(handle, None)
            else:
                self.clear()

    def clear(self) -> None:
        """Free everything."""
        self.tensors.clear()
        self._touched.clear()


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
        with piece.device.sampled():
            taken_ns = sum(_run(call, values) for call in piece.calls)
        for name, handle in self._outputs:
            tensors[handle] = values[name]
        return Sample(taken_ns * 1e-9)

    def isolated(self) -> PieceStep:
        """This step on tensors of its own."""
        step = {"key": self.key, "timed": True, "weight": 1.0, "before": []}
        return PieceStep({**step, "inputs": [], "outputs": []}, self._piece, self._handles)


def _run(call: ReplayedCall, values: dict[str, Any]) -> int:
    taken_ns = call.run(values)
    operator = call.operator
    return taken_ns + (operator.taken_ns() if isinstance(operator, Recomputation) else 0)


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
