"""Long stretches of nodes that take less than a call of the runtime, joined to one brick.

A brick is measured by a call, which costs ten times as much as such a node: of thousands of them,
the difference would be lost in what is subtracted. And in a long graph, a node costs up to four
times as much as alone, because what the runtime keeps of thousands of nodes does not fit into a
core's caches. So nodes in such a stretch are measured together, as they follow each other.

No shipped model has such a stretch: the longest is of seven nodes. Must not know runtimes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby

import onnx

from bricks.graph.form import ModelForm, node_form
from bricks.graph.graph import Graph
from bricks.graph.tensor import TensorType
from bricks.graph.topology import subgraphs, used_values
from bricks.operators.dependence import branches_on_values
from bricks.operators.registry import operator_of

# Of fewer nodes, bricks stay what they are.
SHORTEST = 32
# The call is a per cent of a stretch of so many nodes, which fill a core's caches by themselves.
_LONGEST = 2048
# So many of its nodes for each value that comes from outside or is read there: binding one takes
# longer than a node.
_NODES_A_PORT = 16
# Bytes of all that a node reads and writes.
_TINY_BYTES = 1 << 12


def stretches(graph: Graph) -> list[tuple[int, ...]]:
    """All positions of nodes in order: one by one, or those of a stretch together."""
    cut: list[tuple[int, ...]] = []
    tiny = [_tiny(graph, node) for node in graph.nodes]
    last = _last_readers(graph) if sum(tiny) >= SHORTEST else {}
    for short, run in groupby(range(len(tiny)), tiny.__getitem__):
        for part in _parts(tuple(run)):
            joined = short and len(part) >= SHORTEST and _narrow(graph, part, last)
            cut += [part] if joined else [(i,) for i in part]
    return cut


def _parts(positions: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    return (positions[i : i + _LONGEST] for i in range(0, len(positions), _LONGEST))


def _last_readers(graph: Graph) -> dict[str, int]:
    """The position of the last node that reads each value, beyond all for an output."""
    readers = {name: i for i, node in enumerate(graph.nodes) for name in used_values(node)}
    return readers | dict.fromkeys(graph.outputs, len(graph.nodes))


def _narrow(graph: Graph, part: tuple[int, ...], last: Mapping[str, int]) -> bool:
    """Whether few values come into the nodes of ``part`` and leave them."""
    nodes = [graph.nodes[i] for i in part]
    made = {name for node in nodes for name in node.output if name}
    read = {name for node in nodes for name in used_values(node)}
    come = read - made - graph.initializers.keys()
    leave = [name for name in made if last.get(name, len(graph.nodes)) > part[-1]]
    return _NODES_A_PORT * (len(come) + len(leave)) <= len(part) + 2 * SHORTEST


def _tiny(graph: Graph, node: onnx.NodeProto) -> bool:
    """Whether the node does the same few operations whatever it reads.

    Computed integers may be shapes and counts, which only single nodes are sure to get right.
    """
    if (
        node_form(node) is ModelForm.PROGRAMS
        or branches_on_values(operator_of(node))
        or any(True for _ in subgraphs(node))
    ):
        return False
    names = {*used_values(node), *filter(None, node.output)}
    types = [graph.types.get(name) for name in names]
    known = [type_ for type_ in types if isinstance(type_, TensorType) and type_.dtype != "STRING"]
    computed = [graph.types.get(name) for name in names - graph.initializers.keys()]
    floating = all(isinstance(type_, TensorType) and type_.floating for type_ in computed)
    return floating and len(known) == len(types) and sum(t.size_bytes for t in known) <= _TINY_BYTES
