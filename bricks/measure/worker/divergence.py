"""Finds the first node of a model whose outputs diverge from their reference.

Must not know how outputs or references were computed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx

from bricks.graph.topology import label
from bricks.measure.worker.output_difference import TOLERANCE
from bricks.samples.error_norms import error_norms
from bricks.samples.evaluation import Divergence, DivergentNode
from bricks.units.facts import Missing

Arrays = Mapping[str, np.ndarray]


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
