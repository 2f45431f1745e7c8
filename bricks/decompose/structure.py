"""The structure of a piece as a labelled graph, and the order in which its nodes are written.

Nodes, values and subgraphs become vertices; ports become labelled edges. Labels hold all facts that
count for identity except the wiring, so the canonical order of the vertices depends on these facts
and the wiring only. Must not know keys or canonical names.
"""

from __future__ import annotations

import heapq
from collections import ChainMap
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING

from bricks.decompose.canonical import Edge, SearchBudget, canonical_order
from bricks.decompose.content import normal_type, plain_attributes
from bricks.errors import ModelError
from bricks.graph.topology import default_domain, located_subgraphs, used_values

if TYPE_CHECKING:
    import onnx

# The path of a node: its position among the piece's nodes. In a subgraph: the path of the node that
# has the subgraph, the attribute, the subgraph's position in it, and the position in the subgraph.
Path = tuple[int | str, ...]
Scope = MutableMapping[str, int]


def ranks(
    nodes: Sequence[onnx.NodeProto],
    label: Callable[[str], bytes],
    budget: SearchBudget | None = None,
) -> dict[Path, int]:
    """Return a canonical rank by path, for the piece's nodes and the nodes of their subgraphs.

    ``label`` returns the identity of a value (kind, type, whether it leaves the piece, …).
    """
    structure = _Structure(label)
    structure.add_nodes(nodes, (), structure.outside, None)
    order = canonical_order(structure.labels, structure.edges, budget)
    position = {vertex: rank for rank, vertex in enumerate(order)}
    return {path: position[vertex] for path, vertex in structure.vertices.items()}


def schedule(nodes: Sequence[onnx.NodeProto], path: Path, rank: Mapping[Path, int]) -> list[int]:
    """Return the positions of ``nodes`` in topological order; of ready nodes the lowest rank first.

    Raises ``ModelError`` if there is no such order.
    """
    if len(nodes) == 1:
        return [0]
    producer = {name: i for i, node in enumerate(nodes) for name in node.output if name}
    waiting = []
    readers: list[list[int]] = [[] for _ in nodes]
    for i, node in enumerate(nodes):
        needs = {producer[n] for n in used_values(node) if n in producer}
        waiting.append(len(needs))
        for p in needs:
            readers[p].append(i)
    ready = [(rank[(*path, i)], i) for i, needs in enumerate(waiting) if not needs]
    heapq.heapify(ready)
    order = []
    while ready:
        _, i = heapq.heappop(ready)
        order.append(i)
        for reader in readers[i]:
            waiting[reader] -= 1
            if not waiting[reader]:
                heapq.heappush(ready, (rank[(*path, reader)], reader))
    if len(order) < len(nodes):
        raise ModelError("nodes wait for each other in a circle: the model is not valid")
    return order


class _Structure:
    """Vertices and edges of a piece, gathered in a walk over its nodes."""

    def __init__(self, label: Callable[[str], bytes]) -> None:
        self.labels: list[bytes] = []
        self.edges: list[Edge] = []
        self.vertices: dict[Path, int] = {}
        self.outside: Scope = {}
        self._label = label

    def add_nodes(
        self, nodes: Sequence[onnx.NodeProto], path: Path, scope: Scope, parent: int | None
    ) -> None:
        """Add the nodes of one scope; ``parent`` is the vertex of the subgraph they are in."""
        if parent is not None:
            scope.update(
                {name: self._vertex("value") for node in nodes for name in node.output if name}
            )
        for i, node in enumerate(nodes):
            vertex = self._add_node(node, (*path, i), scope)
            self.vertices[(*path, i)] = vertex
            if parent is not None:
                self.edges.append((parent, vertex, "member"))

    def _add_node(self, node: onnx.NodeProto, path: Path, scope: Scope) -> int:
        attributes = [a.SerializeToString(deterministic=True) for a in plain_attributes(node)]
        domain = default_domain(node.domain)
        ports = (len(node.input), len(node.output))
        vertex = self._vertex("node", node.op_type, domain, *ports, *attributes)
        for port, name in enumerate(node.input):
            if name:
                self.edges.append((self._value(name, scope), vertex, f"input {port}"))
        for port, name in enumerate(node.output):
            if name:
                self.edges.append((vertex, self._value(name, scope), f"output {port}"))
        for attribute, position, graph in located_subgraphs(node):
            subgraph = self._add_graph(graph, (*path, attribute, position), scope)
            self.edges.append((vertex, subgraph, f"graph {position} {attribute}"))
        return vertex

    def _add_graph(self, graph: onnx.GraphProto, path: Path, scope: Scope) -> int:
        inputs = [type_bytes(i) for i in graph.input]
        vertex = self._vertex("graph", len(inputs), *inputs, *map(type_bytes, graph.output))
        inner: Scope = ChainMap({}, scope)
        for port, formal in enumerate(graph.input):
            inner[formal.name] = self._vertex("formal")
            self.edges.append((vertex, inner[formal.name], f"formal {port}"))
        self.add_nodes(graph.node, path, inner, vertex)
        for port, output in enumerate(graph.output):
            self.edges.append((self._value(output.name, inner), vertex, f"result {port}"))
        return vertex

    def _value(self, name: str, scope: Scope) -> int:
        if name in scope:
            return scope[name]
        vertex = len(self.labels)
        self.labels.append(self._label(name))
        self.outside[name] = vertex
        return vertex

    def _vertex(self, *label: object) -> int:
        # repr distinguishes any two tuples of strings, numbers and bytes.
        self.labels.append(repr(label).encode())
        return len(self.labels) - 1


def type_bytes(value: onnx.ValueInfoProto) -> bytes:
    """The declared type of a subgraph's input or output, as bytes."""
    form: bytes = normal_type(value.type).SerializeToString(deterministic=True)
    return form
