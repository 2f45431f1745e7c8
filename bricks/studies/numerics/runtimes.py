"""Several runtimes of one host, and the accuracy of each against a reference.

Each runtime has an open workspace; they share forms and references of models. Must not know what is
compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from bricks.closing import Closing
from bricks.errors import BackendError, BricksError, ModelError, WorkerError
from bricks.graph.form import form_of
from bricks.graph.view import parse_model
from bricks.session import whole_models
from bricks.studies.numerics.forms import Forms, name_of
from bricks.studies.numerics.references import ReferenceFile, References
from bricks.studies.numerics.results import Accuracy, Gradients
from bricks.studies.numerics.temporary_files import TemporaryFiles
from bricks.units.facts import Missing

if TYPE_CHECKING:
    from bricks.graph.model import Model
    from bricks.samples.evaluation import Evaluation
    from bricks.session.workspace import Workspace

PROGRAM_REFERENCE = "the same program in double precision"

# Errors that concern one model with one runtime; all others end the comparison.
FAILURES = (BackendError, ModelError, WorkerError)


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
