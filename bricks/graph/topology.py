"""Who produces and who uses each value of a graph: checked, and put in topological order.

ONNX demands sorted nodes and single producers; exporters and editing scripts forget both. Must not
know shapes or operators.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import networkx as nx
import onnx

from bricks.errors import ModelError
from bricks.graph.payload import subgraphs


def label(node: onnx.NodeProto) -> str:
    """``node`` as messages name it: operator and name, or its first output when it has no name."""
    name = node.name or next((name for name in node.output if name), "")
    return f"{node.op_type} '{name}'"


def used_values(node: onnx.NodeProto) -> list[str]:
    """The values ``node`` needs, each once: its inputs, and what its subgraphs capture."""
    names = dict.fromkeys(name for name in node.input if name)
    for subgraph in subgraphs(node):
        names.update(dict.fromkeys(_captured(subgraph)))
    return list(names)


def all_nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """Every node of ``graph`` and of the subgraphs in it."""
    for node in graph.node:
        yield node
        for subgraph in subgraphs(node):
            yield from all_nodes(subgraph)


def initializer_names(graph: onnx.GraphProto) -> list[str]:
    """Names of the constants of ``graph``, sparse ones included."""
    return [t.name for t in graph.initializer] + [s.values.name for s in graph.sparse_initializer]


def check_names(graph: onnx.GraphProto, file: str) -> None:
    """Raise :class:`ModelError` unless every value of ``graph`` has exactly one producer."""
    given = [value.name for value in graph.input] + initializer_names(graph)
    made = [name for node in graph.node for name in node.output if name]
    for name, count in Counter(given + made).items():
        if count > 1:
            raise ModelError(f"{file}: value '{name}' is produced {count} times, must be once")
    outputs = [value.name for value in graph.output]
    if not outputs:
        raise ModelError(f"{file}: the graph has no outputs")
    for name, count in Counter(outputs).items():
        if count > 1:
            raise ModelError(f"{file}: output '{name}' is listed {count} times, must be once")
    known = {*given, *made}
    for node in graph.node:
        for name in used_values(node):
            if name not in known:
                raise ModelError(f"{file}: node {label(node)} uses '{name}', which nobody produces")
    for name in outputs:
        if name not in known:
            raise ModelError(f"{file}: nobody produces the output '{name}'")


def sort_nodes(graph: onnx.GraphProto, file: str) -> None:
    """Put the nodes of ``graph`` in topological order, leaving a valid order as it is."""
    producer = {name: i for i, node in enumerate(graph.node) for name in node.output if name}
    edges = [
        (producer[name], user)
        for user, node in enumerate(graph.node)
        for name in used_values(node)
        if name in producer
    ]
    if all(maker < user for maker, user in edges):
        return
    flow: nx.DiGraph[int] = nx.DiGraph(edges)
    flow.add_nodes_from(range(len(graph.node)))
    try:
        # By old position where there is a choice, so that the result does not depend on chance.
        order = list(nx.lexicographical_topological_sort(flow))
    except nx.NetworkXUnfeasible as exc:
        found = [maker for maker, _ in nx.find_cycle(flow)]
        first = found.index(min(found))  # so that one cycle is always told in one way
        cycle = [label(graph.node[i]) for i in found[first:] + found[:first]]
        shown = " → ".join([*cycle[:5], *(["…"] if len(cycle) > 5 else []), cycle[0]])
        raise ModelError(f"{file}: the nodes form a cycle: {shown}") from exc
    nodes = [onnx.NodeProto.FromString(graph.node[i].SerializeToString()) for i in order]
    del graph.node[:]
    graph.node.extend(nodes)


def _captured(graph: onnx.GraphProto) -> Iterator[str]:
    inner = {value.name for value in graph.input} | set(initializer_names(graph))
    inner.update(name for node in graph.node for name in node.output)
    for node in graph.node:
        yield from (name for name in used_values(node) if name not in inner)
    # A branch may hand an outer value straight through.
    yield from (value.name for value in graph.output if value.name and value.name not in inner)
