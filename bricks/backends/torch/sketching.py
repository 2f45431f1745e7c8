"""Sketches of the values that calls of a recorded step read, where their time depends on them.

See ``operators.dependence`` and ``graph.sketch``. Must not know how calls are recorded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from bricks.backends.torch.filling import numbers_of
from bricks.backends.torch.index_bounds import bounds_of, tensor_types
from bricks.backends.torch.values import ONNX_DTYPES, synthetic
from bricks.graph.sketch import Sketch
from bricks.graph.tensor import TensorType
from bricks.graph.view import graph_of
from bricks.operators.dependence import dependent_arguments
from bricks.operators.registry import operator_of

if TYPE_CHECKING:
    import onnx
    import torch


class SketchedValues:
    """Collects sketches of values, by their names."""

    def __init__(self) -> None:
        self._facts: dict[str, frozenset[str]] = {}
        self._sketches: dict[str, Sketch] = {}

    def read_by(self, node: onnx.NodeProto, tensors: Mapping[str, torch.Tensor]) -> None:
        """Sketch the inputs of a call before it runs; ``tensors`` are its inputs by name."""
        if not operator_of(node).values:
            return  # types take longer than this
        types = {
            name: TensorType(ONNX_DTYPES[t.dtype], tuple(t.shape)) for name, t in tensors.items()
        }
        for name, facts in dependent_arguments(node, types):
            # A value has one sketch, of the features that count for any call.
            known = self._facts.get(name, frozenset())
            if not known.issuperset(facts):
                self._facts[name] = known.union(facts)
                self._sketches[name] = Sketch.of(numbers_of(tensors[name]), self._facts[name])

    def unlike_synthetic(self, program: onnx.ModelProto) -> dict[str, Sketch]:
        """Return the sketches that differ from the synthetic values of the program's bricks."""
        types = tensor_types(graph_of(program).types)
        bounds: dict[str, int] = {}
        for node in program.graph.node:
            bounds |= bounds_of(node, types)
        unlike = {}
        for name, sketch in self._sketches.items():
            kept = sketch.differing_from(synthetic(types[name], bounds.get(name)))
            if kept is not None:
                unlike[name] = kept
        return unlike
