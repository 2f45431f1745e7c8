"""Sketches of what calls read in the recorded step, where their time depends on that.

See ``graph.call_values`` and ``graph.sketch``. Must not know how calls are recorded.
"""

from __future__ import annotations

from collections.abc import Mapping

import onnx
import torch

from bricks.backends.torch.values import (
    ONNX_DTYPES,
    bounds_of,
    numbers_of,
    synthetic,
    tensor_types,
)
from bricks.graph.call_values import decides, dependent_arguments
from bricks.graph.sketch import Sketch
from bricks.graph.tensor import TensorType
from bricks.graph.view import graph_of


class SketchedValues:
    """The sketches of values that calls read, by the names of the values."""

    def __init__(self) -> None:
        self._traits: dict[str, frozenset[str]] = {}
        self._sketches: dict[str, Sketch] = {}

    def read_by(self, node: onnx.NodeProto, tensors: Mapping[str, torch.Tensor]) -> None:
        """``node`` is about to be called with ``tensors``, by the names of its inputs."""
        if not decides(f"{node.domain}.{node.op_type}"):
            return
        types = {
            name: TensorType(ONNX_DTYPES[t.dtype], tuple(t.shape)) for name, t in tensors.items()
        }
        for name, traits in dependent_arguments(node, types):
            # A value has one sketch, of all that counts of it to any call.
            known = self._traits.get(name, frozenset())
            if not known.issuperset(traits):
                self._traits[name] = known.union(traits)
                self._sketches[name] = Sketch.of(numbers_of(tensors[name]), self._traits[name])

    def unlike_synthetic(self, program: onnx.ModelProto) -> dict[str, Sketch]:
        """What of them differs from what bricks of the recorded ``program`` read anyway."""
        types = tensor_types(graph_of(program).types)
        bounds: dict[str, int] = {}
        for node in program.graph.node:
            bounds |= bounds_of(node, types)
        found = {}
        for name, sketch in self._sketches.items():
            kept = sketch.unlike(synthetic(types[name], bounds.get(name)))
            if kept is not None:
                found[name] = kept
        return found
