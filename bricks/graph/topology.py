"""Producers and consumers of the values of a graph: check them, and sort nodes topologically.

ONNX requires sorted nodes and unique producers; exporters and editing scripts violate both. Must
not know shapes or operators.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import onnx

from bricks.errors import ModelError

_GRAPH = onnx.AttributeProto.GRAPH
_GRAPHS = frozenset({_GRAPH, onnx.AttributeProto.GRAPHS})
# Fields of attributes that hold graphs or tensors, by the attribute type that declares them.
_KINDS = {
    "g": _GRAPH,
    "graphs": onnx.AttributeProto.GRAPHS,
    "t": onnx.AttributeProto.TENSOR,
    "tensors": onnx.AttributeProto.TENSORS,
    "sparse_tensor": onnx.AttributeProto.SPARSE_TENSOR,
    "sparse_tensors": onnx.AttributeProto.SPARSE_TENSORS,
}


def label(node: onnx.NodeProto) -> str:
    """Return a node's name in messages: operator and name, or first output without a name."""
    name = node.name or next((name for name in node.output if name), "")
    return f"{node.op_type} '{name}'"


def default_domain(domain: str) -> str:
    """Return ``domain``; ONNX's own, ``ai.onnx``, in its empty spelling."""
    return "" if domain == "ai.onnx" else domain


def subgraphs(node: onnx.NodeProto) -> Sequence[onnx.GraphProto]:
    """Return the graphs in attributes of ``node`` (bodies of If, Loop, Scan, …)."""
    for attribute in node.attribute:
        if attribute.type in _GRAPHS:
            return [graph for holder in node.attribute for graph in _graphs_of(holder)]
    return ()  # the usual case: callers ask this repeatedly of every node


def _graphs_of(attribute: onnx.AttributeProto) -> Sequence[onnx.GraphProto]:
    return [attribute.g] if attribute.type == _GRAPH else attribute.graphs


def check_attributes(proto: onnx.ModelProto, file: str) -> None:
    """Raise :class:`ModelError` for graphs and tensors in attributes that declare another type.

    The declared type then suffices to locate graphs and tensors. A missing type is filled in.
    """
    pending = [*proto.graph.node, *(node for body in proto.functions for node in body.node)]
    while pending:
        node = pending.pop()
        for attribute in node.attribute:
            for field, _ in attribute.ListFields():
                kind = _KINDS.get(field.name)
                if kind is None:
                    continue
                if attribute.HasField("type") and attribute.type != kind:
                    raise ModelError(
                        f"{file}: attribute '{attribute.name}' of node {label(node)} holds other"
                        " values than its type says"
                    )
                attribute.type = kind
            pending.extend(inner for graph in _graphs_of(attribute) for inner in graph.node)


def located_subgraphs(node: onnx.NodeProto) -> Iterator[tuple[str, int, onnx.GraphProto]]:
    """Yield a node's graphs as (attribute name, index in it, graph), sorted by attribute."""
    for attribute in sorted(node.attribute, key=lambda a: a.name):
        for position, graph in enumerate(_graphs_of(attribute)):
            yield attribute.name, position, graph


def all_nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """Yield every node of ``graph`` and of its subgraphs."""
    for node in graph.node:
        yield node
        for subgraph in subgraphs(node):
            yield from all_nodes(subgraph)


def inner_nodes(node: onnx.NodeProto) -> Iterator[onnx.NodeProto]:
    """Yield all nodes in the subgraphs of ``node``, at any depth."""
    for subgraph in subgraphs(node):
        yield from all_nodes(subgraph)


def initializer_names(graph: onnx.GraphProto) -> list[str]:
    """Return the names of the initializers of ``graph``, sparse ones included."""
    return [t.name for t in graph.initializer] + [s.values.name for s in graph.sparse_initializer]


def captured(node: onnx.NodeProto) -> tuple[str, ...]:
    """Return the distinct names of outer values that the subgraphs of ``node`` read."""
    names: dict[str, None] = {}
    for graph in subgraphs(node):
        own = {value.name for value in graph.input} | set(initializer_names(graph))
        own.update(name for inner in graph.node for name in inner.output)
        reads = [name for inner in graph.node for name in used_values(inner)]
        # A branch may return an outer value directly.
        reads += [output.name for output in graph.output if output.name]
        names.update(dict.fromkeys(name for name in reads if name not in own))
    return tuple(names)


