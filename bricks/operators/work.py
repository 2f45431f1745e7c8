"""Count the arithmetic operations of nodes and of parts of a graph, from types only.

A multiply-add is two operations. An operator without a rule makes the work of the whole part
unknown; nothing is guessed. Must not know runtimes or times.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from bricks.errors import ModelError
from bricks.operators.node import node_view
from bricks.operators.registry import operator_of

if TYPE_CHECKING:
    import onnx

    from bricks.graph.containers import ValueType
    from bricks.graph.graph import Graph

_MAX = 2**63 - 1  # the largest integer that a database stores


def flops(graph: Graph, nodes: Sequence[int]) -> int | None:
    """Return the operations of the nodes at these positions; None if one is unknown."""
    total = 0
    for node in map(graph.nodes.__getitem__, nodes):
        work = node_flops(node, graph.types)
        if work is None:
            return None
        total += work
    return total if 0 <= total <= _MAX else None


def node_flops(node: onnx.NodeProto, types: Mapping[str, ValueType]) -> int | None:
    """Return the operations of a node or call; None if unknown or if attributes are invalid."""
    rule = operator_of(node).work
    try:
        return None if rule is None else rule(node_view(node, types))
    except (ModelError, LookupError, TypeError, ValueError, ZeroDivisionError):
        return None
