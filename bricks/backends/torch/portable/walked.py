"""Groups of bricks in walks: on the processor, or on a GPU in each state of its cache.

Must not know how bricks are chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from bricks.backends.heating import Heating
from bricks.backends.portable import OutOfMemory, SampledRound
from bricks.backends.portable_walk import PortableWalk, RoundConditions, most_evicted_bytes
from bricks.backends.torch.call_sequences import row_maxima
from bricks.backends.torch.devices.cuda import CudaDevice
from bricks.backends.torch.portable.steps import CallPiece, Handles, PieceStep
from bricks.units.sample import Sample

if TYPE_CHECKING:
    from bricks.backends.torch.devices.device import Device

# Runs in each further state.
_RUNS = 2
# Steps between two waits for a GPU, whose queue of launches would fill up otherwise.
_PACE = 48
_ROW_BYTES = 4096


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
        self._evicted = _memory(0 if self._on_gpu else group["eviction_bytes"])
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
        samples = self._paced([_prepared(step) for step in self.steps])
        self.end()
        kernels = self._device.kernels([_prepared(step) for step in self.steps])
        self.end()
        return [
            replace(sample, kernels=tuple(own))
            for step, sample, own in zip(self.steps, samples, kernels, strict=True)
            if step.timed
        ]

    def _paced(self, runs: Sequence[Callable[[], Sample]]) -> list[Sample]:
        """Make all runs, waiting for the device every so often; a sample of each."""
        samples = []
        for number, run in enumerate(runs):
            if number % _PACE == 0:
                self.wait()
            samples.append(run())
        self.wait()
        return samples

    def _in_state(self, displaced_bytes: int) -> Iterator[SampledRound]:
        """Kernels of each brick after other memory was touched; 0: after it ran itself."""
        left = {step.key for step in self.steps}
        first = {step.key: step for step in reversed(self._own) if step.timed}
        steps = [step.isolated() for key, step in first.items() if key in left]
        runs = [self._after(displaced_bytes, step) for step in steps for _ in range(_RUNS)]
        self.conditions.begin()
        samples = self._paced(runs)
        kernels = self._device.kernels(runs)
        observed = self.conditions.end()
        for number, step in enumerate(steps):
            own = range(number * _RUNS, (number + 1) * _RUNS)
            known = [Sample(samples[n].host_s, tuple(kernels[n]), displaced_bytes) for n in own]
            if any(sample.kernels for sample in known):
                yield SampledRound(step.key, known, observed)

    def _after(self, displaced_bytes: int, step: PieceStep) -> Callable[[], Sample]:
        def run() -> Sample:
            if displaced_bytes:
                self._device.displace(displaced_bytes)
            else:
                step.run()
            return step.run()

        return run


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


def _prepared(step: Any) -> Callable[[], Sample]:
    def run() -> Sample:
        step.prepare()
        sample: Sample = step.run()
        return sample

    return run


def _memory(size_bytes: int) -> np.ndarray:
    """Memory to read in whole rows, at most twice the caches."""
    rows = min(size_bytes, most_evicted_bytes()) // _ROW_BYTES
    return np.ones(rows * _ROW_BYTES, np.uint8)
