"""Read the values that later stages need: steering values, and small tensors.

All other weights stay on disk. Must not know runtimes.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bricks.errors import ModelError
from bricks.graph.payload import (
    is_referenced,
    numpy_dtype,
    read_referenced,
    reference,
    storage_shape,
    store_inline,
    tensors_of,
    type_of,
)
from bricks.graph.topology import all_nodes
from bricks.operators.steering import (
    MOST_CHANNELS,
    SMALL,
    quantization_parameters,
    steered_values,
    steering_inputs,
    value_counts,
)

if TYPE_CHECKING:
    import onnx

    from bricks.graph.tensor import TensorType

FEW_FLOATS = 8  # such as the bounds of a clip: read if available, because fusions inspect them


def load_steering_values(graph: onnx.GraphProto, folder: Path, file: str) -> None:
    """Read steering values and small tensors from the files into the skeleton."""
    inputs = [name for node in graph.node for name in steering_inputs(node)]
    types = {tensor.name: type_of(tensor) for tensor in graph.initializer}
    steering = set(steered_values(inputs, types))
    quantizing = quantization_parameters(all_nodes(graph))
    for node in all_nodes(graph):
        for tensor in tensors_of(node):
            if is_referenced(tensor):
                _load_attribute(tensor, folder, file)
    for tensor in graph.initializer:
        type = type_of(tensor)
        if not is_referenced(tensor) or type.dtype == "STRING":
            continue
        counts = value_counts(type, steering=tensor.name in steering)
        limit = FEW_FLOATS if type.floating and not counts else SMALL
        if tensor.name in quantizing:
            limit = MOST_CHANNELS
        if type.elements > limit:
            continue
        values = read_referenced(folder, tensor) if type.elements else _no_elements(type)
        if values is not None:
            store_inline(tensor, values)
        elif counts:
            raise ModelError(
                f"{file}: initializer '{tensor.name}' may steer shapes or the choice of an"
                f" algorithm, but its data file '{reference(tensor).location}' is missing:"
                " put it beside the model"
            )


def _load_attribute(tensor: onnx.TensorProto, folder: Path, file: str) -> None:
    """Read an attribute's tensor into the skeleton: a runtime needs it to create the operator."""
    values = read_referenced(folder, tensor)
    if values is None:
        raise ModelError(
            f"{file}: tensor '{tensor.name}' in an attribute has its data in"
            f" '{reference(tensor).location}', which is missing: put it beside the model"
        )
    store_inline(tensor, values)


def _no_elements(type: TensorType) -> np.ndarray:
    return np.empty(storage_shape(type), numpy_dtype(type.dtype))
