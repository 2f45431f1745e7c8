"""Evaluates a model several times, and compares what it computes with its reference in double.

Runs in the worker process of the runtime in question. Of large tensors only norms and a heat map
leave it. Must not know how the reference was made, nor what the figures are held against.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from bricks.backends.base import Evaluator
from bricks.backends.programs import InDouble
from bricks.errors import BackendError, BricksError, WorkerError
from bricks.graph.reference_values import Reference
from bricks.graph.topology import label
from bricks.measure.worker.output_difference import TOLERANCE
from bricks.samples.error_norms import (
    ErrorNorms,
    Incomparable,
    block_maxima,
    error_norms,
    heat_map,
)

Arrays = Mapping[str, np.ndarray]
Facts = dict[str, Any]


@dataclass(slots=True)
class Runs:
    """Outputs of repeated runs: those of the first, and how the others differ from it.

    ``distinct`` counts runs that differ from each other in any bit. ``max_variance`` is the
    greatest variance of an element over the runs, None if not all runs can be compared.
    """

    first: dict[str, np.ndarray] = field(default_factory=dict)
    count: int = 0
    _digests: set[bytes] = field(default_factory=set)
    _moments: dict[str, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)
    _alike: bool = True

    def add(self, outputs: Arrays) -> None:
        """Add a run."""
        self.count += 1
        digest = hashlib.sha256()
        for array in outputs.values():
            digest.update(np.ascontiguousarray(array).tobytes())
        self._digests.add(digest.digest())
        if not self.first:
            self.first = {name: array.copy() for name, array in outputs.items()}
        for name, array in outputs.items():
            if array.dtype.kind not in "biuf":
                continue
            value = array.astype(np.float64)
            mean, square = self._moments.get(name, (np.zeros_like(value), np.zeros_like(value)))
            if mean.shape != value.shape:
                self._alike = False
                continue
            with np.errstate(invalid="ignore"):  # of infinities
                step = value - mean
                mean = mean + step / self.count
                self._moments[name] = mean, square + step * (value - mean)

    @property
    def distinct(self) -> int:
        """How many different results the runs gave, bit by bit."""
        return len(self._digests)

    def variance(self, name: str) -> np.ndarray | None:
        """The variance of each element of an output over the runs; None if there is none."""
        if name not in self._moments or not self._alike:
            return None
        found: np.ndarray = self._moments[name][1] / self.count
        return found if np.isfinite(found).all() else None

    @property
    def max_variance(self) -> float | None:
        """See the class."""
        if self.distinct <= 1:
            return 0.0
        found = [self.variance(name) for name in self._moments]
        known = [float(each.max(initial=0.0)) for each in found if each is not None]
        return max(known) if known and len(known) == len(found) else None

    def to_json(self) -> Facts:
        """What a worker answers of them."""
        return {
            "repeats": self.count, "distinct": self.distinct, "max_variance": self.max_variance,
        }  # fmt: skip


def evaluate_model(
    backend: Evaluator,
    proto: onnx.ModelProto,
    reference: Reference,
    *,
    repeats: int,
    tolerance: float | None = None,
    outputs: Path | None = None,
) -> Facts:
    """What ``backend`` computes of a model, ``repeats`` times, beside its ``reference``.

    ``outputs`` is a file (.npz) for those of the first run. If the reference has the values of all
    nodes, the first node is looked for that parts from it (see :func:`first_parting`); without a
    ``tolerance``, that of :data:`TOLERANCE` for a value's type holds.
    """
    names = [info.name for info in proto.graph.output]
    runs = Runs()
    for _ in range(repeats):
        found = backend.evaluate(proto, reference.weights, reference.inputs, optimize=True)
        runs.add(dict(zip(names, map(_tensor, names, found), strict=True)))
    facts = {**_compared(runs, reference.values), "parting": None}
    if outputs is not None:
        _save(outputs, runs)
    further = [name for name in reference.values if name not in names]
    if further:
        facts["parting"] = _parting(backend, proto, reference, further, tolerance)
    return facts


def _save(file: Path, runs: Runs) -> None:
    """Write the outputs of the first run, for :func:`outputs_in`."""
    held: Facts = {f"value{number}": array for number, array in enumerate(runs.first.values())}
    np.savez(file, **held)


def evaluate_counterpart(
    backend: InDouble,
    proto: onnx.ModelProto,
    reference: Reference,
    names: Sequence[str],
    *,
    repeats: int,
    outputs: Path | None = None,
) -> Facts:
    """As :func:`evaluate_model`, of a recorded program that computes what an ONNX model does.

    ``names`` are those of the model's outputs, in the order of the program's.
    """
    step = backend.in_double(proto)
    runs = Runs()
    for _ in range(repeats):
        runs.add(dict(zip(names, step.run().values(), strict=True)))
    if outputs is not None:
        _save(outputs, runs)
    return {**_compared(runs, reference.values), "parting": None}


def evaluate_program(
    backend: InDouble, proto: onnx.ModelProto, *, repeats: int, gradients: bool
) -> Facts:
    """As :func:`evaluate_model` of a recorded program, beside the same step in double.

    With ``gradients``, those of the program in double are held against finite differences.
    """
    step = backend.in_double(proto)
    runs = Runs()
    for _ in range(repeats):
        runs.add(step.run())
    values, reason = _or_reason(step.reference, {})
    facts = {**_compared(runs, values), "parting": None, "reason": reason}
    if gradients:
        found, why = _or_reason(step.gradients, [])
        facts["gradients"] = {"reason": why, "checked": list(found)}
    return facts


def _or_reason(ask: Callable[[], Any], otherwise: Any) -> tuple[Any, str | None]:
    try:
        return ask(), None
    except BricksError as error:
        return otherwise, str(error)


def _compared(runs: Runs, expected: Arrays) -> Facts:
    rows = []
    for name, actual in runs.first.items():
        facts: Facts = {
            "output": name, "shape": list(actual.shape), "dtype": str(actual.dtype),
            "norms": None, "reason": None, "heat_map": [], "variance_map": [],
        }  # fmt: skip
        variance = runs.variance(name) if runs.distinct > 1 else None
        if variance is not None:
            facts["variance_map"] = block_maxima(variance)
        if name in expected:
            norms = error_norms(expected[name], actual)
            if isinstance(norms, ErrorNorms):
                facts["norms"] = norms.to_json()
                facts["heat_map"] = heat_map(expected[name], actual)
            else:
                facts["reason"] = norms.reason
        rows.append(facts)
    return {"outputs": rows, **runs.to_json()}


def _parting(
    backend: Evaluator,
    proto: onnx.ModelProto,
    reference: Reference,
    further: Sequence[str],
    tolerance: float | None,
) -> Facts:
    """Every value beside its reference, and the first node that parts from it."""
    exposed = onnx.ModelProto()
    exposed.CopyFrom(proto)
    exposed.graph.output.extend(onnx.ValueInfoProto(name=name) for name in further)
    names = [info.name for info in exposed.graph.output]
    try:
        found = backend.evaluate(exposed, reference.weights, reference.inputs, optimize=True)
    except (BackendError, WorkerError) as error:
        return {"reason": f"its values cannot be read one by one: {error}", "first": None}
    errors = {
        name: relative_error(reference.values[name], actual, tolerance)
        for name, value in zip(names, found, strict=True)
        if name in reference.values and isinstance(actual := value, np.ndarray)
    }
    first = first_parting(proto.graph.node, errors)
    return {
        "reason": None,
        "compared": len(errors),
        "beyond": sum(error.beyond for error in errors.values()),
        "first": None if first is None else {
            "node": label(first[0]),
            "operator": first[0].op_type,
            "value": first[1],
            "linf_relative": errors[first[1]].relative,
            "reason": errors[first[1]].reason,
        },
    }  # fmt: skip


@dataclass(frozen=True, slots=True)
class ValueDeviation:
    """How far a value is from its reference, and whether that is ``beyond`` what is allowed.

    ``relative`` is the greatest difference over the greatest magnitude; None with a ``reason``.
    """

    beyond: bool
    relative: float | None
    reason: str | None = None


def relative_error(
    expected: np.ndarray, actual: np.ndarray, tolerance: float | None = None
) -> ValueDeviation:
    """The error of a value; ``tolerance`` is by default that of its type in :data:`TOLERANCE`."""
    norms = error_norms(expected, actual)
    if isinstance(norms, Incomparable):
        return ValueDeviation(True, None, norms.reason)
    allowed = TOLERANCE.get(actual.dtype.name, 0.0) if tolerance is None else tolerance
    if norms.linf_relative is None:  # the reference is zero
        return ValueDeviation(norms.linf > allowed, None, None)
    return ValueDeviation(norms.linf_relative > allowed, norms.linf_relative)


def first_parting(
    nodes: Sequence[onnx.NodeProto], errors: Mapping[str, ValueDeviation]
) -> tuple[onnx.NodeProto, str] | None:
    """The first node with an output beyond what is allowed whose inputs are not, and that output.

    ``nodes`` are in topological order. Inputs of which no error is known (weights, and inputs of
    the model) are the same on both sides.
    """
    for node in nodes:
        if any(name in errors and errors[name].beyond for name in node.input):
            continue
        for name in node.output:
            if name in errors and errors[name].beyond:
                return node, name
    return None


def _tensor(name: str, value: Any) -> np.ndarray:
    if not isinstance(value, np.ndarray):
        raise BackendError(f"output {name!r} is no tensor: nothing can be compared")
    return value


def outputs_in(file: Path) -> Iterator[np.ndarray]:
    """The outputs that :func:`evaluate_model` wrote to ``file``, in the model's order."""
    with np.load(file, allow_pickle=False) as held:
        for number in range(len(held.files)):
            yield held[f"value{number}"]
