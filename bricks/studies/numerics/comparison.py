"""Operators over runtimes: latency, rates beside the roofline, and accuracy (Deep500's level 0).

Latencies are estimates from bricks, with the cache as for any model. Runtimes take turns operator
by operator, in an order that rotates, so that a drift of the machine favours none. Must not know
where operators come from, nor how results are shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from bricks.compose.estimate import Estimate, IncompleteEstimate
from bricks.decompose.work import flops
from bricks.errors import ModelError
from bricks.graph.form import form_of
from bricks.graph.graph import Graph
from bricks.graph.model import Model
from bricks.graph.source import source_graph
from bricks.graph.view import parse_model
from bricks.session import predicting
from bricks.session.machine_peaks import MachinePeaks, Peaks
from bricks.session.workspace import Workspace
from bricks.studies.numerics.blocked_layout import Layout
from bricks.studies.numerics.operator import Operator, bytes_of
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
from bricks.studies.numerics.runtimes import FAILURES, ReferenceFile, Runtimes, reason_of
from bricks.studies.numerics.standard_form import standard_form
from bricks.units.facts import Missing

_UNKNOWN = Work(None, None)


def compare_operators(
    operators: Iterable[Operator],
    workspaces: Sequence[Workspace],
    *,
    repeats: int = 5,
    done: Callable[[OperatorResult], None] = lambda result: None,
) -> OperatorComparison:
    """``operators`` over the runtimes of ``workspaces``, each evaluated ``repeats`` times.

    What a runtime lacks stands in the result with its reason. ``done`` gets each result as it is
    there. Raises errors that concern no single operator, such as those of the cache.
    """
    operators = list(operators)
    found = []
    with Runtimes(workspaces, repeats=repeats) as runtimes:
        peaks = {Runtimes.name_of(each): MachinePeaks(each, measure=True) for each in workspaces}
        for number, operator in enumerate(operators):
            workspaces[0].progress(operator.name, number / len(operators))
            turn = number % len(workspaces)
            order = [*workspaces[turn:], *workspaces[:turn]]
            found.append(_Comparison(runtimes, peaks, operator).over(order))
            done(found[-1])
    # Peaks were measured with the first operator that a runtime ran, and not for their own sake.
    facts = tuple(
        RuntimeFacts(workspace.target, MachinePeaks(workspace).peaks) for workspace in workspaces
    )
    return OperatorComparison(workspaces[0].target.system, facts, tuple(found))


class _Comparison:
    """One operator: its forms in ONNX and their reference are made once for all runtimes."""

    def __init__(
        self, runtimes: Runtimes, peaks: Mapping[str, MachinePeaks], operator: Operator
    ) -> None:
        self._runtimes, self._peaks, self._operator = runtimes, peaks, operator
        self._given: Model | Missing | None = None
        # In standard operators, with the values that are blocked in the given form.
        self._standard: Model | None = None
        self._layouts: Mapping[str, Layout] = {}
        self._reference: ReferenceFile | Missing | None = None
        self._work = _UNKNOWN

    def over(self, workspaces: Sequence[Workspace]) -> OperatorResult:
        """The operator with each runtime, in the order in which all operators name them."""
        if self._operator.onnx is not None:
            self._read()
        runs = {Runtimes.name_of(workspace): self._run(workspace) for workspace in workspaces}
        if isinstance(self._reference, ReferenceFile):
            self._reference.file.unlink()  # together they would fill a disk
        names = map(Runtimes.name_of, self._runtimes.workspaces)
        operator = self._operator
        return OperatorResult(
            operator.name, operator.source, self._work, tuple(runs[name] for name in names)
        )

    def _read(self) -> None:
        name = self._operator.name
        try:
            self._given = self._runtimes.onnx_form(self._operator)
        except FAILURES as error:
            self._given = reason_of(error, name)
            return
        self._work = self._operator.work or work_of(self._given)
        try:
            found = standard_form(parse_model(self._given.skeleton))
            if found is not None:
                self._standard = self._runtimes.model_of(found.proto, name)
                self._layouts = found.layouts
                if self._work == _UNKNOWN:  # the shapes of what only one runtime knows are open
                    self._work = work_of(self._standard)
        except ModelError as error:
            self._reference = Missing(f"no reference: {reason_of(error, name).reason}")

    def _run(self, workspace: Workspace) -> OperatorRun:
        name = Runtimes.name_of(workspace)
        try:
            self._runtimes.takes(workspace, self._operator)
            form, model = self._form(workspace)
        except FAILURES as error:
            missing = reason_of(error, self._operator.name)
            return OperatorRun(name, missing, missing)
        if isinstance(model, Missing):
            return OperatorRun(name, model, model)
        if self._work == _UNKNOWN:
            self._work = work_of(model)
        return OperatorRun(
            name, self._latency(workspace, model), self._accuracy(workspace, form, model), form
        )

    def _form(self, workspace: Workspace) -> tuple[Form, Model | Missing]:
        """What the runtime runs: the operator as it is given, or what computes the same."""
        if self._runtimes.runs_programs(workspace):
            if self._operator.program is not None:
                return Form.GIVEN, self._runtimes.program_form(self._operator, workspace)
            return Form.COUNTERPART, self._counterpart(workspace)
        assert self._given is not None
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
        model = self._onnx
        if isinstance(model, Missing):
            return model
        reference = self._referenced(model)
        if isinstance(reference, Missing):
            return reference
        return self._runtimes.counterpart(workspace, model, reference)

    @property
    def _onnx(self) -> Model | Missing:
        """The form that has a reference: that in standard operators, if there is one."""
        found = self._standard or self._given
        assert found is not None
        return found

    def _latency(self, workspace: Workspace, model: Model) -> OperatorLatency | Missing:
        try:
            estimate = predicting.predict(workspace, model)
        except FAILURES as error:
            return reason_of(error, model.name)
        if isinstance(estimate, IncompleteEstimate):
            return Missing(estimate.gaps[0].reason)
        peaks = self._peaks[Runtimes.name_of(workspace)].peaks
        return latency_of(estimate, self._work, peaks)

    def _accuracy(self, workspace: Workspace, form: Form, model: Model) -> Accuracy | Missing:
        try:
            given = self._operator.program is not None
            if given and form_of(parse_model(model.skeleton)).own_reference:
                return self._runtimes.evaluate(workspace, model, None, gradients=True).accuracy
            assert isinstance(self._onnx, Model)
            reference = self._referenced(self._onnx)
            if isinstance(reference, Missing):
                return reference
            return self._beside(workspace, form, model, reference)
        except FAILURES as error:
            return reason_of(error, model.name)

    def _beside(
        self, workspace: Workspace, form: Form, model: Model, reference: ReferenceFile
    ) -> Accuracy:
        if form is Form.COUNTERPART:
            assert isinstance(self._onnx, Model)
            names = self._runtimes.outputs_of(self._onnx)
            return self._runtimes.evaluate(workspace, model, reference, names=names).accuracy
        if form is Form.STANDARD or not self._layouts:
            return self._runtimes.evaluate(workspace, model, reference).accuracy
        arranged = self._runtimes.in_blocks(workspace, reference, self._layouts)
        try:
            return self._runtimes.evaluate(workspace, model, arranged).accuracy
        finally:
            arranged.file.unlink()

    def _referenced(self, model: Model) -> ReferenceFile | Missing:
        if self._reference is None:
            try:
                self._reference = self._runtimes.reference(model)
            except FAILURES as error:
                self._reference = reason_of(error, model.name)
        return self._reference


def latency_of(estimate: Estimate, work: Work, peaks: Peaks) -> OperatorLatency:
    """An estimate with the rates at which ``work`` is done in it, without the cost of the call."""
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


def work_of(model: Model) -> Work:
    """The work of ``model`` as it is written, whatever a runtime makes of it.

    Bytes are those of inputs, weights and outputs, each once.
    """
    try:
        graph = source_graph(model)
    except ModelError:  # a shape is open, or an operator's is not known
        return _UNKNOWN
    return Work(flops(graph, range(len(graph.nodes))), _bytes(graph))


def _bytes(graph: Graph) -> int | None:
    names = {*graph.inputs, *graph.initializers, *graph.outputs}
    return bytes_of([graph.types.get(name) for name in names])
