"""Computes the reference of a model's accuracy: its values in double, by the ONNX specification.

The model is rewritten so that all floating-point numbers are doubles, and run by the evaluator that
the onnx package has for reference. Weights, inputs and values go to a file, so that every runtime
computes with the same numbers. Data that the model's files lack are synthetic, and follow from the
seed and the names: so every process that checks a model computes with the same numbers. Must not
know which runtime is compared with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from bricks.errors import BackendError, BricksError, first_line
from bricks.graph.input_values import ReferenceValues, feeds
from bricks.graph.model import Model
from bricks.graph.synthesis import Pool
from bricks.graph.topology import label, used_values
from bricks.graph.view import graph_of, parse_model, without_values
from bricks.graph.weights import has_own_weights, own_weights
from bricks.measure.worker.double_model import in_double
from bricks.operators.integer_ranges import integer_ranges

# More bytes of values than this are not kept to compare them.
MAX_BYTES = 1 << 31


def write_reference(data: ModelData, file: Path, *, every: bool, values: bool = True) -> str | None:
    """Write the reference of a model to ``file``; the reason why it has no values, or None.

    With ``every``, it has the outputs of all nodes, in order, else those of the model; without
    ``values``, none. Raises
    :class:`BackendError` for inputs that are not tensors of numbers, which no file can hold.
    """
    for name, value in data.inputs.items():
        if not isinstance(value, np.ndarray) or value.dtype.kind not in "biufc":
            raise BackendError(f"input {name!r} is no tensor of numbers: nothing can be compared")
    computed: Mapping[str, np.ndarray] = {}
    reason = None
    try:
        if values:
            proto = in_double(data.proto)
            found = _evaluated(proto, data)
            _refuse_narrow(proto, found)
            names = _read_values(proto) if every else [info.name for info in proto.graph.output]
            kept = {
                name: value for name in names if isinstance(value := found.get(name), np.ndarray)
            }
            size_bytes = sum(value.nbytes for value in kept.values())
            if size_bytes > MAX_BYTES:
                raise BackendError(
                    f"its values take {size_bytes >> 20} MiB in double, more than"
                    f" {MAX_BYTES >> 20} MiB: give a smaller batch"
                )
            computed = kept
    except BricksError as error:
        reason = str(error)
    ReferenceValues(data.inputs, data.weights, computed).save(file)
    return reason


def _evaluated(proto: onnx.ModelProto, data: ModelData) -> Mapping[str, Any]:
    """Evaluate a model on its data in double; all values by name."""
    # Imported here: the evaluator takes a second, and few requests need it.
    from onnx.reference import ReferenceEvaluator

    from bricks.measure.worker.reference_operators import FURTHER_OPERATORS

    feeds = {
        name: value.astype(np.float64) if value.dtype.kind == "f" else value
        for name, value in {**data.inputs, **data.weights}.items()
    }
    try:
        with np.errstate(all="ignore"):
            evaluator = ReferenceEvaluator(proto, new_ops=[*FURTHER_OPERATORS])
            computed = evaluator.run(None, feeds, intermediate=True)
    except MemoryError:
        raise
    except Exception as exc:  # the evaluator's errors have no common base class
        raise BackendError(f"onnx's reference cannot run it: {first_line(exc)}") from exc
    assert isinstance(computed, dict)
    return computed


def _read_values(proto: onnx.ModelProto) -> list[str]:
    """The names of all values that a node reads, and of the outputs, in order.

    Optional outputs that no node reads would be computed only for the comparison.
    """
    read = {name for node in proto.graph.node for name in used_values(node)}
    made = [name for node in proto.graph.node for name in node.output if name in read]
    return list(dict.fromkeys((*made, *(info.name for info in proto.graph.output))))


def _refuse_narrow(proto: onnx.ModelProto, computed: Mapping[str, Any]) -> None:
    """Raise for the first node whose reference computes in fewer digits than a double has."""
    for node in proto.graph.node:
        for name in node.output:
            value = computed.get(name)
            if isinstance(value, np.ndarray) and value.dtype.kind == "f" and value.itemsize < 8:
                raise BackendError(f"onnx's reference computes {label(node)} as {value.dtype}")


@dataclass(frozen=True, slots=True)
class ModelData:
    """A model with its data by name; ``own_weights`` is whether weights are from its files."""

    proto: onnx.ModelProto
    weights: Mapping[str, np.ndarray]
    inputs: Mapping[str, Any]
    own_weights: bool


def model_data(model: Model, seed: int) -> ModelData:
    """The data to check ``model`` with; :class:`~bricks.errors.ModelError` if it has none."""
    proto = parse_model(model.skeleton)
    own = has_own_weights(model)
    if own:
        weights = own_weights(model)
    else:
        types, pool = without_values(proto), _pool(seed)
        ranges = integer_ranges(graph_of(proto), [n for n, t in types.items() if not t.floating])
        weights = {
            name: pool.weight(name, type_, ranges.get(name)) for name, type_ in types.items()
        }
    graph = graph_of(proto)
    makers = feeds(proto, graph, integer_ranges(graph, graph.inputs), _pool(seed))
    return ModelData(proto, weights, {name: make() for name, make in makers.items()}, own)


@cache
def _pool(seed: int) -> Pool:
    """The pool, kept: drawing its numbers takes longer than checking a small model."""
    return Pool(seed)
