"""Graphs inside nodes (If, Loop, Scan): what they capture, and their initializers moved outside.

A node with its subgraphs is cut as one node, so all that it reads must be visible from outside: the
values it captures, and the initializers of its subgraphs, which become initializers of the whole
graph (capturing them means the same). Knows nothing of bricks and identity.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import onnx

from bricks.errors import ModelError
from bricks.graph.graph import Graph
from bricks.graph.tensor import TensorType


def subgraphs(node: onnx.NodeProto) -> Iterator[tuple[str, int, onnx.GraphProto]]:
    """The node's graphs as (attribute, position in it, graph), attributes sorted by name."""
    for attribute in sorted(node.attribute, key=lambda a: a.name):
        if attribute.HasField("g"):
            yield attribute.name, 0, attribute.g
        for position, graph in enumerate(attribute.graphs):
            yield attribute.name, position, graph


def captured(node: onnx.NodeProto) -> tuple[str, ...]:
    """Names that the node's subgraphs read from outside of it, each once."""
    names: dict[str, None] = {}
    for _, _, graph in subgraphs(node):
        own = _defined(graph)
        reads = [name for inner in graph.node for name in (*inner.input, *captured(inner))]
        reads += [output.name for output in graph.output]
        names.update(dict.fromkeys(name for name in reads if name and name not in own))
    return tuple(names)


def nested(node: onnx.NodeProto) -> Iterator[onnx.NodeProto]:
    """All nodes in the node's subgraphs, at any depth."""
    for _, _, graph in subgraphs(node):
        for inner in graph.node:
            yield inner
            yield from nested(inner)


def hoist(graph: Graph) -> Graph:
    """The graph with the initializers of its subgraphs among its own; itself if there are none.

    A moved initializer ``x`` is named ``x:0``, or the first of ``x:1``, … that is free.
    Raises ``ModelError`` for sparse initializers in a subgraph.
    """
    if not any(_holds_initializers(node) for node in graph.nodes):
        return graph
    move = _Move(graph)
    nodes = tuple(
        move.node(node, {}) if _holds_initializers(node) else node for node in graph.nodes
    )
    types = {
        name: TensorType(onnx.TensorProto.DataType.Name(t.data_type), tuple(t.dims))
        for name, t in move.found.items()
    }
    return replace(
        graph,
        nodes=nodes,
        initializers={**graph.initializers, **move.found},
        types={**graph.types, **types},
    )


class _Move:
    """Rewrites nodes so that their subgraphs hold no initializers; gathers those in ``found``."""

    def __init__(self, graph: Graph) -> None:
        self.found: dict[str, onnx.TensorProto] = {}
        self._taken = {*graph.types, *graph.initializers}
        for node in graph.nodes:
            for inner in nested(node):
                self._taken.update(inner.input, inner.output)

    def node(self, node: onnx.NodeProto, renames: Mapping[str, str]) -> onnx.NodeProto:
        """A copy of ``node`` that reads the moved initializers under their new names."""
        moved = onnx.NodeProto()
        moved.CopyFrom(node)
        for port, name in enumerate(node.input):
            moved.input[port] = renames.get(name, name)
        for attribute in moved.attribute:
            if attribute.HasField("g"):
                self._graph(attribute.g, renames)
            for graph in attribute.graphs:
                self._graph(graph, renames)
        return moved

    def _graph(self, graph: onnx.GraphProto, outer: Mapping[str, str]) -> None:
        if graph.sparse_initializer:
            raise ModelError(
                f"subgraph {graph.name!r} holds sparse initializers: make them dense first"
            )
        own = {i.name for i in graph.input} | {o for n in graph.node for o in n.output}
        renames = {old: new for old, new in outer.items() if old not in own}
        for tensor in graph.initializer:
            if tensor.name not in own:
                renames[tensor.name] = self._add(tensor)
        del graph.initializer[:]
        nodes = [self.node(node, renames) for node in graph.node]
        for name in dict.fromkeys(output.name for output in graph.output):
            if name in renames:
                # A subgraph may not return a value of the outer scope as it is.
                nodes.append(onnx.helper.make_node("Identity", [renames[name]], [name]))
        del graph.node[:]
        graph.node.extend(nodes)

    def _add(self, tensor: onnx.TensorProto) -> str:
        # Always a new name: subgraphs beside this one may use the old one for something else.
        name, suffix = f"{tensor.name}:0", 0
        while name in self._taken:
            suffix += 1
            name = f"{tensor.name}:{suffix}"
        self._taken.add(name)
        self.found[name] = onnx.TensorProto()
        self.found[name].CopyFrom(tensor)
        self.found[name].name = name
        return name


def _defined(graph: onnx.GraphProto) -> set[str]:
    """Names that the subgraph itself defines."""
    names = {i.name for i in graph.input} | {t.name for t in graph.initializer}
    return names.union(*(n.output for n in graph.node))


def _holds_initializers(node: onnx.NodeProto) -> bool:
    return any(
        graph.initializer or graph.sparse_initializer or any(map(_holds_initializers, graph.node))
        for _, _, graph in subgraphs(node)
    )
