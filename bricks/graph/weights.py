"""A model's own weights, read from the files that its skeleton refers to.

Used if values matter: to check outputs, to count denormals, for operators whose work depends on
data. Must not know its users.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

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
    store_inline,
    type_of,
)
from bricks.graph.view import without_values

if TYPE_CHECKING:
    import numpy as np

# Most bytes of weights in a ModelProto; protobuf's limit is twice as large.
_MOST_BYTES = 1 << 30


def own_weights(model: Model) -> dict[str, np.ndarray]:
    """Read the external values of the skeleton, by the initializer's name.

    Arrays have the form of :class:`bricks.graph.synthesis.Pool`, and are copies in memory. Raises
    :class:`ModelError` for data files that are missing or truncated.
    """
    graph = onnx.ModelProto.FromString(model.skeleton).graph
    external = [tensor for tensor in graph.initializer if is_referenced(tensor)]
    try:
        _check_files(model, external)
        return {tensor.name: _values(model, tensor) for tensor in external}
    except PayloadError as exc:
        raise ModelError(f"{model.name}: {exc}") from exc


def has_own_weights(model: Model) -> bool:
    """Whether the files of all external values of ``model`` exist and are long enough."""
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


def with_own_weights(proto: onnx.ModelProto, folder: Path) -> onnx.ModelProto:
    """Return a copy of ``proto`` with its own weights, whose files are in ``folder``.

    Returns ``proto`` itself if a file is missing, or if the weights exceed 1 GiB.
    """
    model = Model(proto.graph.name, folder, proto.SerializeToString(), (), "")
    size_bytes = sum(t.size_bytes for t in without_values(proto).values() if t.dtype != "STRING")
    if size_bytes > _MOST_BYTES or not has_own_weights(model):
        return proto
    return with_values(proto, own_weights(model))


def with_values(proto: onnx.ModelProto, weights: Mapping[str, np.ndarray]) -> onnx.ModelProto:
    """Return a copy of ``proto`` with the values of ``weights``, by name."""
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    for tensor in copy.graph.initializer:
        if tensor.name in weights:
            store_inline(tensor, weights[tensor.name])
    return copy


def _check_files(model: Model, tensors: list[onnx.TensorProto]) -> None:
    """Raise before reading if a data file is missing; the message counts the missing weights."""
    locations = [reference(tensor).location for tensor in tensors]
    for location in dict.fromkeys(locations):
        if locate(model.folder, location) is None:
            raise ModelError(
                f"{model.name}: data file '{location}' is missing in {model.folder}:"
                f" {locations.count(location)} weights lack their values"
            )


def _values(model: Model, tensor: onnx.TensorProto) -> np.ndarray:
    values = read_referenced(model.folder, tensor)
    if values is None:  # deleted since the check
        raise ModelError(f"{model.name}: the data file of '{tensor.name}' has disappeared")
    return values
