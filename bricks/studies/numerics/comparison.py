"""Operators over runtimes: latency, rates relative to the roofline, and accuracy (Deep500 level 0).

Latencies are estimates from bricks, measured or cached as for any model. Runtimes take turns
operator by operator, in a rotating order, so that drift of the machine favours none. Each gets an
operator in a form that it accepts; the reference is common. Must not know the sources of operators,
nor how results are shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING

from bricks.compose.estimate import Estimate, IncompleteEstimate
from bricks.errors import BackendError, ModelError
from bricks.graph.form import ModelForm
from bricks.graph.model import Model
from bricks.graph.view import parse_model
from bricks.session import predicting
from bricks.session.machine_peaks import Peaks, measured_peaks
from bricks.studies.numerics.operators import UNKNOWN, OperatorCase, work_of
from bricks.studies.numerics.results import (
    Accuracy,
    Form,
    OperatorComparison,
    OperatorLatency,
    OperatorResult,
    OperatorRun,
    RuntimeFacts,
    Work,
)
from bricks.studies.numerics.runtimes import (
    FAILURES,
    ReferenceFile,
    Runtimes,
    accepted_form,
    name_of,
    outputs_of,
    reason_of,
)
from bricks.studies.numerics.standard_form import standard_form
from bricks.units.facts import Missing

if TYPE_CHECKING:
    from bricks.session.workspace import Workspace
    from bricks.studies.numerics.standard_form import BlockedLayout


def compare_operators(
    operators: Iterable[OperatorCase],
    workspaces: Sequence[Workspace],
    *,
    repeats: int = 5,
    done: Callable[[OperatorResult], None] = lambda result: None,
) -> OperatorComparison:
    """Compare ``operators`` over the runtimes of ``workspaces``, evaluated ``repeats`` times.

    Missing latencies and accuracies have a reason in the result. ``done`` is called with each
    result. Raises errors that concern no single operator, such as a damaged cache.
    """
    operators = list(operators)
    results = []
    with Runtimes(workspaces, repeats=repeats) as runtimes:
        peaks = {
            name_of(workspace): cache(partial(measured_peaks, workspace, measure=True))
            for workspace in workspaces
        }
        for number, operator in enumerate(operators):
            workspaces[0].progress(operator.name, number / len(operators))
            turn = number % len(workspaces)
            order = [*workspaces[turn:], *workspaces[:turn]]
            results.append(_Comparison(runtimes, peaks, operator).over(order))
            done(results[-1])
    # Peaks are measured with the first operator that a runtime runs, and read here.
    facts = tuple(
        RuntimeFacts(workspace.target, measured_peaks(workspace)) for workspace in workspaces
    )
    return OperatorComparison(workspaces[0].target.system, facts, tuple(results))


class _Comparison:
    """One operator over runtimes, in the forms that these run."""

    def __init__(
        self, runtimes: Runtimes, peaks: Mapping[str, Callable[[], Peaks]], operator: OperatorCase
    ) -> None:
        self._runtimes, self._peaks, self._operator = runtimes, peaks, operator
        self._forms = OperatorForms(runtimes, operator)

    def over(self, workspaces: Sequence[Workspace]) -> OperatorResult:
        """The operator with each runtime, in the order in which all operators name them."""
        runs = {name_of(workspace): self._run(workspace) for workspace in workspaces}
        self._forms.forget_reference()
        names, operator = map(name_of, self._runtimes.workspaces), self._operator
        return OperatorResult(
            operator.name, operator.source, self._forms.work, tuple(runs[name] for name in names)
        )

    def _run(self, workspace: Workspace) -> OperatorRun:
        name = name_of(workspace)
        try:
            form, model = self._forms.of(workspace)
        except FAILURES as error:
            missing = reason_of(error, self._operator.name)
            return OperatorRun(name, missing, missing)
        if isinstance(model, Missing):
            return OperatorRun(name, model, model)
        if self._forms.work == UNKNOWN:
            self._forms.work = work_of(model)
        return OperatorRun(
            name, self._latency(workspace, model), self._accuracy(workspace, form, model), form
        )

    def _latency(self, workspace: Workspace, model: Model) -> OperatorLatency | Missing:
        try:
            estimate = predicting.predict(workspace, model)
        except FAILURES as error:
            return reason_of(error, model.name)
        if isinstance(estimate, IncompleteEstimate):
            return Missing(estimate.gaps[0].reason)
        peaks = self._peaks[name_of(workspace)]()
        return latency_of(estimate, self._forms.work, peaks)

    def _accuracy(self, workspace: Workspace, form: Form, model: Model) -> Accuracy | Missing:
        try:
            if form is Form.GIVEN and accepted_form(workspace).own_reference:
                return self._runtimes.evaluate(workspace, model, None, gradients=True)
            reference = self._forms.referenced()
            if isinstance(reference, Missing):
                return reference
            if form is Form.COUNTERPART:
                assert isinstance(self._forms.onnx, Model)
                names = outputs_of(self._forms.onnx)
                return self._runtimes.evaluate(workspace, model, reference, names=names)
            if form is Form.STANDARD or not self._forms.layouts:
                return self._runtimes.evaluate(workspace, model, reference)
            arranged = self._runtimes.references.in_blocks(
                workspace, reference, self._forms.layouts
            )
            try:
                return self._runtimes.evaluate(workspace, model, arranged)
            finally:
                arranged.file.unlink()
        except FAILURES as error:
            return reason_of(error, model.name)


def latency_of(estimate: Estimate, work: Work, peaks: Peaks) -> OperatorLatency:
    """The latency of ``estimate``, with the rates of ``work`` without call overhead."""
    net_s = estimate.estimate_s - estimate.call_overhead_s
    share, bound = None, None
    bandwidth = None if work.bytes is None else peaks.bandwidth(work.bytes)
    if work.flops is not None and work.bytes is not None and peaks.flops_per_s and bandwidth:
        compute_s, memory_s = work.flops / peaks.flops_per_s, work.bytes / bandwidth
        bound = "compute" if compute_s >= memory_s else "memory"
        share = max(compute_s, memory_s) / net_s if net_s > 0 else None
    return OperatorLatency(
        latency_s=estimate.latency_s,
        flops_per_s=None if work.flops is None or net_s <= 0 else work.flops / net_s,
        bytes_per_s=None if work.bytes is None or net_s <= 0 else work.bytes / net_s,
        peak_share=share,
        bound=bound,
    )


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
        if not operator.has(ModelForm.MODELS):
            return
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
