"""An operator to compare over runtimes, as an ONNX model or a PyTorch program; and its work.

Must not know where operators come from, nor how they are run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bricks.errors import ModelError
from bricks.graph.form import ModelForm
from bricks.graph.source import source_graph
from bricks.graph.tensor import ELEMENT_BITS, TensorType
from bricks.operators.work import flops
from bricks.studies.numerics.results import Work

if TYPE_CHECKING:
    import onnx

    from bricks.graph.containers import ValueType
    from bricks.graph.graph import Graph
    from bricks.graph.model import Model
    from bricks.sources import Function

UNKNOWN = Work(None, None)


def bytes_of(types: Iterable[ValueType | None]) -> int | None:
    """The bytes of values of these types; None if a size is unknown."""
    total = 0
    for type_ in types:
        if not isinstance(type_, TensorType) or type_.dtype not in ELEMENT_BITS:
            return None
        total += type_.size_bytes
    return total


def work_of(model: Model) -> Work:
    """The work of ``model`` before optimisation; inputs, weights and outputs count once."""
    try:
        graph = source_graph(model)
    except ModelError:  # a shape is open, or an operator's is not known
        return UNKNOWN
    return Work(flops(graph, range(len(graph.nodes))), _bytes(graph))


def _bytes(graph: Graph) -> int | None:
    names = {*graph.inputs, *graph.initializers, *graph.outputs}
    return bytes_of([graph.types.get(name) for name in names])


@dataclass(frozen=True, slots=True)
class OperatorCase:
    """A model of one or few nodes from ``source``.

    ``onnx`` is an ONNX model or its file, ``program`` a program to record; at most one is None.
    ``values`` are values of inputs that determine the work (see :func:`bricks.read_model`).
    ``work`` is None unless it is known ahead.
    """

    name: str
    source: str
    onnx: onnx.ModelProto | Path | None = None
    program: Function | None = None
    values: Mapping[str, Any] = field(default_factory=dict)
    work: Work | None = None

    def has(self, form: ModelForm) -> bool:
        """Whether the operator is specified in this form."""
        return {ModelForm.MODELS: self.onnx, ModelForm.PROGRAMS: self.program}[form] is not None
