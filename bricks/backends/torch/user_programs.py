"""Makes a new instance of the user's program for each use: by name, or from a recording.

Must not know what programs are used for.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from bricks.backends.programs import ProgramSource, SeededProgram
from bricks.backends.torch.devices.device import PROCESSOR, Device
from bricks.backends.torch.entry import Program, program, users_errors
from bricks.backends.torch.training import made_with, refuse_untrainable
from bricks.errors import BackendError
from bricks.graph.program import Origin, origin_of
from bricks.zoo import zoo_folder

if TYPE_CHECKING:
    import onnx

# The runtime of recordings that name none.
_UNNAMED = "torch"


class UserPrograms:
    """Makes programs from a seed for the ``runtime``, as they are written or ``compiled``.

    Their tensors are made on the ``device``.
    """

    def __init__(
        self, runtime: str, seed: int, *, compiled: bool, device: Device = PROCESSOR
    ) -> None:
        self._runtime, self._seed, self._compiled = runtime, seed, compiled
        self._device = device

    def seeded(self, source: ProgramSource) -> Program:
        """Make a program after seeding PyTorch."""
        torch.manual_seed(self._seed)
        return self.made(source)

    def made(self, source: ProgramSource) -> Program:
        """Make a program without seeding, compiled if this backend compiles."""
        eager = self.eager(source)
        if not self._compiled:
            return eager
        from bricks.backends.torch.kernels import compiled

        return replace(eager, compiled=compiled(eager.module))

    def eager(self, source: ProgramSource) -> Program:
        """Make a program without seeding, as it is written."""
        made = program(source.entry, self.folder(source), source.options, self._device)
        return made if self._device is PROCESSOR else _placed(made, self._device)

    @staticmethod
    def folder(source: ProgramSource) -> str:
        """Return the folder that relative files start from; the zoo's by default."""
        return source.folder or str(zoo_folder())

    def trainable(self, source: SeededProgram) -> Program:
        """Make a program as it is written, from its own seed; raises if it cannot be trained."""
        made = made_with(lambda: self.eager(source), source.seed)
        refuse_untrainable(made)
        return made

    def of(self, proto: onnx.ModelProto) -> Program:
        """Make the program that was recorded as ``proto``."""
        origin = origin_of(proto)
        if origin is None or not origin.entry:
            raise BackendError(
                "its code is not here: it was recorded on another host, and only its calls can be"
                " measured"
            )
        return self.seeded(ProgramSource(origin.entry, origin.folder, origin.options))

    def origin(self, source: ProgramSource, kind: str) -> Origin:
        """Return the origin that is noted in a recording: ``kind`` is training or inference."""
        version = torch.__version__.partition("+")[0]
        return Origin(source.entry, source.folder, kind, version, source.options, self._runtime)

    def refuse_other_runtime(self, proto: onnx.ModelProto) -> None:
        """Raise :class:`BackendError` if ``proto`` was recorded by another runtime."""
        origin = origin_of(proto)
        recorded = self._runtime if origin is None else origin.runtime or _UNNAMED
        if recorded != self._runtime:
            raise BackendError(
                f"it was recorded as {recorded} runs it: choose --runtime {recorded},"
                " or record its code again"
            )

    def keeping_kernels(self) -> AbstractContextManager[None]:
        """Meanwhile, keep the source of compiled kernels, so that they can be recorded."""
        if not self._compiled:
            return nullcontext()
        from bricks.backends.torch.kernels import kernels_kept

        return kernels_kept()


def _placed(made: Program, device: Device) -> Program:
    """Return ``made``, or if its step makes tensors on the host, with ``device`` as the default.

    A default costs each call of the host some time, so only programs have it that need it.
    """
    with users_errors(made.entry):
        try:
            made.step()
        except RuntimeError as exc:
            if "device" not in str(exc):
                raise
            return replace(made, default=device.default)
    return made
