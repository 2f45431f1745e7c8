"""A model's own weights, read from where its skeleton refers to.

For when the values matter: checking outputs, denormals, operators whose work depends on data. Must
not know who wants them.
"""

from __future__ import annotations

import numpy as np
import onnx

from bricks.errors import ModelError
from bricks.graph.model import Model
from bricks.graph.payload import (
    PayloadError,
    all_tensors,
    is_referenced,
    locate,
    read_referenced,
    reference,
    type_of,
)


def own_weights(model: Model) -> dict[str, np.ndarray]:
    """The values that the skeleton refers to instead of holding them, by the initializer's name.

    Arrays are as :class:`bricks.graph.synthesis.Pool` makes them, each a copy in memory. Raises
    :class:`ModelError` for data files that are missing or cut short.
    """
    graph = onnx.ModelProto.FromString(model.skeleton).graph
    wanted = [tensor for tensor in graph.initializer if is_referenced(tensor)]
    try:
        _check_files(model, wanted)
        return {tensor.name: _values(model, tensor) for tensor in wanted}
    except PayloadError as exc:
        raise ModelError(f"{model.name}: {exc}") from exc


def has_own_weights(model: Model) -> bool:
    """Whether every value that the skeleton of ``model`` refers to is really there."""
    graph = onnx.ModelProto.FromString(model.skeleton).graph
    try:
        for tensor in all_tensors(graph):
            if is_referenced(tensor):
                ref = reference(tensor)
                path = locate(model.folder, ref.location)
                size = type_of(tensor).size_bytes
                if path is None or path.stat().st_size < ref.offset + size:
                    return False
    except (PayloadError, OSError, KeyError):
        return False
    return True


def _check_files(model: Model, tensors: list[onnx.TensorProto]) -> None:
    """Raise before anything is read if a data file is missing, saying how much lacks with it."""
    locations = [reference(tensor).location for tensor in tensors]
    for location in dict.fromkeys(locations):
        if locate(model.folder, location) is None:
            raise ModelError(
                f"{model.name}: data file '{location}' is missing in {model.folder}:"
                f" {locations.count(location)} weights lack their values"
            )


def _values(model: Model, tensor: onnx.TensorProto) -> np.ndarray:
    values = read_referenced(model.folder, tensor)
    if values is None:  # it was there a moment ago
        raise ModelError(f"{model.name}: the data file of '{tensor.name}' has disappeared")
    return values
