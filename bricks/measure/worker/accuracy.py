"""Evaluates a model several times, and compares its outputs with its reference in double.

Runs in the worker process of the runtime in question. Only norms and a heat map of large tensors
leave it. Must not know how the reference was computed, nor which figures are acceptable.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from bricks.backends.base import Evaluator
from bricks.backends.programs import DoublePrecision, DoubleStep
from bricks.errors import BackendError, BricksError, WorkerError
from bricks.graph.reference_values import ReferenceValues
from bricks.measure.worker.divergence import divergence_of
from bricks.measure.worker.repeated_runs import Arrays, Runs
from bricks.samples.error_norms import block_maxima
from bricks.samples.evaluation import (
    Cells,
    DirectionalDerivative,
    Evaluation,
    cells_of,
    compared_output,
)


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
        actual = _values(backend, proto, reference, further)
    except (BackendError, WorkerError) as error:
        reason = f"its values cannot be read one by one: {error}"
        return replace(evaluation, divergence_reason=reason)
    divergence = divergence_of(proto.graph.node, reference.values, actual, tolerance)
    return replace(evaluation, divergence=divergence)


def evaluate_counterpart(
    backend: DoublePrecision,
    proto: onnx.ModelProto,
    reference: ReferenceValues,
    names: Sequence[str],
    *,
    repeats: int,
    outputs: Path | None = None,
) -> Evaluation:
    """As :func:`evaluate_model`, for a recorded program that computes the same as an ONNX model.

    ``names`` are the names of the model's outputs, in the order of the program's outputs.
    """
    step = backend.in_double(proto)
    runs = Runs()
    for _ in range(repeats):
        runs.add(dict(zip(names, step.run().values(), strict=True)))
    if outputs is not None:
        runs.save(outputs)
    return _evaluation(runs, reference.values)


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
    return _with_derivatives(evaluation, step) if gradients else evaluation


def _with_derivatives(evaluation: Evaluation, step: DoubleStep) -> Evaluation:
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


def _values(
    backend: Evaluator, proto: onnx.ModelProto, reference: ReferenceValues, further: Sequence[str]
) -> dict[str, np.ndarray]:
    """The outputs and the values called ``further`` in a run; only tensors among them."""
    exposed = onnx.ModelProto()
    exposed.CopyFrom(proto)
    exposed.graph.output.extend(onnx.ValueInfoProto(name=name) for name in further)
    names = [info.name for info in exposed.graph.output]
    computed = backend.evaluate(exposed, reference.weights, reference.inputs, optimize=True)
    pairs = zip(names, computed, strict=True)
    return {name: value for name, value in pairs if isinstance(value, np.ndarray)}


def _tensor(name: str, value: Any) -> np.ndarray:
    if not isinstance(value, np.ndarray):
        raise BackendError(f"output {name!r} is no tensor: nothing can be compared")
    return value
