"""The user's programs, made anew for each use: by name, or from what was recorded of them.

Must not know what they are used for.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import onnx
import torch

from bricks.backends.programs import SeededProgram
from bricks.backends.torch.entry import Program, program
from bricks.backends.torch.modes import COMPILED, EAGER
from bricks.backends.torch.training import made_with, refuse_untrainable
from bricks.errors import BackendError
from bricks.graph.program import Origin, origin_of
from bricks.zoo import zoo_folder


class UserPrograms:
    """Makes programs from a seed, as they are written or ``compiled``.

    A program is named by ``FILE.py:FUNCTION`` or ``module:FUNCTION``, the folder that a relative
    file starts from (the zoo's if it is empty), and the function's arguments.
    """

    def __init__(self, seed: int, *, compiled: bool) -> None:
        self._seed, self._compiled = seed, compiled

    @property
    def mode(self) -> str:
        """The name of the way in which modules run."""
        return COMPILED if self._compiled else EAGER

    def made(self, entry: str, folder: str, options: Mapping[str, Any]) -> Program:
        """The program, with random numbers from this seed."""
        torch.manual_seed(self._seed)
        return self.called(entry, folder, options)

    def called(self, entry: str, folder: str, options: Mapping[str, Any]) -> Program:
        """The program, with random numbers as they come."""
        found = self.eager(entry, folder, options)
        if not self._compiled:
            return found
        from bricks.backends.torch.kernels import compiled

        return replace(found, compiled=compiled(found.module))

    def eager(self, entry: str, folder: str, options: Mapping[str, Any]) -> Program:
        """The program as it is written, with random numbers as they come."""
        return program(entry, self.folder(folder), options)

    def folder(self, folder: str) -> str:
        """The folder that files start from."""
        return folder or str(zoo_folder())

    def trainable(self, program: SeededProgram) -> Program:
        """The program as it is written, made from its seed; raises if it cannot be trained."""
        entry, folder, options = program.entry, program.folder, program.options
        made = made_with(lambda: self.eager(entry, folder, options), program.seed)
        refuse_untrainable(made)
        return made

    def of(self, proto: onnx.ModelProto) -> Program:
        """The program that was recorded as ``proto``."""
        origin = origin_of(proto)
        if origin is None or not origin.entry:
            raise BackendError(
                "its code is not here: it was recorded on another host, and only its calls can be"
                " measured"
            )
        return self.made(origin.entry, origin.folder, origin.options)

    def origin(self, entry: str, folder: str, options: Mapping[str, Any], kind: str) -> Origin:
        """Where a program of this kind comes from, to be noted in what is recorded of it."""
        version = torch.__version__.partition("+")[0]
        return Origin(entry, folder, kind, version, options, self.mode)

    def refuse_other_mode(self, proto: onnx.ModelProto) -> None:
        """:class:`BackendError` for what was recorded as modules run in the other way."""
        origin = origin_of(proto)
        recorded = self.mode if origin is None else origin.runtime or EAGER
        if recorded != self.mode:
            raise BackendError(
                f"it was recorded as {recorded} runs it: choose --runtime {recorded},"
                " or record its code again"
            )

    def keeping_kernels(self) -> AbstractContextManager[None]:
        """Meanwhile, compiled kernels are kept, so that they can be recorded."""
        if not self._compiled:
            return nullcontext()
        from bricks.backends.torch.kernels import kernels_kept

        return kernels_kept()
