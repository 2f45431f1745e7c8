"""A graph to be cut: nodes in topological order, and the concrete type of every value.

It comes either from the source model on disk, or from the graph that a runtime executes after its
own optimisation. It must not know which, and neither must cutting, identity and plans.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import onnx

from bricks.graph.containers import ValueType


@dataclass(frozen=True, slots=True)
class Graph:
    """Nodes, with everything that is needed to run any part of them.

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
