"""The forms of an operator for each runtime, and their common reference.

Must not know what is measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from bricks.errors import BackendError, ModelError
from bricks.graph.form import ModelForm
from bricks.graph.model import Model
from bricks.graph.view import parse_model
from bricks.studies.numerics.forms import accepted_form, name_of
from bricks.studies.numerics.operator import UNKNOWN, OperatorCase, work_of
from bricks.studies.numerics.references import ReferenceFile
from bricks.studies.numerics.results import Form
from bricks.studies.numerics.runtimes import FAILURES, Runtimes, reason_of
from bricks.studies.numerics.standard_form import standard_form
from bricks.units.facts import Missing

if TYPE_CHECKING:
    from bricks.session.workspace import Workspace
    from bricks.studies.numerics.blocked_layout import BlockedLayout


class OperatorForms:
    """The ONNX forms of one operator and their reference, computed once for all runtimes.

    ``layouts`` are the layouts of blocked values in the given form, ``work`` is the operator's
    work.
    """

    def __init__(self, runtimes: Runtimes, operator: OperatorCase) -> None:
        self._runtimes, self._operator = runtimes, operator
        self._given: Model | Missing | None = None
        self._standard: Model | None = None  # in standard operators
        self.layouts: Mapping[str, BlockedLayout] = {}
        self._reference: ReferenceFile | Missing | None = None
        self.work = UNKNOWN
        if operator.has(ModelForm.MODELS):
            self._read()

    def _read(self) -> None:
        name = self._operator.name
        try:
            self._given = self._runtimes.forms.onnx_form(self._operator)
        except FAILURES as error:
            self._given = reason_of(error, name)
            return
        self.work = self._operator.work or work_of(self._given)
        try:
            standard = standard_form(parse_model(self._given.skeleton))
            if standard is not None:
                self._standard = self._runtimes.forms.model_of(standard.proto, name)
                self.layouts = standard.layouts
                if self.work == UNKNOWN:  # operators of one runtime have unknown shapes
                    self.work = work_of(self._standard)
        except ModelError as error:
            self._reference = Missing(f"no reference: {reason_of(error, name).reason}")

    def of(self, workspace: Workspace) -> tuple[Form, Model | Missing]:
        """The form of the operator that the runtime accepts, with its model.

        Raises one of ``FAILURES``.
        """
        return _IN_FORM[accepted_form(workspace)](self, workspace)

    def _as_program(self, workspace: Workspace) -> tuple[Form, Model | Missing]:
        if self._operator.has(ModelForm.PROGRAMS):
            return Form.GIVEN, self._runtimes.forms.program_form(self._operator, workspace)
        return Form.COUNTERPART, self._counterpart(workspace)

    def _as_model(self, workspace: Workspace) -> tuple[Form, Model | Missing]:
        if self._given is None:
            name = name_of(workspace)
            raise BackendError(f"{name} runs ONNX models, and this is a PyTorch program")
        if self._standard is not None and not self._runs_given(workspace):
            return Form.STANDARD, self._standard
        return Form.GIVEN, self._given

    def _runs_given(self, workspace: Workspace) -> bool:
        """Whether the runtime knows the operators of the given form."""
        assert isinstance(self._given, Model)
        try:
            workspace.plans.decompose(self._given)
        except FAILURES:
            return False
        return True

    def _counterpart(self, workspace: Workspace) -> Model | Missing:
        model = self.onnx
        if isinstance(model, Missing):
            return model
        reference = self.referenced()
        if isinstance(reference, Missing):
            return reference
        return self._runtimes.forms.counterpart(workspace, model, reference.file)

    @property
    def onnx(self) -> Model | Missing:
        """The form that has a reference: that in standard operators, if there is one."""
        model = self._standard or self._given
        assert model is not None
        return model

    def referenced(self) -> ReferenceFile | Missing:
        """The reference of the form that has one."""
        if self._reference is None:
            model = self.onnx
            assert isinstance(model, Model)
            try:
                self._reference = self._runtimes.references.of(model)
            except FAILURES as error:
                self._reference = reason_of(error, model.name)
        return self._reference

    def forget_reference(self) -> None:
        """Remove the file of the reference, since all of them would fill a disk."""
        if isinstance(self._reference, ReferenceFile):
            self._reference.file.unlink()


_IN_FORM = {
    ModelForm.MODELS: OperatorForms._as_model,
    ModelForm.PROGRAMS: OperatorForms._as_program,
}
