"""A graph ready to be cut: nodes in topological order, and the concrete type of every value.

Two places make one: the source model read from disk, and the graph that a runtime executes after
its own optimisation. What follows (cutting, identity, plans) does not know which it has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import onnx

from bricks.graph.containers import ValueType


@dataclass(frozen=True, slots=True)
class Graph:
    """Nodes with all that is needed to run any part of them.

    ``initializers`` are constants by name; those whose values are not held (weights) have
    ``data_location == EXTERNAL``. ``types`` holds every value's type: inputs, initializers and
    node outputs.
    """

    nodes: tuple[onnx.NodeProto, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    initializers: Mapping[str, onnx.TensorProto]
    types: Mapping[str, ValueType]
    opsets: Mapping[str, int]
    ir_version: int
