"""Which outputs share the memory of an input, by the rules of a runtime.

Counted as a runtime's planner does: node by node in their order, the readers that a piece of memory
still has, through whichever of the values that share it. Getting a rule wrong changes where a
brick's output lies while it is measured, never what it computes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

import onnx

from bricks.graph.containers import ValueType
from bricks.graph.graph import Graph
from bricks.graph.tensor import TensorType
from bricks.graph.topology import captured, default_domain


@dataclass(frozen=True, slots=True)
class Rules:
    """Operators, by domain and name.

    The first output of ``views`` is their first input, seen otherwise; that of ``overwrites`` takes
    the memory of one of these inputs, the first that nobody reads any more.
    """

    views: Collection[tuple[str, str]]
    overwrites: Mapping[tuple[str, str], tuple[int, ...]]


def in_place_values(graph: Graph, rules: Rules) -> dict[str, str]:
    """Values of ``graph`` by the value whose memory they take."""
    left = Counter(name for node in graph.nodes for name in _reads(node))
    # The caller owns the memory of inputs and outputs, and weights are kept.
    fixed = {*graph.inputs, *graph.outputs, *graph.initializers}
    owner: dict[str, str] = {}  # values by the first value that had their memory
    shared = {}
    for node in graph.nodes:
        output = node.output[0] if node.output else ""
        source = _source(node, graph, rules, fixed, left, owner) if output not in fixed else ""
        if output and source:
            shared[output] = source
            owner[output] = owner.get(source, source)
            left[owner[output]] += left[output]
        for name in _reads(node):
            left[owner.get(name, name)] -= 1
    return shared


def _reads(node: onnx.NodeProto) -> Iterator[str]:
    """What ``node`` reads, as often as it does: the planner counts ports."""
    yield from (name for name in node.input if name)
    yield from captured(node)


def _source(
    node: onnx.NodeProto,
    graph: Graph,
    rules: Rules,
    fixed: set[str],
    left: Counter[str],
    owner: dict[str, str],
) -> str:
    """The input whose memory the first output of ``node`` takes, or nothing."""
    kind = (default_domain(node.domain), node.op_type)
    view = kind in rules.views
    for position in (0,) if view else rules.overwrites.get(kind, ()):
        source = node.input[position] if position < len(node.input) else ""
        if not source or source in fixed:
            continue
        before, after = graph.types[source], graph.types[node.output[0]]
        if not _same_size(before, after):
            continue
        if view or left[owner.get(source, source)] == 1:
            return source
    return ""


def _same_size(before: ValueType, after: ValueType) -> bool:
    tensors = isinstance(before, TensorType) and isinstance(after, TensorType)
    known = tensors and "STRING" not in (before.dtype, after.dtype)
    return known and before.size_bytes == after.size_bytes
