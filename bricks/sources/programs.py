"""Models from programs: functions that build one, and steps that were recorded for the zoo.

Must not know how a step is recorded.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from bricks.errors import UsageError, suggestion
from bricks.graph.call import TRAINING
from bricks.graph.form import ModelForm
from bricks.sources.source import PROGRAMS_RUNTIME, ReadOptions, ReadResult, attempted
from bricks.system.accelerator import CPU
from bricks.zoo import ZooEntry, entries, find_training, is_entry, programs

if TYPE_CHECKING:
    from bricks.graph.model import Model

# The folder of functions that come with the zoo.
ZOO_FOLDER = ""


def is_program(reference: str) -> bool:
    """Whether ``reference`` names a program: a function, or a recorded program of the zoo."""
    return is_entry(reference) or recorded_program(reference) is not None


def recorded_program(name: str) -> ZooEntry | None:
    """The recorded program of the zoo called ``name``, if there is one."""
    return next((entry for entry in programs() if entry.name == name), None)


def zoo_of(runtime: str) -> list[ZooEntry]:
    """The zoo's models that a runtime may run: recorded programs, or ONNX models."""
    from bricks import backends  # here: most sources need no runtime

    of_programs = backends.offer(runtime).accepts is ModelForm.PROGRAMS
    return programs() if of_programs else entries()


@dataclass(frozen=True, slots=True)
class Function:
    """The function ``word`` (``FILE.py:FUNCTION`` or ``package.module:FUNCTION``) of a program.

    It is called with ``arguments``, and with ``batch=`` if a batch size is asked for. A relative
    file starts from ``folder``; None is the current one, and :data:`ZOO_FOLDER` that of the zoo.
    """

    word: str
    folder: str | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def request(self, batch: int | None = None) -> dict[str, Any]:
        """The fields of a worker's request that name this function, called with ``batch``."""
        folder = os.getcwd() if self.folder is None else self.folder
        sized = {} if batch is None else {"batch": batch}
        return {"entry": self.word, "folder": folder, "options": {**sized, **self.arguments}}

    def open(self, options: ReadOptions) -> Iterator[ReadResult]:
        """One step of the program, recorded in a worker."""
        yield attempted(self.word, self.word, lambda: self.record(options))

    def record(self, options: ReadOptions) -> Model:
        """One step of the program, recorded in a worker of its own.

        research/torch.md says what the function returns. Raises
        :class:`~bricks.errors.WorkerError` for a program that cannot be recorded, and
        :class:`~bricks.errors.BackendError` if the runtime is not installed.
        """
        # Here: nothing else needs a worker.
        from bricks.measure.protocol.models import RecordProgram
        from bricks.sources.recorder import ProgramRecorder

        options.refuse_inputs(self.word)
        request = RecordProgram(**self.request(options.batch))
        with ProgramRecorder(
            runtime=options.runtime,
            threads=options.threads,
            seed=options.seed,
            device=options.device,
            python=options.python,
        ) as recorder:
            return recorder.record(request, name=options.name)


@dataclass(frozen=True, slots=True)
class RecordedProgram:
    """The program of the zoo called ``entry.name``, a step of which was recorded."""

    entry: ZooEntry

    @property
    def word(self) -> str:
        """Its name."""
        return self.entry.name

    @property
    def function(self) -> Function | None:
        """The zoo's function that was recorded; None if its code is not installed."""
        code = self.entry.code
        return None if code is None else Function(code, ZOO_FOLDER)

    def open(self, options: ReadOptions) -> Iterator[ReadResult]:
        """The step as it was recorded; again for a batch size, another runtime or device."""
        yield attempted(self.word, self.word, lambda: self._read(options))

    def _read(self, options: ReadOptions) -> Model:
        from bricks.reading.read import read_model  # here: importing onnx takes a moment

        options.refuse_inputs(self.word)
        on_processor = options.runtime == PROGRAMS_RUNTIME and options.device == CPU
        as_recorded = on_processor and options.batch is None
        if self.function is None or as_recorded:
            name = self.word if options.name is None else options.name
            return read_model(self.entry.path, batch=options.batch, name=name)
        return self.record(options)

    def record(self, options: ReadOptions) -> Model:
        """The step, recorded again from its code, which must be installed."""
        assert self.function is not None, "its code is there"
        name = self.word if options.name is None else options.name
        return self.function.record(replace(options, name=name))


def function_of(reference: str) -> Function:
    """The function that ``reference`` names, or from which it was recorded for the zoo."""
    recorded = recorded_program(reference)
    function = None if recorded is None else RecordedProgram(recorded).function
    return Function(reference) if function is None else function


def find_workload(name: str) -> Function:
    """The training that ``name`` means: a function, or a workload of the zoo.

    Raises :class:`~bricks.errors.ModelError` if there is none, with the nearest name.
    """
    function, of_zoo = find_training(name)
    return Function(function, ZOO_FOLDER if of_zoo else None)


def find_training_step(reference: str) -> Function | RecordedProgram:
    """The training step that ``reference`` names: a function, or a recorded one of the zoo.

    Raises :class:`~bricks.errors.UsageError` if there is none, with the nearest name.
    """
    steps = {entry.name: RecordedProgram(entry) for entry in programs() if entry.kind == TRAINING}
    if reference in steps:
        return steps[reference]
    if is_entry(reference):
        return Function(reference)
    meant = suggestion(reference, steps, "give FILE.py:FUNCTION or one of")
    raise UsageError(f"no training step is called {reference!r}: {meant}")
