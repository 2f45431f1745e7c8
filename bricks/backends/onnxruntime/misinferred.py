"""Types of values that ONNX Runtime infers wrongly.

A cache of keys and values holds one more token after a step than before; the runtime infers that
it keeps its size, as in memory that is large enough from the beginning. Must not know what types
are for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import numpy_helper

from bricks.graph.model_metadata import known_values
from bricks.graph.payload import is_referenced
from bricks.graph.tensor import TensorType
from bricks.operators.integer_ranges import integer_ranges

if TYPE_CHECKING:
    from bricks.graph.containers import ValueType
    from bricks.graph.graph import Graph

# Inputs and outputs of the runtime's GroupQueryAttention.
_OPERATOR, _PAST, _TOTAL, _PRESENT = "GroupQueryAttention", 3, 6, (1, 2)


def corrected_types(
    proto: onnx.ModelProto, graph: Graph, types: Mapping[str, ValueType]
) -> dict[str, ValueType]:
    """The real types of values of ``graph``, a view of ``proto``, where ``types`` are wrong."""
    corrected: dict[str, ValueType] = {}
    for node in graph.nodes:
        if node.op_type != _OPERATOR or len(node.input) <= _TOTAL:
            continue
        past, total = types.get(node.input[_PAST]), _number(proto, graph, node.input[_TOTAL])
        if not isinstance(past, TensorType) or total is None or total <= past.shape[2]:
            continue
        shape = (*past.shape[:2], total, *past.shape[3:])
        names = (node.output[i] for i in _PRESENT if i < len(node.output) and node.output[i])
        corrected.update((name, TensorType(past.dtype, shape)) for name in names)
    return corrected


def _number(proto: onnx.ModelProto, graph: Graph, name: str) -> int | None:
    """The integer ``name`` in a run; None if it is not known before."""
    fixed: dict[str, Any] = known_values(proto)
    if name in fixed:
        return int(np.ravel(fixed[name])[0])
    tensor = graph.initializers.get(name)
    if tensor is not None and not is_referenced(tensor):
        return int(numpy_helper.to_array(tensor).reshape(-1)[0])
    if name not in graph.inputs:
        return None
    range_ = integer_ranges(graph, [name]).get(name)
    return range_.low if range_ is not None and range_.high - range_.low == 1 else None
