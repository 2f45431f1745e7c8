"""Small ONNX models which overwrite inputs of a brick, untimed and in place, before it runs.

They use all threads, like the step that wrote the input, so that they change little else than its
values. Must not know why inputs are overwritten.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar, Protocol

from bricks.backends.onnx_instruments.models import float32_model
from bricks.graph.tensor import TensorType
from bricks.graph.view import graph_of

if TYPE_CHECKING:
    import onnx


class InputOverwrite(Protocol):
    """One way to overwrite a float32 input; hashable, since equal ones share loaded models."""

    key: ClassVar[str]  # under which backends load the models

    def models(self) -> Sequence[onnx.ModelProto]:
        """Models which take turns, one at each run."""
        ...


def float32_inputs(proto: onnx.ModelProto) -> Iterator[tuple[int, str, int]]:
    """Position, name and number of elements of the inputs that can be overwritten."""
    graph = graph_of(proto)
    for position, name in enumerate(graph.inputs):
        type_ = graph.types[name]
        if isinstance(type_, TensorType) and type_.dtype == "FLOAT" and type_.elements:
            yield position, name, type_.elements


def overwriting_model(
    name: str,
    nodes: Sequence[onnx.NodeProto],
    elements: int,
    constants: Sequence[onnx.TensorProto],
) -> onnx.ModelProto:
    """A model whose ``nodes`` make ``out`` from ``in``, both of so many ``elements``."""
    return float32_model(name, nodes, {"in": [elements]}, {"out": [elements]}, constants)
