"""The arithmetic of a part of a graph: the operations of its nodes, whatever form they have.

Must not know runtimes or times.
"""

from __future__ import annotations

from collections.abc import Sequence

from bricks.decompose.dialects import dialect_of
from bricks.graph.graph import Graph

_MAX = 2**63 - 1  # the largest integer that a database stores


def flops(graph: Graph, nodes: Sequence[int]) -> int | None:
    """Operations of the nodes at these positions; None where one of them isn't known."""
    total = 0
    for node in map(graph.nodes.__getitem__, nodes):
        work = dialect_of(node).flops(node, graph.types)
        if work is None:
            return None
        total += work
    return total if 0 <= total <= _MAX else None
