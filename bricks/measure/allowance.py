"""Limits on the time and memory of one request about a graph, which grow with the model.

A file of a few bytes can make the worker optimise a graph, infer its shapes, or run it once without
end. A model's size implies an ordinary cost, with a wide margin; a request that exceeds it has gone
wrong, or the file is hostile. It must not know any request.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from bricks.errors import ModelError
from bricks.graph.tensor import ELEMENT_BITS
from bricks.graph.topology import all_nodes
from bricks.graph.view import graph_of, without_values
from bricks.measure.defaults import GRAPH_TIMEOUT_S

if TYPE_CHECKING:
    import onnx

    from bricks.graph.containers import ValueType

# With these, a host ten times slower than any tested one stays within the limits.
MIN_S = 5.0
_NODE_S = 0.002
_WEIGHT_BYTES_PER_S = 50e6
_FLOPS = 5e9
# Of the model without weights, which a tree ensemble fills with lists of its nodes.
_MODEL_BYTES_PER_S = 1e6

_MIN_BYTES = 1 << 30
# Copies of the weights: a runtime rewrites weights that it folds or reorders.
_COPIES = 2
# Bytes of a session for each byte of a model without weights: a runtime expands lists of trees.
SESSION_BYTES = 16
# Bytes of activations in one run for each element of an input: a few hundred channels.
_BYTES_PER_ELEMENT = 1 << 12


def allowed_s(proto: onnx.ModelProto, *, times: int = 1) -> float:
    """Seconds for one request about ``proto``, a model without weights, at most GRAPH_TIMEOUT_S.

    ``times`` is how often the request processes the whole model.
    """
    weights = list(without_values(proto).values())
    nodes = sum(1 for _ in all_nodes(proto.graph))
    # Each weight takes part once for each position: a token, or a row of an image.
    positions = sum(map(_positions, _inputs(proto)))
    flops = 2 * positions * sum(type_.elements for type_ in weights)
    seconds = MIN_S + _NODE_S * nodes + int(proto.ByteSize()) / _MODEL_BYTES_PER_S
    seconds += _bytes(weights) / _WEIGHT_BYTES_PER_S + flops / _FLOPS
    return min(GRAPH_TIMEOUT_S, times * seconds)


def allowed_bytes(proto: onnx.ModelProto) -> int:
    """Further bytes that one request about ``proto``, a model without weights, may allocate."""
    elements = sum(type_.elements for type_ in _inputs(proto))
    weights = _bytes(without_values(proto).values())
    lists = SESSION_BYTES * int(proto.ByteSize())
    return _MIN_BYTES + _COPIES * weights + _BYTES_PER_ELEMENT * elements + lists


def _inputs(proto: onnx.ModelProto) -> list[ValueType]:
    try:
        graph = graph_of(proto)
    except ModelError:  # the worker will report it
        return []
    return [graph.types[name] for name in graph.inputs]


def _positions(type_: ValueType) -> int:
    return math.prod(type_.shape[:-1]) if type_.floating else type_.elements


def _bytes(types: Iterable[ValueType]) -> int:
    """The size of all ``types`` whose elements have a fixed size."""
    return sum(t.size_bytes for t in types if t.dtype in ELEMENT_BITS)
