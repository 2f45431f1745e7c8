"""Handles requests to check outputs: of chained bricks, and of models against a reference.

Must not know which pieces a worker has loaded, nor which results are acceptable.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import onnx

from bricks.backends.base import Evaluator
from bricks.backends.programs import DoublePrecision, Recorder
from bricks.decompose.plan import Plan
from bricks.errors import WorkerError
from bricks.graph.form import ModelForm, form_of
from bricks.graph.model import Model
from bricks.graph.reference_values import ReferenceValues
from bricks.graph.view import graph_of, parse_model
from bricks.measure.protocol.evaluation import (
    EvaluateModel,
    VerifyModel,
    WriteReference,
    WrittenReference,
)
from bricks.measure.worker.accuracy import (
    evaluate_counterpart,
    evaluate_model,
    evaluate_program,
)
from bricks.measure.worker.chaining import Bricks
from bricks.measure.worker.model_data import model_data
from bricks.measure.worker.reference import write_reference
from bricks.measure.worker.runtime import WorkerRuntime
from bricks.measure.worker.verify import verify_model, verify_program
from bricks.samples.evaluation import Evaluation
from bricks.samples.verification import Verification


class EvaluationRequests:
    """Evaluates with the backend of ``runtime``; its seed determines synthetic data."""

    def __init__(self, runtime: WorkerRuntime) -> None:
        self._runtime = runtime

    def verify(self, request: VerifyModel) -> Verification:
        """Compare the chained bricks of a model with the model."""
        model = replace(_model(request), digest=request.plan.digest)
        bricks = {key: parse_model(skeleton) for key, skeleton in request.bricks.items()}
        of_form = {ModelForm.MODELS: self._verify_model, ModelForm.PROGRAMS: self._verify_program}
        return of_form[form_of(parse_model(model.skeleton))](model, request.plan, bricks)

    def _verify_model(self, model: Model, plan: Plan, bricks: Bricks) -> Verification:
        evaluator, seed = self._runtime.capable(Evaluator), self._runtime.settings.seed
        return verify_model(evaluator, seed=seed, model=model, plan=plan, bricks=bricks)

    def _verify_program(self, model: Model, plan: Plan, bricks: Bricks) -> Verification:
        recorder = self._runtime.capable(Recorder)
        return verify_program(recorder, model=model, plan=plan, bricks=bricks)

    def write_reference(self, request: WriteReference) -> WrittenReference:
        """Write the reference in double; it does not depend on the backend."""
        data = model_data(_model(request), self._runtime.settings.seed)
        reason = write_reference(
            data, Path(request.file), every=request.every, values=request.values
        )
        return WrittenReference(reason, data.own_weights)

    def evaluate(self, request: EvaluateModel) -> Evaluation:
        """Outputs of the runtime, compared with a reference or with the program in double."""
        proto = parse_model(request.model)
        of_form = {
            ModelForm.MODELS: self._evaluate_model,
            ModelForm.PROGRAMS: self._evaluate_program,
        }
        return of_form[form_of(proto)](request, proto)

    def _evaluate_model(self, request: EvaluateModel, proto: onnx.ModelProto) -> Evaluation:
        if request.file is None:
            raise WorkerError("an ONNX model is evaluated with the data of its reference")
        return evaluate_model(
            self._runtime.capable(Evaluator),
            proto,
            ReferenceValues.load(Path(request.file)),
            repeats=request.repeats,
            tolerance=request.tolerance,
            outputs=_outputs(request),
        )

    def _evaluate_program(self, request: EvaluateModel, proto: onnx.ModelProto) -> Evaluation:
        """Evaluate a program; with ``names``, one that computes the same as an ONNX model."""
        programs = self._runtime.capable(DoublePrecision)
        if request.file is None or request.names is None:
            return evaluate_program(
                programs, proto, repeats=request.repeats, gradients=request.gradients
            )
        return evaluate_counterpart(
            programs,
            proto,
            ReferenceValues.load(Path(request.file)),
            request.names,
            repeats=request.repeats,
            outputs=_outputs(request),
        )


def _outputs(request: EvaluateModel) -> Path | None:
    return None if request.outputs is None else Path(request.outputs)


def _model(request: VerifyModel | WriteReference) -> Model:
    """The model in a request, whose data files are in its folder."""
    graph = graph_of(parse_model(request.model))
    inputs = tuple((name, graph.types[name]) for name in graph.inputs)
    return Model(request.name, Path(request.folder), request.model, inputs, "")
