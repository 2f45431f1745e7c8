"""Networks over runtimes: accuracy, and the first operator where it is lost (Deep500's level 1).

Every runtime computes an ONNX model on the same data. Its outputs are compared with a reference in
double precision and with the outputs of other runtimes, and each value with the reference. A
program's outputs or loss and its gradients are compared with the same step in double. Must not know
how results are shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

from bricks.graph.call import INFERENCE, TRAINING
from bricks.graph.form import ModelForm, form_of
from bricks.graph.program import origin_of
from bricks.graph.view import parse_model
from bricks.measure.worker.outputs import outputs_in
from bricks.samples.evaluation import Divergence, Evaluation, compared_output
from bricks.studies.numerics.results import NetworkResult, NetworkRun, Pair
from bricks.studies.numerics.runtimes import (
    FAILURES,
    Runtimes,
    accepted_form,
    name_of,
    outputs_of,
    reason_of,
)
from bricks.units.facts import Missing

if TYPE_CHECKING:
    from bricks.graph.model import Model
    from bricks.session.workspace import Workspace
    from bricks.studies.numerics.runtimes import ReferenceFile

_NOT_ONE_BY_ONE = Missing("values of a program are not compared one by one")


def compare_networks(
    models: Iterable[Model],
    workspaces: Sequence[Workspace],
    *,
    repeats: int = 3,
    tolerance: float | None = None,
    done: Callable[[NetworkResult], None] = lambda result: None,
) -> list[NetworkResult]:
    """Compare ``models`` over the runtimes of ``workspaces``, each evaluated ``repeats`` times.

    ``tolerance`` is the greatest difference of a value that is no error, relative to its greatest
    magnitude; by default the tolerance of its type (``measure/worker/outputs.py``).
    Missing results of a runtime have a reason.
    """
    results = []
    with Runtimes(workspaces, repeats=repeats) as runtimes:
        for model in models:
            workspaces[0].progress(f"comparing {model.name}", 0.0)
            compared = _COMPARED[form_of(parse_model(model.skeleton))]
            results.append(compared(runtimes, model, tolerance))
            done(results[-1])
    return results


def _program(runtimes: Runtimes, model: Model, tolerance: float | None) -> NetworkResult:
    origin = origin_of(parse_model(model.skeleton))
    kind = INFERENCE if origin is None else origin.kind
    runs = []
    for workspace in runtimes.workspaces:
        name = name_of(workspace)
        if accepted_form(workspace) is not ModelForm.PROGRAMS:
            lacking = Missing(f"{name} runs ONNX models, and {model.name} is a PyTorch program")
            runs.append(NetworkRun(name, lacking, lacking))
            continue
        try:
            accuracy = runtimes.evaluate(workspace, model, None, gradients=kind == TRAINING)
            runs.append(NetworkRun(name, accuracy, _NOT_ONE_BY_ONE))
        except FAILURES as error:
            runs.append(NetworkRun(name, reason_of(error, model.name), _NOT_ONE_BY_ONE))
    own = True if any(not isinstance(run.accuracy, Missing) for run in runs) else None
    return NetworkResult(model.name, kind, own, tuple(runs), ())


def _network(runtimes: Runtimes, model: Model, tolerance: float | None) -> NetworkResult:
    try:
        reference = runtimes.references.of(model, every=True)
    except FAILURES as error:
        missing = reason_of(error, model.name)
        names = map(name_of, runtimes.workspaces)
        nothing = tuple(NetworkRun(name, missing, missing) for name in names)
        return NetworkResult(model.name, INFERENCE, None, nothing, ())
    runs, files = [], {}
    for workspace in runtimes.workspaces:
        name, outputs = name_of(workspace), runtimes.files.new(".npz")
        runs.append(_run(runtimes, workspace, model, reference, outputs, tolerance))
        if not isinstance(runs[-1].accuracy, Missing):
            files[name] = outputs
    pairs, titles = [], outputs_of(model)
    for one, other in combinations(files, 2):
        both = zip(titles, outputs_in(files[one]), outputs_in(files[other]), strict=True)
        pairs.append(Pair(one, other, tuple(compared_output(*each) for each in both)))
    for file in (reference.file, *files.values()):
        file.unlink()
    return NetworkResult(model.name, INFERENCE, reference.own_weights, tuple(runs), tuple(pairs))


_COMPARED = {ModelForm.PROGRAMS: _program, ModelForm.MODELS: _network}


def _run(
    runtimes: Runtimes,
    workspace: Workspace,
    model: Model,
    reference: ReferenceFile,
    outputs: Path,
    tolerance: float | None,
) -> NetworkRun:
    """The run of a model, or of a program with the counterparts of its operators."""
    name = name_of(workspace)
    try:
        if accepted_form(workspace) is ModelForm.PROGRAMS:
            program = runtimes.forms.counterpart(workspace, model, reference.file)
            accuracy = runtimes.evaluate(
                workspace, program, reference, names=outputs_of(model), outputs=str(outputs)
            )
            return NetworkRun(name, accuracy, _NOT_ONE_BY_ONE)
        accuracy = runtimes.evaluate(
            workspace, model, reference, outputs=str(outputs), tolerance=tolerance
        )
    except FAILURES as error:
        missing = reason_of(error, model.name)
        return NetworkRun(name, missing, missing)
    return NetworkRun(name, accuracy, _divergence(accuracy.evaluation, reference))


def _divergence(evaluation: Evaluation, reference: ReferenceFile) -> Divergence | Missing:
    if isinstance(reference.values, Missing):
        return reference.values
    if evaluation.divergence is not None:
        return evaluation.divergence
    return Missing(evaluation.divergence_reason or "it has no values but its outputs")
