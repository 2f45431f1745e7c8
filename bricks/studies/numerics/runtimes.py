"""Several runtimes of one host, and what comparing them needs: models, references, evaluations.

One workspace each, open at the same time; a worker that computes references; one that records
programs for each runtime that runs such. Must not know what is compared.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from bricks import backends
from bricks.closing import Closing
from bricks.errors import BackendError, BricksError, ModelError, WorkerError
from bricks.graph.form import ModelForm, form_of
from bricks.graph.model import Model
from bricks.graph.read import read_model
from bricks.graph.reference_values import Reference
from bricks.graph.view import parse_model
from bricks.measure.allowance import MAX_S
from bricks.measure.graphs import Graphs
from bricks.measure.protocol.evaluation import WriteReference
from bricks.measure.protocol.graphs import RecordProgram
from bricks.measure.supervisor import Supervisor, WorkerSettings
from bricks.measure.worker.repeated_runs import outputs_in
from bricks.samples.evaluation import Evaluation
from bricks.session import whole_models
from bricks.session.workspace import Workspace
from bricks.sources import Function
from bricks.sources.recorder import ProgramRecorder
from bricks.studies.numerics.blocked_layout import Layout, block_of, blocked, layout_probe
from bricks.studies.numerics.operator import Operator
from bricks.studies.numerics.results import Accuracy, Gradients, accuracy_of
from bricks.system import available_memory_bytes
from bricks.units.facts import Missing

ONNX_REFERENCE = "onnx's reference evaluator in double precision"
PROGRAM_REFERENCE = "the same program in double precision"

# Errors that concern one model with one runtime; all others end the comparison.
FAILURES = (BackendError, ModelError, WorkerError)


@dataclass(frozen=True, slots=True)
class ReferenceFile:
    """Inputs and weights of a model in ``file``, and its values in double where there are any.

    ``values`` says what these are, or why there are none.
    """

    file: Path
    own_weights: bool
    values: str | Missing


@dataclass(frozen=True, slots=True)
class Evaluated:
    """What a runtime computes of a model: its accuracy, and the worker's answer it comes from."""

    accuracy: Accuracy
    evaluation: Evaluation


