"""A model, an ONNX file with concrete input shapes and its weights on disk; and a graph to be cut.

A graph has nodes in topological order, and the concrete type of every value. Its nodes are the
model file's, or the nodes that a runtime executes after its own optimisation. Neither this module
nor cutting, identity and plans may know which. Must not know how a model is read, nor runtimes or
bricks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from bricks.graph.types import TensorType

if TYPE_CHECKING:
    import onnx

    from bricks.graph.types import ValueType


@dataclass(frozen=True, slots=True)
class Model:
    """An ONNX model or recorded program without its weights.

    ``skeleton`` is the serialised ``ModelProto``: input shapes concrete, local functions inlined,
    ``Constant`` nodes turned into initializers, and and every large payload replaced by a
    reference (``data_location == EXTERNAL``; location relative to
    ``folder``, offset and length in bytes), even if the file held it inline. Its metadata holds the
    values that a user specified for inputs (:mod:`bricks.graph.model_metadata`).
    ``digest`` (``m1-…``) covers the skeleton without its references: two files that differ only in
    the values or the location of their weights have one digest. ``read_s`` is the wall time in
    seconds that reading took. ``rebatched`` says that the requested batch size replaced a first
    dimension that the file fixes, so other fixed dimensions in the file may contradict it.
    """

    name: str
    folder: Path
    skeleton: bytes
    inputs: tuple[tuple[str, ValueType], ...]
    digest: str
    read_s: float = field(default=0.0, compare=False)
    rebatched: bool = field(default=False, compare=False)

    @property
    def empty_inputs(self) -> tuple[str, ...]:
        """Names of the inputs without elements: tensors with a dimension of 0."""
        return tuple(n for n, t in self.inputs if isinstance(t, TensorType) and not t.elements)


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
