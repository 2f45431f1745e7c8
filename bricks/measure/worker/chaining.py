"""Runs the bricks of a plan one after the other, each on the outputs of the bricks before it.

Must not know what the results are compared with.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from bricks.backends.base import Evaluator
from bricks.decompose.granularity import EXECUTED
from bricks.decompose.identity import Cutter, Piece
from bricks.decompose.occurrence import Occurrence
from bricks.decompose.plan import Plan
from bricks.graph.payload import is_referenced, read_inline, type_of, unpacked
from bricks.graph.tensor import ELEMENT_BITS
from bricks.graph.view import without_shapes, without_values

# Bricks without weights, by key.
Bricks = Mapping[str, onnx.ModelProto]


def chain(
    backend: Evaluator,
    plan: Plan,
    bricks: Bricks,
    weights: Sequence[Sequence[np.ndarray]],
    inputs: Mapping[str, Any],
) -> dict[int, Any]:
    """The plan's outputs by value number, computed brick by brick.

    ``weights`` has each occurrence's weights in its brick's order. Each occurrence runs the brick
    of its key, on the inputs that the plan names: nothing else connects the pieces. A brick that
    overlaps with the brick before it computes the shared layer again. An input of the shared layer
    may be hidden in the brick before, which gets it as a further output here.
    """
    readers = Counter(value for o in plan.occurrences for value in o.inputs)
    readers.update(plan.outputs)
    values = dict(zip(plan.inputs, inputs.values(), strict=True))
    for occurrence, arrays in zip(plan.occurrences, weights, strict=True):
        proto = without_shapes(_open(bricks[occurrence.brick], occurrence))
        inputs_of = [values[number] for number in occurrence.inputs]
        results = _run(backend, proto, arrays, inputs_of, optimize=plan.granularity != EXECUTED)
        values.update(zip(occurrence.made, results, strict=True))
        readers.subtract(occurrence.inputs)
        for number in (*occurrence.inputs, *occurrence.made):
            if not readers[number]:
                values.pop(number, None)
    return {number: values[number] for number in plan.outputs if number in values}


def _run(
    backend: Evaluator,
    proto: onnx.ModelProto,
    weights: Sequence[np.ndarray],
    inputs: Sequence[Any],
    *,
    optimize: bool,
) -> Sequence[Any]:
    """Run a brick; its outputs in order."""
    _set_input_shapes(proto, inputs)
    by_name = dict(zip(without_values(proto), weights, strict=True))
    feeds = dict(zip((info.name for info in proto.graph.input), inputs, strict=True))
    return backend.evaluate(proto, by_name, feeds, optimize=optimize)


def _open(brick: onnx.ModelProto, occurrence: Occurrence) -> onnx.ModelProto:
    """``brick``, with the hidden values that overlapping bricks need as further outputs."""
    if not occurrence.hidden:
        return brick
    copy = onnx.ModelProto()
    copy.CopyFrom(brick)
    copy.graph.output.extend(onnx.ValueInfoProto(name=f"v{k}") for k, _ in occurrence.hidden)
    return copy


def _set_input_shapes(proto: onnx.ModelProto, inputs: Sequence[Any]) -> None:
    """Set the shapes of a brick's inputs: those that depend on data are others in the plan."""
    for info, array in zip(proto.graph.input, inputs, strict=True):
        if not info.type.tensor_type.HasField("shape"):
            continue
        shape = info.type.tensor_type.shape
        del shape.dim[:]
        for size in array.shape:
            shape.dim.add().dim_value = size


def weights_of_pieces(
    cutter: Cutter, pieces: Sequence[Piece], arrays: Mapping[str, np.ndarray]
) -> list[list[np.ndarray]]:
    """The weights of each piece, in its brick's order, out of ``arrays`` by name."""
    constants = cutter.graph.initializers
    return [[array_of(constants[name], name, arrays) for name in piece.weights] for piece in pieces]


def array_of(tensor: onnx.TensorProto, name: str, weights: Mapping[str, np.ndarray]) -> np.ndarray:
    """The values of a constant called ``name``, from ``weights`` if it only refers to them.

    Numbers are in their storage type, as weights are: elements of fewer than 8 bits are packed.
    """
    if is_referenced(tensor):
        return weights[name]
    strings = tensor.data_type == onnx.TensorProto.STRING
    return numpy_helper.to_array(tensor) if strings else read_inline(tensor)


def output_of(tensor: onnx.TensorProto, name: str, weights: Mapping[str, np.ndarray]) -> np.ndarray:
    """The same values as a run returns them: packed elements each as a value of ml_dtypes' type."""
    values, type_ = array_of(tensor, name, weights), type_of(tensor)
    return unpacked(values, type_) if ELEMENT_BITS.get(type_.dtype, 8) < 8 else values
