"""Forms of operators and models that a runtime accepts: ONNX models, or recorded programs.

Must not know what is compared.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import onnx

from bricks import backends
from bricks.closing import Closing
from bricks.errors import WorkerError
from bricks.graph.view import parse_model
from bricks.measure.protocol.graphs import RecordProgram
from bricks.reading.read import read_model
from bricks.sources import Function
from bricks.sources.recorder import ProgramRecorder

if TYPE_CHECKING:
    from bricks.graph.form import ModelForm
    from bricks.graph.model import Model
    from bricks.session.workspace import Workspace
    from bricks.studies.numerics.operator import OperatorCase
    from bricks.studies.numerics.temporary_files import TemporaryFiles


def name_of(workspace: Workspace) -> str:
    """The name of the runtime of ``workspace``."""
    return workspace.runtime.backend


def accepted_form(workspace: Workspace) -> ModelForm:
    """The form of models that the runtime of ``workspace`` accepts."""
    return backends.offer(name_of(workspace)).accepts


def outputs_of(model: Model) -> list[str]:
    """The names of a model's outputs."""
    return [info.name for info in parse_model(model.skeleton).graph.output]


class Forms(Closing):
    """Reads models, and records programs with one process for each runtime that accepts them.

    Models are written into ``files``. Use it as a context manager.
    """

    def __init__(self, files: TemporaryFiles) -> None:
        self._files = files
        self._opened = ExitStack()
        self._recorders: dict[str, ProgramRecorder] = {}

    def close(self) -> None:
        """End the processes."""
        self._opened.close()

    def onnx_form(self, operator: OperatorCase) -> Model:
        """The operator's ONNX form, read; :class:`ModelError` if it cannot be."""
        assert operator.onnx is not None, "it has an ONNX form"
        form = operator.onnx
        if isinstance(form, onnx.ModelProto):
            form = self._written(form)
        return read_model(form, name=operator.name, values=operator.values)

    def model_of(self, proto: onnx.ModelProto, name: str) -> Model:
        """Read ``proto`` as the model called ``name``; its weights may be missing."""
        return read_model(self._written(proto), name=name)

    def _written(self, proto: onnx.ModelProto) -> Path:
        path = self._files.new(".onnx")
        path.write_bytes(proto.SerializeToString())
        return path

    def program_form(self, operator: OperatorCase, workspace: Workspace) -> Model:
        """The operator's program, recorded with the runtime of ``workspace``."""
        form = operator.program
        assert form is not None, "it has a program"
        return self._recorder(workspace).record(RecordProgram(**form.request()), name=operator.name)

    def counterpart(self, workspace: Workspace, model: Model, data: Path) -> Model:
        """Record a program of calls equivalent to an ONNX ``model``, on the values in ``data``.

        Raises :class:`WorkerError` for the first operator without a counterpart in the runtime.
        """
        file = self._files.new(".onnx")
        file.write_bytes(model.skeleton)
        paths = {"model": str(file), "data": str(data)}
        counterparts = backends.offer(name_of(workspace)).counterparts
        if counterparts is None:
            raise WorkerError(f"{name_of(workspace)} has no programs in place of ONNX models")
        program = Function(counterparts.model, arguments=paths).request()
        try:
            return self._recorder(workspace).record(RecordProgram(**program), name=model.name)
        except WorkerError as error:
            raise WorkerError(str(error).removeprefix(f"{counterparts.model}: ")) from error

    def _recorder(self, workspace: Workspace) -> ProgramRecorder:
        name = name_of(workspace)
        if name not in self._recorders:
            self._recorders[name] = self._opened.enter_context(
                ProgramRecorder(
                    runtime=name,
                    threads=workspace.runtime.threads,
                    seed=workspace.options.seed,
                    python=workspace.options.python,
                )
            )
        return self._recorders[name]
