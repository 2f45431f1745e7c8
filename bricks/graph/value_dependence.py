"""Operators whose time depends on the values that they read, and on what of these values.

Separate from the sketches of values because this part grows with new operators. What a single
runtime adds (a loop of its own that branches on signs) is told by its backend. Must not know how
values are observed or drawn.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import onnx

from bricks.graph.call_values import decides
from bricks.graph.containers import ValueType
from bricks.graph.loops import conditional_loops
from bricks.graph.sketch import COLUMNS, DISTINCT, LARGE, ORDER, QUANTILES, ZEROS, Sketch
from bricks.graph.topology import default_domain

# What counts of each input, by its position. Of functions it was found by running all of them with
# ONNX Runtime on numbers of several sizes, of one sign, zeros and NaN.
_SELECTING: Final[Mapping[str, Mapping[int, tuple[str, ...]]]] = {
    "NonZero": {0: (ZEROS,)},
    "Compress": {1: (ZEROS,)},
    "Unique": {0: (DISTINCT, ORDER, QUANTILES)},
    "TopK": {0: (DISTINCT, ORDER, QUANTILES)},
    "NonMaxSuppression": {0: (), 1: (QUANTILES,)},
    "RoiAlign": {1: (COLUMNS,)},
    "TreeEnsemble": {0: (COLUMNS,)},
    "TreeEnsembleClassifier": {0: (COLUMNS,)},
    "TreeEnsembleRegressor": {0: (COLUMNS,)},
    "TfIdfVectorizer": {0: (DISTINCT, QUANTILES)},
    "LabelEncoder": {0: (DISTINCT, QUANTILES)},
    "CategoryMapper": {0: (DISTINCT, QUANTILES)},
    "Mod": {0: (QUANTILES,), 1: (QUANTILES,)},
    **{op: {0: (QUANTILES,)} for op in ("Tan", "Sinh", "Cosh", "Asinh", "Acosh", "Atanh")},
    "GridSample": {1: (COLUMNS, ORDER)},
    "DeformConv": {2: (QUANTILES,)},
}
# These take longer on large numbers alone.
_GROWING: Final = frozenset(("Sin", "Cos", "Elu", "Selu", "Celu", "Softplus", "Mish"))
# Where an element is read or written decides which memory is touched.
_ADDRESSING: Final[Mapping[str, Mapping[int, tuple[str, ...]]]] = {
    "Gather": {1: (DISTINCT, ORDER, QUANTILES)},
    "GatherElements": {1: (DISTINCT, ORDER, QUANTILES)},
    "GatherND": {1: (DISTINCT, COLUMNS)},
    "ScatterElements": {1: (DISTINCT, ORDER, QUANTILES)},
    "ScatterND": {1: (DISTINCT, COLUMNS)},
}
# Tables of fewer bytes stay in the caches, wherever they are read.
_LARGE_TABLE_BYTES: Final = 1 << 20
_DOMAINS: Final = ("", "ai.onnx.ml")


def branches_on_values(operator: str) -> bool:
    """Whether the work of ``operator`` depends on the values of its inputs.

    An operator of a domain is qualified by it.
    """
    return operator.rpartition(".")[2] in _SELECTING or decides(operator)


def values_decide(nodes: Iterable[onnx.NodeProto]) -> bool:
    """Whether the work of a model of these ``nodes`` depends on its weights and inputs."""
    nodes = list(nodes)
    operators = {node.op_type for node in nodes}
    return not operators.isdisjoint({*_SELECTING, *_GROWING}) or bool(conditional_loops(nodes))


def dependent_inputs(
    node: onnx.NodeProto, table_bytes: int | None = None
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The names of inputs on whose values the time of ``node`` depends, and the traits that count.

    ``table_bytes`` is the size of its first input, in bytes, where that is known.
    """
    if default_domain(node.domain) not in _DOMAINS:
        return
    ports = dict(_SELECTING.get(node.op_type, {}))
    if node.op_type in _GROWING:
        ports[0] = (LARGE,)
    if table_bytes is not None and table_bytes >= _LARGE_TABLE_BYTES:
        ports.update(_ADDRESSING.get(node.op_type, {}))
    for port, traits in ports.items():
        if port < len(node.input) and node.input[port]:
            yield node.input[port], traits


def sketched_inputs(
    nodes: Iterable[onnx.NodeProto], types: Mapping[str, ValueType], sketches: Mapping[str, Sketch]
) -> dict[str, Sketch]:
    """Those of ``sketches``, by the names of values, that tell of what ``nodes`` read.

    A runtime's own loops branch on their first input.
    """
    names = [
        name
        for node in nodes
        for name in (*node.input[:1], *(n for n, _ in dependent_inputs(node, _LARGE_TABLE_BYTES)))
    ]
    return {name: sketches[name] for name in names if name in sketches}


def decisive_inputs(node: onnx.NodeProto, types: Mapping[str, ValueType]) -> list[str]:
    """The names of inputs whose values always decide how long ``node`` takes."""
    if default_domain(node.domain) not in _DOMAINS:
        return []
    ports = _SELECTING.get(node.op_type, {})
    return [node.input[port] for port in ports if port < len(node.input) and node.input[port]]