def used_values(node: onnx.NodeProto) -> list[str]:
    """Return the distinct values that ``node`` reads: inputs, and captures of its subgraphs."""
    names = dict.fromkeys(filter(None, node.input))
    if subgraphs(node):
        names.update(dict.fromkeys(captured(node)))
    return list(names)


def producers(nodes: Sequence[onnx.NodeProto]) -> dict[str, int]:
    """Return the index of the node that produces a value, by the value's name."""
    return {name: i for i, node in enumerate(nodes) for name in node.output if name}


def renamed(node: onnx.NodeProto, names: Mapping[str, str]) -> onnx.NodeProto:
    """Return a copy of ``node`` whose inputs and outputs are renamed by ``names``."""
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    copy.input[:] = [names.get(name, name) for name in node.input]
    copy.output[:] = [names.get(name, name) for name in node.output]
    return copy


def make_names_unique(graph: onnx.GraphProto) -> None:
    """Make node names unique: some runtimes reject duplicates, and names have no meaning.

    The second ``x`` becomes ``x:1``, or the first of ``x:2``, … that is free.
    """
    counts = Counter(node.name for node in graph.node)
    seen: set[str] = set()
    for node in graph.node:
        if node.name and node.name in seen:
            number = 1
            while f"{node.name}:{number}" in counts:
                number += 1
            node.name = f"{node.name}:{number}"
            counts[node.name] += 1
        seen.add(node.name)
        for subgraph in subgraphs(node):
            make_names_unique(subgraph)


def check_names(graph: onnx.GraphProto, file: str) -> None:
    """Raise :class:`ModelError` unless every value of ``graph`` has exactly one producer."""
    inputs = [value.name for value in graph.input] + initializer_names(graph)
    produced = [name for node in graph.node for name in node.output if name]
    for name, count in Counter(inputs + produced).items():
        if count > 1:
            raise ModelError(f"{file}: value '{name}' is produced {count} times, must be once")
    outputs = [value.name for value in graph.output]
    if not outputs:
        raise ModelError(f"{file}: the graph has no outputs")
    for name, count in Counter(outputs).items():
        if count > 1:
            raise ModelError(f"{file}: output '{name}' is listed {count} times, must be once")
    known = {*inputs, *produced}
    for node in graph.node:
        for name in used_values(node):
            if name not in known:
                raise ModelError(f"{file}: node {label(node)} uses '{name}', which nobody produces")
    for name in outputs:
        if name not in known:
            raise ModelError(f"{file}: nobody produces the output '{name}'")


def sort_nodes(graph: onnx.GraphProto, file: str) -> None:
    """Put the nodes of ``graph`` in topological order, leaving a valid order as it is."""
    producer = producers(graph.node)
    edges = [
        (producer[name], user)
        for user, node in enumerate(graph.node)
        for name in used_values(node)
        if name in producer
    ]
    if all(source < user for source, user in edges):
        return
    import networkx as nx  # here, because importing it takes longer than importing the rest

    flow: nx.DiGraph[int] = nx.DiGraph(edges)
    flow.add_nodes_from(range(len(graph.node)))
    try:
        # Ties keep the old order, so that the result is deterministic.
        order = list(nx.lexicographical_topological_sort(flow))
    except nx.NetworkXUnfeasible as exc:
        members = [source for source, _ in nx.find_cycle(flow)]
        first = members.index(min(members))  # a canonical start, so that messages are stable
        cycle = [label(graph.node[i]) for i in members[first:] + members[:first]]
        shown = " → ".join([*cycle[:5], *(["…"] if len(cycle) > 5 else []), cycle[0]])
        raise ModelError(f"{file}: the nodes form a cycle: {shown}") from exc
    nodes = [onnx.NodeProto.FromString(graph.node[i].SerializeToString()) for i in order]
    del graph.node[:]
    graph.node.extend(nodes)
