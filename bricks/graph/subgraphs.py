"""Move constants out of subgraphs (of If, Loop, Scan).

Cutting treats a node with its subgraphs as one node, so every value that a subgraph reads must be
visible from outside. The constants of subgraphs become initializers of the whole graph, which the
subgraphs capture; the semantics are unchanged. Must not know operators.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import onnx

from bricks.errors import ModelError
from bricks.graph.topology import all_nodes, initializer_names, subgraphs


def hoist(graph: onnx.GraphProto) -> None:
    """Move the initializers of the subgraphs of ``graph`` among its own, in place.

    A moved initializer ``x`` is named ``x:0``, or the first of ``x:1``, … that is free.
    Raises ``ModelError`` for sparse initializers in a subgraph.
    """
    holders = [node for node in graph.node if holds_initializers(node)]
    if holders:
        move = _Move(graph)
        for node in holders:
            move.node(node, {})
        graph.initializer.extend(move.initializers)


def holds_initializers(node: onnx.NodeProto) -> bool:
    """Whether a subgraph of ``node`` has initializers of its own."""
    return any(
        graph.initializer or graph.sparse_initializer or any(map(holds_initializers, graph.node))
        for graph in subgraphs(node)
    )


class _Move:
    """Moves the initializers of subgraphs of nodes into the list ``initializers``."""

    def __init__(self, graph: onnx.GraphProto) -> None:
        self.initializers: list[onnx.TensorProto] = []
        self._suffixes: dict[str, int] = {}  # all smaller suffixes are in use
        self._used_names = {*initializer_names(graph), *_names(graph)}
        for node in all_nodes(graph):
            self._used_names.update(node.input, node.output)
            for subgraph in subgraphs(node):
                self._used_names.update(_names(subgraph))

    def node(self, node: onnx.NodeProto, renames: Mapping[str, str]) -> None:
        """Rename the moved initializers in the inputs of ``node``."""
        for port, name in enumerate(node.input):
            node.input[port] = renames.get(name, name)
        for graph in subgraphs(node):
            self._graph(graph, renames)

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
        for node in graph.node:
            self.node(node, renames)
        for name in dict.fromkeys(output.name for output in graph.output):
            if name in renames:
                # A subgraph may not return a value of the outer scope directly.
                graph.node.append(onnx.helper.make_node("Identity", [renames[name]], [name]))

    def _add(self, tensor: onnx.TensorProto) -> str:
        # Always a new name: sibling subgraphs may use the old name for another value.
        suffix = self._suffixes.get(tensor.name, 0)
        while f"{tensor.name}:{suffix}" in self._used_names:
            suffix += 1
        name = f"{tensor.name}:{suffix}"
        self._suffixes[tensor.name] = suffix + 1
        self._used_names.add(name)
        moved = onnx.TensorProto()
        moved.CopyFrom(tensor)
        moved.name = name
        self.initializers.append(moved)
        return name


def _names(graph: onnx.GraphProto) -> Iterator[str]:
    yield from (value.name for value in (*graph.input, *graph.output))
