"""Long stretches of nodes that take less time than a call of the runtime, joined to one brick.

A brick is measured by a call, which costs ten times as much as such a node: over thousands of
nodes, the subtracted call overhead would exceed their time by far. And in a long graph, a node
costs up to four times as much as an isolated one, because the runtime's data about thousands of
nodes exceed a core's caches. So the nodes of a stretch are measured together, in their order.

No shipped model has such a stretch: the longest is of seven nodes. Must not know runtimes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import TYPE_CHECKING

from bricks.graph.form import ModelForm, node_form
from bricks.graph.topology import subgraphs, used_values
from bricks.graph.types import TensorType
from bricks.operators.dependence import branches_on_values
from bricks.operators.registry import operator_of

if TYPE_CHECKING:
    import onnx

    from bricks.graph.model import Graph

# Shorter stretches are cut at every node.
SHORTEST = 32
# Longer stretches are divided: the call overhead is one per cent of one of this length, whose data
# fill a core's caches.
_LONGEST = 2048
# The least number of a stretch's nodes for each of its inputs and outputs: binding one takes longer
# than a node.
_NODES_A_PORT = 16
# The most bytes that a tiny node reads and writes.
_TINY_BYTES = 1 << 12


def stretches(graph: Graph) -> list[tuple[int, ...]]:
    """Return the node positions of each brick, in order: one node, or all nodes of a stretch."""
    cut: list[tuple[int, ...]] = []
    tiny = [_tiny(graph, node) for node in graph.nodes]
    last = _last_readers(graph) if sum(tiny) >= SHORTEST else {}
    for short, run in groupby(range(len(tiny)), tiny.__getitem__):
        for part in _parts(tuple(run)):
            joined = short and len(part) >= SHORTEST and _has_few_ports(graph, part, last)
            cut += [part] if joined else [(i,) for i in part]
    return cut


def _parts(positions: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    return (positions[i : i + _LONGEST] for i in range(0, len(positions), _LONGEST))


def _last_readers(graph: Graph) -> dict[str, int]:
    """The position of the last node that reads each value, beyond all for an output."""
    readers = {name: i for i, node in enumerate(graph.nodes) for name in used_values(node)}
    return readers | dict.fromkeys(graph.outputs, len(graph.nodes))


def _has_few_ports(graph: Graph, part: tuple[int, ...], last: Mapping[str, int]) -> bool:
    """Whether the nodes of ``part`` have few inputs from outside and few outputs."""
    nodes = [graph.nodes[i] for i in part]
    produced = {name for node in nodes for name in node.output if name}
    read = {name for node in nodes for name in used_values(node)}
    inputs = read - produced - graph.initializers.keys()
    outputs = [name for name in produced if last.get(name, len(graph.nodes)) > part[-1]]
    return _NODES_A_PORT * (len(inputs) + len(outputs)) <= len(part) + 2 * SHORTEST


def _tiny(graph: Graph, node: onnx.NodeProto) -> bool:
    """Whether the node does few operations, as many for any values of its inputs.

    Computed integers may be shapes or counts, whose values are observed for single nodes only.
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
