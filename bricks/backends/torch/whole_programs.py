"""The user's program as a whole, whose steps are timed, or run to measure memory.

Must not know the purpose.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from bricks.backends.base import OwnMemory
from bricks.backends.torch.devices.device import PROCESSOR, Device
from bricks.backends.torch.entry import Program, users_errors
from bricks.backends.torch.recording import WARM_UP
from bricks.units.sample import Sample


class LoadedProgram(OwnMemory):
    """The user's program, of which a sample is one step, until the ``device`` has ended it."""

    def __init__(self, made: Program, device: Device = PROCESSOR) -> None:
        self._program, self._device = made, device
        with users_errors(made.entry):
            for _ in range(WARM_UP):
                made.step()

    def sample(self) -> Sample:
        """Run and time one step."""
        with users_errors(self._program.entry):
            self._device.synchronise()
            with self._device.sampled():
                start = time.perf_counter_ns()
                self._program.step()
                self._device.synchronise()
                return Sample((time.perf_counter_ns() - start) * 1e-9)


class StandaloneProgram:
    """The user's program in a process of its own, to measure its memory."""

    def __init__(self, make: Callable[[], Program]) -> None:
        self._make = make
        self._program: Program | None = None

    def load(self) -> None:
        """Make the program: its module, inputs and optimiser."""
        self._program = self._make()

    def run(self) -> None:
        """Run a step."""
        assert self._program is not None, "load it first"
        with users_errors(self._program.entry):
            self._program.step()
