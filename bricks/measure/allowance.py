"""What work on a graph may take: time and memory that grow with the model.

Optimising a graph, inferring its shapes, and running it once to see what depends on data: a file of
a few bytes can ask for all of them without end. A model's size says what is ordinary, with a wide
margin; what takes more than that has gone wrong, or was made to. Must not know what is asked.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import onnx

from bricks.errors import ModelError
from bricks.graph.containers import ValueType
from bricks.graph.tensor import ELEMENT_BITS
from bricks.graph.topology import all_nodes
from bricks.graph.view import graph_of, without_values

MAX_S = 600.0

# A host that is ten times slower than any that this was tried on stays within all of these.
MIN_S = 5.0
_NODE_S = 0.002
_WEIGHT_BYTES_PER_S = 50e6
_FLOPS = 5e9

_MIN_BYTES = 1 << 30
# Times the weights: what a runtime folds or reorders it writes anew.
_COPIES = 2
# For the activations of one run, by element of an input: a few hundred channels of some bytes.
_BYTES_PER_ELEMENT = 1 << 12


def allowed_s(proto: onnx.ModelProto, *, times: int = 1) -> float:
    """Seconds for one request about ``proto``, a model without weights, at most MAX_S.

    ``times`` is how often the request goes over the model.
    """
    weights = list(without_values(proto).values())
    nodes = sum(1 for _ in all_nodes(proto.graph))
    # Each weight takes part once for each position: a token, or a row of an image.
    positions = sum(map(_positions, _inputs(proto)))
    flops = 2 * positions * sum(type_.elements for type_ in weights)
    seconds = MIN_S + _NODE_S * nodes
    seconds += _bytes(weights) / _WEIGHT_BYTES_PER_S + flops / _FLOPS
    return min(MAX_S, times * seconds)


def allowed_bytes(proto: onnx.ModelProto) -> int:
    """Bytes that one request about ``proto``, a model without weights, may take on top."""
    elements = sum(type_.elements for type_ in _inputs(proto))
    weights = _bytes(without_values(proto).values())
    return _MIN_BYTES + _COPIES * weights + _BYTES_PER_ELEMENT * elements


def _inputs(proto: onnx.ModelProto) -> list[ValueType]:
    try:
        graph = graph_of(proto)
    except ModelError:  # whoever is asked will say so
        return []
    return [graph.types[name] for name in graph.inputs]


def _positions(type_: ValueType) -> int:
    return math.prod(type_.shape[:-1]) if type_.floating else type_.elements


def _bytes(types: Iterable[ValueType]) -> int:
    """Of all that have a fixed size."""
    return sum(t.size_bytes for t in types if t.dtype in ELEMENT_BITS)
