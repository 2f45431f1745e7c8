"""Real steps of a program whose code came with the suite.

Must not know what they are compared with.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from bricks.backends.heating import Heating
from bricks.backends.portable import OutOfMemory, SampledRound
from bricks.backends.torch.devices.cuda import CudaDevice
from bricks.backends.torch.entry import program
from bricks.units.sample import Sample

if TYPE_CHECKING:
    from bricks.backends.portable_walk import RoundConditions
    from bricks.backends.torch.devices.device import Device

_WARM_UPS, _SAMPLES = 2, 5


class RealSteps:
    """The program of an ``entry`` with its ``options``, as ``code`` says, on ``device``."""

    def __init__(self, code: Mapping[str, Any], folder: str, device: Device) -> None:
        torch.manual_seed(0)
        self._device = device
        self._heating = Heating()
        self._program = program(code["entry"], folder, code["options"], device)

    def rounds(self, key: str, conditions: RoundConditions) -> Iterator[SampledRound]:
        """A round of steps one by one; on a GPU each is waited for, and has its kernels."""
        try:
            conditions.begin(self._warm_up)
            samples = [self._sample() for _ in range(_SAMPLES)]
            known = conditions.end()
            if isinstance(self._device, CudaDevice):
                kernels = self._device.kernels([self._watched])[0]
                samples = [replace(sample, kernels=tuple(kernels)) for sample in samples]
        except (MemoryError, torch.OutOfMemoryError) as exc:
            raise OutOfMemory(str(exc)) from exc
        yield SampledRound(key, samples, known)

    def _warm_up(self) -> None:
        for _ in range(_WARM_UPS):
            self._program.step()
        self._heating.heat(self._sample, self._device.state)

    def _sample(self) -> Sample:
        self._device.synchronise()
        started = time.perf_counter_ns()
        self._program.step()
        self._device.synchronise()
        return Sample((time.perf_counter_ns() - started) * 1e-9)

    def _watched(self) -> None:
        with self._device.sampled():
            self._program.step()
            self._device.synchronise()
