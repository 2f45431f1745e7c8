"""Groups of nodes that a runtime executes as one: connected, convex, and in an order of execution.

A group is convex if none of its nodes waits for a node that waits for the group. Must not know why
nodes are in one group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet

import networkx as nx
import onnx

from bricks.graph.topology import producers, used_values

# The positions of nodes in their graph, ascending.
Group = tuple[int, ...]


def connected(nodes: int, links: Iterable[Sequence[int]]) -> list[set[int]]:
    """The smallest sets of so many ``nodes`` in which the nodes of each link are together."""
    graph: nx.Graph[int] = nx.Graph()
    graph.add_nodes_from(range(nodes))
    for link in links:
        nx.add_path(graph, link)
    return list(nx.connected_components(graph))


def convex(
    nodes: Sequence[onnx.NodeProto],
    sets: Sequence[AbstractSet[int]],
    rank: Callable[[Group], int],
) -> list[Group]:
    """``sets`` of all ``nodes``, merged where they wait for each other, in execution order.

    Of groups that do not wait for each other, the one of the lowest ``rank`` comes first.
    """
    set_of = {position: number for number, members in enumerate(sets) for position in members}
    makers = producers(nodes)
    flow: nx.DiGraph[int] = nx.DiGraph()
    flow.add_nodes_from(range(len(sets)))
    for position, node in enumerate(nodes):
        for maker in (makers[name] for name in used_values(node) if name in makers):
            if set_of[maker] != set_of[position]:
                flow.add_edge(set_of[maker], set_of[position])
    merged = nx.condensation(flow)
    groups = {
        number: tuple(sorted(i for member in data["members"] for i in sets[member]))
        for number, data in merged.nodes(data=True)
    }
    order = nx.lexicographical_topological_sort(merged, key=lambda number: rank(groups[number]))
    return [groups[number] for number in order]
