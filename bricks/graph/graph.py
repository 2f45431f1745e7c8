"""A graph to be cut: nodes in topological order, and the concrete type of every value.

Its nodes are the model file's, or the nodes that a runtime executes after its own optimisation.
Neither this module nor cutting, identity and plans may know which.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx

    from bricks.graph.containers import ValueType


@dataclass(frozen=True, slots=True)
class Graph:
    """Nodes, with the constants, types and opsets that are needed to run any part of them.

    ``initializers`` are constants by name; weights, without values, have
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
