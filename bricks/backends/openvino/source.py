"""The source graph of a model that a worker was sent, with the type of every value.

Must not know what OpenVINO makes of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from bricks.errors import BackendError
from bricks.graph.containers import ValueType
from bricks.graph.graph import Graph
from bricks.graph.model import Model
from bricks.graph.model_metadata import held_values, natural
from bricks.graph.source import source_graph
from bricks.graph.tensor import TensorType
from bricks.graph.view import graph_of


def typed(proto: onnx.ModelProto, known: Mapping[str, ValueType] | None = None) -> Graph:
    """The graph of ``proto``; raises :class:`~bricks.graph.source.OpenShapes` for open types.

    ``known`` are types that were observed.
    """
    stated = graph_of(proto)
    inputs = tuple((name, stated.types[name]) for name in stated.inputs)
    held = held_values(proto)
    fixed = onnx.ModelProto()
    fixed.CopyFrom(proto)
    for name, type_ in inputs:
        if name in held and isinstance(type_, TensorType):  # shapes may follow from it
            values = np.asarray(natural(held[name], type_))
            fixed.graph.initializer.append(numpy_helper.from_array(values, name))
    found = source_graph(Model("graph", Path(), fixed.SerializeToString(), inputs, ""), known)
    return replace(found, initializers=stated.initializers)


def tensor_type(types: Mapping[str, ValueType], name: str) -> TensorType:
    """The type of a value that must be a tensor."""
    type_ = types.get(name)
    if not isinstance(type_, TensorType):
        raise BackendError(
            f"OpenVINO takes tensors alone: '{name}' is none; choose another --runtime"
        )
    return type_
