"""Several runtimes of one host: the forms of models that each accepts, references, and accuracy.

Each runtime has an open workspace. A form is an ONNX model or a recorded program; a reference is
inputs, weights, and values in double precision. Runtimes share both. Must not know what is
compared.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx

from bricks import backends
from bricks.closing import Closing
from bricks.errors import BackendError, BricksError, ModelError, WorkerError
from bricks.graph.form import form_of
from bricks.graph.input_values import ReferenceValues
from bricks.graph.view import parse_model
from bricks.measure.conditions import GRAPH_TIMEOUT_S
from bricks.measure.graphs import Graphs
from bricks.measure.protocol.models import RecordProgram, WriteReference
from bricks.measure.supervisor import Supervisor, WorkerSettings
from bricks.measure.worker.outputs import outputs_in
from bricks.reading.read import read_model
from bricks.session import whole_models
from bricks.sources import Function
from bricks.sources.recorder import ProgramRecorder
from bricks.studies.numerics.results import Accuracy, Gradients
from bricks.studies.numerics.standard_form import BlockedLayout, block_of, blocked, layout_probe
from bricks.system import available_memory_bytes
from bricks.units.facts import Missing

if TYPE_CHECKING:
    import numpy as np

    from bricks.graph.form import ModelForm
    from bricks.graph.model import Model
    from bricks.samples.evaluation import Evaluation
    from bricks.session.workspace import Workspace
    from bricks.studies.numerics.operators import OperatorCase

ONNX_REFERENCE = "onnx's reference evaluator in double precision"
PROGRAM_REFERENCE = "the same program in double precision"

# Errors that concern one model with one runtime; all others end the comparison.
FAILURES = (BackendError, ModelError, WorkerError)


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


class TemporaryFiles(Closing):
    """A new folder; use it as a context manager."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="bricks-", ignore_cleanup_errors=True)
        self._numbers = count()

    def close(self) -> None:
        """Remove the folder with all that is in it."""
        self._folder.cleanup()

    def new(self, suffix: str) -> Path:
        """The name of a file that does not exist yet."""
        return Path(self._folder.name) / f"{next(self._numbers)}{suffix}"


@dataclass(frozen=True, slots=True)
class ReferenceFile:
    """A ``file`` with inputs and weights of a model, and its values in double if available.

    ``values`` names the source of the values, or says why there are none.
    """

    file: Path
    own_weights: bool
    values: str | Missing


class References(Closing):
    """Computes references in a worker, from data that ``seed`` decides, into ``files``.

    Use it as a context manager.
    """

    def __init__(self, files: TemporaryFiles, forms: Forms, seed: int) -> None:
        self._files, self._forms = files, forms
        self._opened = ExitStack()
        # Only the worker is needed, and no runtime in it.
        memory_bytes = int(available_memory_bytes() * 0.9)
        settings = WorkerSettings(backends.unneeded(), 1, seed, memory_bytes, timing=False)
        self._graphs = Graphs(self._opened.enter_context(Supervisor(settings)), GRAPH_TIMEOUT_S)
        self._blocks: dict[str, int] = {}

    def close(self) -> None:
        """End the worker."""
        self._opened.close()

    def of(self, model: Model, *, every: bool = False) -> ReferenceFile:
        """The data of an ONNX model, and its outputs in double, or with ``every`` all its values.

        Raises :class:`WorkerError` if nothing can be evaluated with such data.
        """
        file = self._files.new(".npz")
        request = WriteReference(
            model.name, str(model.folder), model.skeleton, str(file), every=every
        )
        written = self._graphs.ask(model, request)
        reason = written.reason
        values = ONNX_REFERENCE if reason is None else Missing(f"no reference: {reason}")
        return ReferenceFile(file, written.own_weights, values)

    def in_blocks(
        self, workspace: Workspace, reference: ReferenceFile, layouts: Mapping[str, BlockedLayout]
    ) -> ReferenceFile:
        """``reference`` with the values in ``layouts`` in the blocked layout of ``workspace``.

        Raises :class:`ModelError` if channels do not fill the runtime's blocks on this host.
        """
        block = self._block(workspace)
        plain = ReferenceValues.load(reference.file)

        def arranged(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
            return {
                name: blocked(array, layouts[name], block) if name in layouts else array
                for name, array in arrays.items()
            }

        file = self._files.new(".npz")
        ReferenceValues(*map(arranged, (plain.inputs, plain.weights, plain.values))).save(file)
        return replace(reference, file=file)

    def _block(self, workspace: Workspace) -> int:
        """The channels in a block of the runtime of ``workspace``, from running a probe."""
        name = name_of(workspace)
        if name not in self._blocks:
            proto, inputs = layout_probe()
            data, outputs = self._files.new(".npz"), self._files.new(".npz")
            ReferenceValues(inputs, {}, {}).save(data)
            model = self._forms.model_of(proto, "the blocked layout")
            whole_models.evaluate(workspace, model, repeats=1, file=str(data), outputs=str(outputs))
            self._blocks[name] = block_of(next(outputs_in(outputs)))
        return self._blocks[name]


class Runtimes(Closing):
    """The runtimes of ``workspaces``, which stay the caller's; use it as a context manager.

    Each model is evaluated ``repeats`` times.
    """

    def __init__(self, workspaces: Sequence[Workspace], *, repeats: int) -> None:
        self.workspaces = tuple(workspaces)
        self.repeats = repeats
        self._opened = ExitStack()
        self.files = self._opened.enter_context(TemporaryFiles())
        self.forms = self._opened.enter_context(Forms(self.files))
        seed = workspaces[0].options.seed
        self.references = self._opened.enter_context(References(self.files, self.forms, seed))

    def close(self) -> None:
        """End all processes, and remove all files."""
        self._opened.close()

    def evaluate(
        self,
        workspace: Workspace,
        model: Model,
        reference: ReferenceFile | None,
        *,
        gradients: bool = False,
        **fields: Any,
    ) -> Accuracy:
        """Evaluate ``model`` against ``reference``; None: a program, which is its own reference.

        With ``gradients``, a program's gradients are compared with finite differences. ``fields``
        are further fields of the worker's request. Raises one of :data:`FAILURES`.
        """
        if reference is None:
            form = form_of(parse_model(model.skeleton))
            assert form.own_reference, "an ONNX model has a reference"
            evaluation = whole_models.evaluate(
                workspace, model, repeats=self.repeats, gradients=gradients
            )
            why = evaluation.reference_reason
            values = PROGRAM_REFERENCE if why is None else Missing(f"no reference: {why}")
            return Accuracy.of(evaluation, values, _gradients(evaluation))
        evaluation = whole_models.evaluate(
            workspace, model, repeats=self.repeats, file=str(reference.file), **fields
        )
        none = Missing(f"{name_of(workspace)} computes no gradients of ONNX models")
        return Accuracy.of(evaluation, reference.values, none)


def _gradients(evaluation: Evaluation) -> Gradients | Missing:
    if evaluation.derivatives is not None:
        return Gradients(evaluation.derivatives)
    return Missing(evaluation.derivatives_reason or "its gradients were not asked for")


def reason_of(error: BricksError, name: str) -> Missing:
    """The text of ``error`` as a reason, without the prefix ``name``."""
    return Missing(str(error).removeprefix(f"{name}: "))