class Runtimes(Closing):
    """The runtimes of ``workspaces``, which stay the caller's; use it as a context manager.

    Each model is evaluated ``repeats`` times.
    """

    def __init__(self, workspaces: Sequence[Workspace], *, repeats: int) -> None:
        self.workspaces = tuple(workspaces)
        self.repeats = repeats
        self._opened = ExitStack()
        folder = tempfile.TemporaryDirectory(prefix="bricks-", ignore_cleanup_errors=True)
        self.folder = Path(self._opened.enter_context(folder))
        # Only the worker is needed, and no runtime in it.
        seed, memory_bytes = workspaces[0].options.seed, int(available_memory_bytes() * 0.9)
        settings = WorkerSettings(backends.unneeded(), 1, seed, memory_bytes, timing=False)
        self._references = Graphs(self._opened.enter_context(Supervisor(settings)), MAX_S)
        self._recorders: dict[str, ProgramRecorder] = {}
        self._blocks: dict[str, int] = {}
        self._numbers = count()

    def close(self) -> None:
        """Close the workspaces."""
        self._opened.close()

    @staticmethod
    def name_of(workspace: Workspace) -> str:
        """The runtime's name."""
        return workspace.runtime.backend

    @classmethod
    def runs_programs(cls, workspace: Workspace) -> bool:
        """Whether the runtime runs recorded programs, and no ONNX models."""
        return backends.offer(cls.name_of(workspace)).accepts is ModelForm.PROGRAMS

    def takes(self, workspace: Workspace, operator: Operator) -> None:
        """Raise :class:`BackendError` if the operator has no form that the runtime runs."""
        if not self.runs_programs(workspace) and operator.onnx is None:
            name = self.name_of(workspace)
            raise BackendError(f"{name} runs ONNX models, and this is a PyTorch program")

    def onnx_form(self, operator: Operator) -> Model:
        """The operator's ONNX form, read; ModelError if it cannot be."""
        assert operator.onnx is not None, "ask takes() first"
        form = operator.onnx
        if isinstance(form, onnx.ModelProto):
            form = self._written(form)
        return read_model(form, name=operator.name, values=operator.values)

    def model_of(self, proto: onnx.ModelProto, name: str) -> Model:
        """The model called ``name`` that ``proto`` is; its weights may be missing."""
        return read_model(self._written(proto), name=name)

    def _written(self, proto: onnx.ModelProto) -> Path:
        path = self.new_file(".onnx")
        path.write_bytes(proto.SerializeToString())
        return path

    def program_form(self, operator: Operator, workspace: Workspace) -> Model:
        """The operator's program, recorded with the runtime of ``workspace``."""
        form = operator.program
        assert form is not None, "it has a program"
        return self._recorder(workspace).record(RecordProgram(**form.request()), name=operator.name)

    def counterpart(self, workspace: Workspace, model: Model, data: ReferenceFile) -> Model:
        """A program of the calls that compute an ONNX model with these data, recorded.

        Raises :class:`WorkerError` for the first operator that has no counterpart there.
        """
        file = self.new_file(".onnx")
        file.write_bytes(model.skeleton)
        paths = {"model": str(file), "data": str(data.file)}
        counterparts = backends.offer(self.name_of(workspace)).counterparts
        if counterparts is None:
            raise WorkerError(f"{self.name_of(workspace)} has no programs in place of ONNX models")
        program = Function(counterparts.model, arguments=paths).request()
        try:
            return self._recorder(workspace).record(RecordProgram(**program), name=model.name)
        except WorkerError as error:
            raise WorkerError(str(error).removeprefix(f"{counterparts.model}: ")) from error

    def _recorder(self, workspace: Workspace) -> ProgramRecorder:
        name = self.name_of(workspace)
        if name not in self._recorders:
            self._recorders[name] = self._opened.enter_context(
                ProgramRecorder(
                    runtime=name, threads=workspace.runtime.threads, seed=workspace.options.seed
                )
            )
        return self._recorders[name]

    def new_file(self, suffix: str) -> Path:
        """The name of a file that does not exist yet, and goes with this object."""
        return self.folder / f"{next(self._numbers)}{suffix}"

    def reference(self, model: Model, *, every: bool = False) -> ReferenceFile:
        """The data of an ONNX model, and its outputs in double, or with ``every`` all its values.

        Raises :class:`WorkerError` if nothing can be evaluated with such data.
        """
        file = self.new_file(".npz")
        request = WriteReference(
            model.name, str(model.folder), model.skeleton, str(file), every=every
        )
        written = self._references.ask(model, request)
        reason = written.reason
        values = ONNX_REFERENCE if reason is None else Missing(f"no reference: {reason}")
        return ReferenceFile(file, written.own_weights, values)

    def in_blocks(
        self, workspace: Workspace, reference: ReferenceFile, layouts: Mapping[str, Layout]
    ) -> ReferenceFile:
        """The same data with the values of ``layouts`` in the blocked layout of ``workspace``.

        Raises :class:`ModelError` where channels do not fill the blocks that it has on this host.
        """
        block = self._block(workspace)
        plain = Reference.load(reference.file)

        def arranged(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
            return {
                name: blocked(array, layouts[name], block) if name in layouts else array
                for name, array in arrays.items()
            }

        file = self.new_file(".npz")
        Reference(*map(arranged, (plain.inputs, plain.weights, plain.values))).save(file)
        return replace(reference, file=file)

    def _block(self, workspace: Workspace) -> int:
        """How many channels the runtime of ``workspace`` keeps together, as it shows."""
        name = self.name_of(workspace)
        if name not in self._blocks:
            proto, inputs = layout_probe()
            data, outputs = self.new_file(".npz"), self.new_file(".npz")
            Reference(inputs, {}, {}).save(data)
            model = self.model_of(proto, "the blocked layout")
            whole_models.evaluate(workspace, model, repeats=1, file=str(data), outputs=str(outputs))
            self._blocks[name] = block_of(next(outputs_in(outputs)))
        return self._blocks[name]

    @staticmethod
    def outputs_of(model: Model) -> list[str]:
        """The names of a model's outputs."""
        return [info.name for info in parse_model(model.skeleton).graph.output]

    def evaluate(
        self,
        workspace: Workspace,
        model: Model,
        reference: ReferenceFile | None,
        *,
        gradients: bool = False,
        **fields: Any,
    ) -> Evaluated:
        """Evaluate ``model`` beside its ``reference``; without one, a program has its own.

        With ``gradients``, those of a program are held against finite differences. ``fields`` are
        further ones of the worker's request. Raises one of :data:`FAILURES`.
        """
        if reference is None:
            form = form_of(parse_model(model.skeleton))
            assert form.own_reference, "an ONNX model has a reference"
            found = whole_models.evaluate(
                workspace, model, repeats=self.repeats, gradients=gradients
            )
            why = found.reference_reason
            values = PROGRAM_REFERENCE if why is None else Missing(f"no reference: {why}")
            return Evaluated(accuracy_of(found, values, _gradients(found)), found)
        found = whole_models.evaluate(
            workspace, model, repeats=self.repeats, file=str(reference.file), **fields
        )
        none = Missing(f"{self.name_of(workspace)} computes no gradients of ONNX models")
        return Evaluated(accuracy_of(found, reference.values, none), found)


def _gradients(found: Evaluation) -> Gradients | Missing:
    if found.derivatives is not None:
        return Gradients(found.derivatives)
    return Missing(found.derivatives_reason or "its gradients were not asked for")


def reason_of(error: BricksError, name: str) -> Missing:
    """Why something of the model called ``name`` is missing, without that name before it."""
    return Missing(str(error).removeprefix(f"{name}: "))
