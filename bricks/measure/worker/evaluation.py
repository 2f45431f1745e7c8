"""Handles requests to check outputs: of chained bricks, and of models against a reference.

A model is evaluated several times and compared with its reference in double, in the worker process
of the runtime in question: only norms and a heat map of large tensors leave it. The first node
whose outputs diverge is found. Must not know which pieces a worker has loaded, nor which results
are acceptable.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from bricks.backends.base import Evaluator
from bricks.backends.programs import DoublePrecision, Recorder
from bricks.errors import BackendError, BricksError, WorkerError
from bricks.graph.form import ModelForm, form_of
from bricks.graph.input_values import ReferenceValues
from bricks.graph.model import Model
from bricks.graph.topology import label
from bricks.graph.view import graph_of, parse_model
from bricks.measure.protocol.models import (
    EvaluateModel,
    VerifyModel,
    WriteReference,
    WrittenReference,
)
from bricks.measure.worker.outputs import TOLERANCE, Arrays, Runs
from bricks.measure.worker.reference import model_data, write_reference
from bricks.measure.worker.runtime import WorkerRuntime
from bricks.measure.worker.verify import verify_model, verify_program
from bricks.samples.evaluation import (
    Cells,
    DirectionalDerivative,
    Divergence,
    DivergentNode,
    Evaluation,
    Verification,
    block_maxima,
    cells_of,
    compared_output,
    error_norms,
)
from bricks.units.facts import Missing


class EvaluationRequests:
    """Evaluates with the backend of ``runtime``; its seed determines synthetic data."""

    def __init__(self, runtime: WorkerRuntime) -> None:
        self._runtime = runtime

    def verify(self, request: VerifyModel) -> Verification:
        """Compare the chained bricks of a model with the model."""
        model = replace(_model(request), digest=request.plan.digest)
        bricks = {key: parse_model(skeleton) for key, skeleton in request.bricks.items()}
        if form_of(parse_model(model.skeleton)) is ModelForm.PROGRAMS:
            recorder = self._runtime.capable(Recorder)
            return verify_program(recorder, model=model, plan=request.plan, bricks=bricks)
        evaluator, seed = self._runtime.capable(Evaluator), self._runtime.settings.seed
        return verify_model(evaluator, seed=seed, model=model, plan=request.plan, bricks=bricks)

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
        if form_of(proto) is ModelForm.PROGRAMS:
            programs = self._runtime.capable(DoublePrecision)
            if request.file is None or request.names is None:
                return evaluate_program(
                    programs, proto, repeats=request.repeats, gradients=request.gradients
                )
            # It computes the same as an ONNX model, whose outputs have these names in its order.
            reference, runs = ReferenceValues.load(Path(request.file)), Runs()
            step = programs.in_double(proto)
            for _ in range(request.repeats):
                runs.add(dict(zip(request.names, step.run().values(), strict=True)))
            if (outputs := _outputs(request)) is not None:
                runs.save(outputs)
            return _evaluation(runs, reference.values)
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


def _outputs(request: EvaluateModel) -> Path | None:
    return None if request.outputs is None else Path(request.outputs)


def _model(request: VerifyModel | WriteReference) -> Model:
    """The model in a request, whose data files are in its folder."""
    graph = graph_of(parse_model(request.model))
    inputs = tuple((name, graph.types[name]) for name in graph.inputs)
    return Model(request.name, Path(request.folder), request.model, inputs, "")


def divergence_of(
    nodes: Sequence[onnx.NodeProto], expected: Arrays, actual: Arrays, tolerance: float | None
) -> Divergence:
    """Compare ``actual`` values with ``expected`` ones; the first of ``nodes`` that diverges."""
    errors = {
        name: relative_error(expected[name], value, tolerance)
        for name, value in actual.items()
        if name in expected
    }
    beyond = sum(error.beyond for error in errors.values())
    first = first_divergent(nodes, errors)
    if first is None:
        return Divergence(len(errors), beyond, None)
    node, value = first
    error = errors[value]
    divergent = DivergentNode(label(node), node.op_type, value, error.relative, error.reason)
    return Divergence(len(errors), beyond, divergent)


@dataclass(frozen=True, slots=True)
class ValueDeviation:
    """The deviation of a value from its reference; ``beyond`` if it exceeds the tolerance.

    ``relative`` is the greatest difference over the greatest magnitude; None with a ``reason``.
    """

    beyond: bool
    relative: float | None
    reason: str | None = None


def relative_error(
    expected: np.ndarray, actual: np.ndarray, tolerance: float | None = None
) -> ValueDeviation:
    """The deviation of a value; ``tolerance`` None is :data:`TOLERANCE` of its type."""
    norms = error_norms(expected, actual)
    if isinstance(norms, Missing):
        return ValueDeviation(True, None, norms.reason)
    allowed = TOLERANCE.get(actual.dtype.name, 0.0) if tolerance is None else tolerance
    if norms.linf_relative is None:  # the reference is zero
        return ValueDeviation(norms.linf > allowed, None, None)
    return ValueDeviation(norms.linf_relative > allowed, norms.linf_relative)


def first_divergent(
    nodes: Sequence[onnx.NodeProto], errors: Mapping[str, ValueDeviation]
) -> tuple[onnx.NodeProto, str] | None:
    """The first node with an output beyond tolerance and no such input, and the output's name.

    ``nodes`` are in topological order. Inputs without an error (weights, and inputs of the model)
    are the same on both sides.
    """
    for node in nodes:
        if any(name in errors and errors[name].beyond for name in node.input):
            continue
        for name in node.output:
            if name in errors and errors[name].beyond:
                return node, name
    return None


def evaluate_model(
    backend: Evaluator,
    proto: onnx.ModelProto,
    reference: ReferenceValues,
    *,
    repeats: int,
    tolerance: float | None = None,
    outputs: Path | None = None,
) -> Evaluation:
    """Run a model ``repeats`` times on ``backend``, and compare its outputs with ``reference``.

    ``outputs`` is a file (.npz) for the outputs of the first run. If the reference has the values
    of all nodes, the first node that diverges from it is searched for, by ``tolerance``, or by
    ``output_difference.TOLERANCE`` of a value's type.
    """
    names = [info.name for info in proto.graph.output]
    runs = Runs()
    for _ in range(repeats):
        tensors = backend.evaluate(proto, reference.weights, reference.inputs, optimize=True)
        runs.add(dict(zip(names, map(_tensor, names, tensors), strict=True)))
    evaluation = _evaluation(runs, reference.values)
    if outputs is not None:
        runs.save(outputs)
    further = [name for name in reference.values if name not in names]
    if not further:
        return evaluation
    try:
        exposed = onnx.ModelProto()
        exposed.CopyFrom(proto)
        exposed.graph.output.extend(onnx.ValueInfoProto(name=name) for name in further)
        every = [info.name for info in exposed.graph.output]
        computed = backend.evaluate(exposed, reference.weights, reference.inputs, optimize=True)
        # Only tensors are compared.
        pairs = zip(every, computed, strict=True)
        actual = {name: value for name, value in pairs if isinstance(value, np.ndarray)}
    except (BackendError, WorkerError) as error:
        reason = f"its values cannot be read one by one: {error}"
        return replace(evaluation, divergence_reason=reason)
    divergence = divergence_of(proto.graph.node, reference.values, actual, tolerance)
    return replace(evaluation, divergence=divergence)


def evaluate_program(
    backend: DoublePrecision, proto: onnx.ModelProto, *, repeats: int, gradients: bool
) -> Evaluation:
    """As :func:`evaluate_model`, for a recorded program; its reference is its step in double.

    With ``gradients``, gradients of the program in double are compared with finite differences.
    """
    step = backend.in_double(proto)
    runs = Runs()
    for _ in range(repeats):
        runs.add(step.run())
    try:
        evaluation = _evaluation(runs, step.reference())
    except BricksError as error:
        evaluation = replace(_evaluation(runs, {}), reference_reason=str(error))
    if not gradients:
        return evaluation
    try:
        derivatives = tuple(DirectionalDerivative(**facts) for facts in step.gradients())
    except BricksError as error:
        return replace(evaluation, derivatives_reason=str(error))
    return replace(evaluation, derivatives=derivatives)


def _evaluation(runs: Runs, expected: Arrays) -> Evaluation:
    outputs = tuple(
        compared_output(name, expected.get(name), actual, _variances(runs, name))
        for name, actual in runs.first.items()
    )
    return Evaluation(outputs, runs.count, runs.distinct, runs.max_variance)


def _variances(runs: Runs, name: str) -> Cells:
    """The greatest variances of an output; empty where all runs are equal."""
    variance = runs.variance(name) if runs.distinct > 1 else None
    return () if variance is None else cells_of(block_maxima(variance))


def _tensor(name: str, value: Any) -> np.ndarray:
    if not isinstance(value, np.ndarray):
        raise BackendError(f"output {name!r} is no tensor: nothing can be compared")
    return value
