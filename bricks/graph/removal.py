"""Remove nodes from a graph: bypass them where that is defined, else give their results.

A node is bypassed if exactly one of the values that it computes with has the type of its only
result: its readers then read that value. Any other node costs nothing: its results become inputs of
the graph, and what only it read becomes outputs, which are still computed. Must not know runtimes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import onnx

from bricks.errors import ModelError, UsageError, suggestion
from bricks.graph.topology import all_nodes, initializer_names, used_values
from bricks.graph.types import TensorType
from bricks.graph.view import upstream

if TYPE_CHECKING:
    from bricks.graph.types import ValueType


@dataclass(frozen=True, slots=True)
class Removal:
    """A graph without some nodes; ``bypassed`` and ``given`` are their operators, one a node."""

    proto: onnx.ModelProto
    bypassed: tuple[str, ...]
    given: tuple[str, ...]


def matching_nodes(
    title: str, nodes: Sequence[onnx.NodeProto], patterns: Sequence[str]
) -> list[int]:
    """Return the positions of the nodes whose name, operator or first result a pattern matches.

    Patterns are those of shells: ``Relu``, ``block3/*``. Raises :class:`UsageError` for a pattern
    that matches no node of the model called ``title``.
    """
    chosen: set[int] = set()
    for pattern in patterns:
        found = [
            n
            for n, node in enumerate(nodes)
            if any(fnmatchcase(name, pattern) for name in (node.op_type, *_names(node)))
        ]
        if not found:
            known = [name for node in nodes for name in (node.op_type, *_names(node))]
            meant = suggestion(pattern, known, "it has")
            raise UsageError(f"no node of {title} is called {pattern!r}: {meant}")
        chosen.update(found)
    return sorted(chosen)


def _names(node: onnx.NodeProto) -> list[str]:
    return [name for name in (node.name, *node.output[:1]) if name]


def without_nodes(
    proto: onnx.ModelProto, positions: Sequence[int], types: Mapping[str, ValueType]
) -> Removal:
    """Return ``proto`` without the nodes at these ``positions``; ``types`` are those of all values.

    Raises :class:`ModelError` if nothing is left, or a result has no tensor's type.
    """
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    graph = copy.graph
    removed = [graph.node[position] for position in positions]
    read = {name for node in graph.node for name in used_values(node)}
    read |= {output.name for output in graph.output}
    sources = {id(node): _source(node, graph, types, read) for node in removed}
    bypassed = [node for node in removed if sources[id(node)] is not None]
    given = [node for node in removed if sources[id(node)] is None]
    aliases = {n: s for node in bypassed for n in node.output if (s := sources[id(node)])}
    results = [name for node in given for name in node.output if name]
    needs = [_resolved(name, aliases) for node in given for name in used_values(node)]
    gone = set(positions)
    kept = [node for position, node in enumerate(graph.node) if position not in gone]
    labels = tuple(n.op_type for n in bypassed), tuple(n.op_type for n in given)
    copies = []
    for node in kept:
        copies.append(onnx.NodeProto())
        copies[-1].CopyFrom(node)
    del graph.node[:]
    graph.node.extend(copies)
    for node in all_nodes(graph):
        for port, name in enumerate(node.input):
            node.input[port] = _resolved(name, aliases)
    names = list(dict.fromkeys(_resolved(output.name, aliases) for output in graph.output))
    fed = {value.name for value in graph.input}
    del graph.output[:]
    graph.output.extend(_info(name, types) for name in names if name not in fed)
    _give(graph, results, types)
    readers = Counter(name for node in graph.node for name in used_values(node))
    computed = {name for node in graph.node for name in node.output}
    outputs = {output.name for output in graph.output}
    # What the given results alone needed is computed all the same.
    unread = [n for n in dict.fromkeys(needs) if n in computed and not readers[n]]
    graph.output.extend(_info(name, types) for name in unread if name not in outputs)
    return Removal(_cleaned(copy), *labels)


def _source(
    node: onnx.NodeProto,
    graph: onnx.GraphProto,
    types: Mapping[str, ValueType],
    read: Collection[str],
) -> str | None:
    """The value that readers of ``node`` read in its place; None if that is not defined."""
    constants = set(initializer_names(graph))
    results = [name for name in node.output if name in read]
    if len(results) != 1:
        return None
    inputs = dict.fromkeys(name for name in node.input if name and name not in constants)
    equal = [name for name in inputs if types.get(name) == types.get(results[0])]
    return equal[0] if len(equal) == 1 else None


def _resolved(name: str, aliases: Mapping[str, str]) -> str:
    while name in aliases:
        name = aliases[name]
    return name


def _give(graph: onnx.GraphProto, results: Sequence[str], types: Mapping[str, ValueType]) -> None:
    """Make ``results`` inputs of ``graph`` as far as they are read, and no outputs."""
    read = {name for node in graph.node for name in used_values(node)}
    graph.input.extend(_info(name, types) for name in results if name in read)
    outputs = [output for output in graph.output if output.name not in results]
    del graph.output[:]
    graph.output.extend(outputs)


def _cleaned(proto: onnx.ModelProto) -> onnx.ModelProto:
    outputs = list(proto.graph.output)
    part = upstream(proto, [output.name for output in outputs])
    if not part.graph.node:
        raise ModelError(
            f"nothing is left of graph {proto.graph.name!r} without these nodes: remove fewer"
        )
    del part.graph.output[:]
    part.graph.output.extend(outputs)
    return part


def _info(name: str, types: Mapping[str, ValueType]) -> onnx.ValueInfoProto:
    type_ = types.get(name)
    if not isinstance(type_, TensorType):
        raise ModelError(f"value '{name}' is no tensor of a known shape: keep its node")
    dtype = onnx.TensorProto.DataType.Value(type_.dtype)
    return onnx.helper.make_tensor_value_info(name, dtype, type_.shape)
