"""Which source nodes OpenVINO executes as one, and in which layouts these pass values on.

A kernel's source nodes are a group. So are nodes that share a kernel with others, nodes that
vanish, with what reads them, and other views of a value, which take no time where the value is
made. Groups are convex: none waits for a node that waits for itself.

Must not know how a group runs alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import networkx as nx

from bricks.backends.openvino.bfloat16 import stores
from bricks.backends.openvino.execution import MADE_CONSTANTS, Kernel
from bricks.backends.openvino.wrapping import is_channels_last
from bricks.graph.graph import Graph
from bricks.graph.topology import used_values

Group = tuple[int, ...]

# Views of a value: always, or where OpenVINO names no implementation, since it has nothing to do.
_VIEW, _CONCATENATION = "Reshape", "Concatenation"
_SOMETIMES_VIEWS = frozenset((_CONCATENATION, "Split", "Gather", "StridedSlice"))
_NOTHING = "unknown"

# What OpenVINO multiplies weights with, and what may be between.
_MERGED = frozenset(("Mul", "Div"))
_CAST = "Cast"
_PASSING = frozenset(("Transpose", "Reshape", "Squeeze", "Unsqueeze", "Add", "Mul", "Div", _CAST))

# What is left of a normalisation that scales and shifts nothing, under a name of OpenVINO's own.
_NORMALISING, _NORMALISATION = "MVN", "Normalization"

# A convolution to whose result another value is added in place.
_CONVOLUTION = "Convolution"
_OVERWRITING = frozenset(("MVN", "NormalizeL2"))


@dataclass(frozen=True, slots=True)
class Execution:
    """A graph and the kernels that execute it; ``owner`` has the kernel's node, by its number.

    A normalisation owns the kernel that is left of it. Other kernels that OpenVINO adds belong to
    the node whose inputs they prepare, or else to the one whose results they convert. Inputs,
    outputs and constants have no owner.
    """

    graph: Graph
    kernels: Sequence[Kernel]
    owner: dict[int, int]

    @classmethod
    def of(cls, graph: Graph, kernels: Sequence[Kernel]) -> Execution:
        """Find the owners."""
        owner = {
            n: min(k.positions)
            for n, k in enumerate(kernels)
            if k.positions and not k.constant and k.kind not in ("Input", "Output")
        }
        owner |= _nameless(graph, kernels, owner)
        for n in reversed(range(len(kernels))):  # from what reads to what is read
            for source, _ in kernels[n].sources:
                if n in owner and source not in owner and _added(kernels[source]):
                    owner[source] = owner[n]
        for n, kernel in enumerate(kernels):
            if n not in owner and _added(kernel):
                made = [owner[source] for source, _ in kernel.sources if source in owner]
                owner.update((n, each) for each in made[:1])
        return cls(graph, kernels, owner)

    def kernels_of(self, group: Iterable[int]) -> list[Kernel]:
        """The kernels that work for the nodes of a group, in order."""
        inside = set(group)
        return [
            kernel
            for n, kernel in enumerate(self.kernels)
            if self.owner.get(n) in inside and kernel.works
        ]


def groups_of(execution: Execution) -> list[Group]:
    """The groups of all nodes, in an order in which they can run."""
    graph, kernels, owner = execution.graph, execution.kernels, execution.owner
    joined: nx.Graph[int] = nx.Graph()
    joined.add_nodes_from(range(len(graph.nodes)))
    for n, kernel in enumerate(kernels):
        if n in owner:
            nx.add_path(joined, sorted(kernel.positions))
            nx.add_path(joined, [owner[n], *(owner[m] for m in _viewed(kernels, n) if m in owner)])
    executed = {position for n in owner for position in kernels[n].positions or (owner[n],)}
    for i, j in _vanishing(graph, executed):
        joined.add_edge(i, j)
    return ordered(execution, [tuple(sorted(g)) for g in nx.connected_components(joined)])


def ordered(execution: Execution, found: Iterable[Group]) -> list[Group]:
    """``found`` made convex, in an order in which they can run: OpenVINO's, as far as it is one."""
    found = list(found)
    group_of = {i: number for number, group in enumerate(found) for i in group}
    first, makers = _first_kernels(execution), makers_of(execution.graph)
    flow: nx.DiGraph[int] = nx.DiGraph()
    flow.add_nodes_from(range(len(found)))
    for i, node in enumerate(execution.graph.nodes):
        for maker in (makers[name] for name in used_values(node) if name in makers):
            if group_of[maker] != group_of[i]:
                flow.add_edge(group_of[maker], group_of[i])
    merged = nx.condensation(flow)
    convex = {
        number: tuple(sorted(i for member in data["members"] for i in found[member]))
        for number, data in merged.nodes(data=True)
    }
    order = nx.lexicographical_topological_sort(
        merged, key=lambda number: min(first.get(i, i) for i in convex[number])
    )
    return [convex[number] for number in order]


def layouts(execution: Execution) -> dict[str, str]:
    """The layouts of the values that OpenVINO keeps with their channels last, by name.

    The layout of a value is that in which the kernel of its node leaves it. Inputs and outputs of
    the graph are planar.
    """
    graph = execution.graph
    last: dict[int, Kernel] = {}
    for n, kernel in enumerate(execution.kernels):
        if kernel.works and n in execution.owner and kernel.positions:
            last.update((position, kernel) for position in kernel.positions)
    found = {}
    for position, kernel in last.items():
        for output, name in enumerate(graph.nodes[position].output):
            if not name or name in graph.outputs or name not in graph.types:
                continue
            layout = kernel.layout(output)
            shape = graph.types[name].shape
            if is_channels_last(layout, len(shape)) and shape[1] > 1 and set(shape[2:]) != {1}:
                found[name] = layout
    return found


def in_place(execution: Execution) -> dict[str, str]:
    """The values that OpenVINO writes over another one, by name, and that other one.

    A convolution adds in place to the value that is added to its result; some normalisations
    overwrite what they read. A value that others read too, or an input, is not written over.
    """
    graph = execution.graph
    found = {}
    for n, kernel in enumerate(execution.kernels):
        if n not in execution.owner:
            continue
        made = graph.nodes[max(kernel.positions)].output[0] if kernel.positions else ""
        read = [m for m, _ in kernel.sources if not execution.kernels[m].constant]
        if kernel.kind == _CONVOLUTION and len(read) > 1:
            summand = _summand(execution, kernel, read[-1])
            if summand and made:
                found[made] = summand
        elif kernel.kind in _OVERWRITING and made:
            found[made] = graph.nodes[min(kernel.positions)].input[0]
    readers = Counter(name for node in graph.nodes for name in used_values(node))
    readers.update(graph.outputs)
    return {
        made: over
        for made, over in found.items()
        if over not in graph.inputs
        and readers[over] == 1
        and graph.types.get(over) == graph.types[made]
    }


def makers_of(graph: Graph) -> dict[str, int]:
    """The position of the node that makes a value, by the value's name."""
    return {name: i for i, node in enumerate(graph.nodes) for name in node.output if name}


def _added(kernel: Kernel) -> bool:
    return not kernel.constant and kernel.kind not in ("Input", "Parameter", "Output", "Result")


def _nameless(graph: Graph, kernels: Sequence[Kernel], owner: Mapping[int, int]) -> dict[int, int]:
    """The normalisations of which only a kernel without a name of theirs is left, by its number."""
    executed = {position for n in owner for position in kernels[n].positions}
    left = [
        (i, set(node.input[:1]))
        for i, node in enumerate(graph.nodes)
        if node.op_type.endswith(_NORMALISATION) and i not in executed
    ]
    found: dict[int, int] = {}
    for n, kernel in enumerate(kernels):
        if kernel.kind == _NORMALISING and n not in owner:
            before = [found.get(m, owner.get(m)) for m, _ in kernel.sources]
            whole = {i for m, _ in kernel.sources for i in kernels[m].positions}.union(
                i for i in before if i is not None
            )
            made = {name for i in whole for name in graph.nodes[i].output}
            reading = (i for i, read in left if i not in found.values() and read & made)
            found.update((n, i) for i in [*reading][:1])
    return found


def _viewed(kernels: Sequence[Kernel], n: int) -> Iterator[int]:
    """The kernels that must run with the kernel ``n`` because it only shows values anew."""
    kernel = kernels[n]
    nothing = kernel.kind in _SOMETIMES_VIEWS and kernel.primitive.startswith(_NOTHING)
    if kernel.kind != _VIEW and not nothing:
        return
    sources = [m for m, _ in kernel.sources if _added(kernels[m])]
    if kernel.kind == _CONCATENATION:
        yield from sources
    elif kernel.kind == _VIEW and sources:
        yield sources[0]
    else:
        yield from (m for m, each in enumerate(kernels) if any(s == n for s, _ in each.sources))


def _vanishing(graph: Graph, executed: set[int]) -> Iterator[tuple[int, int]]:
    """Nodes of which nothing is left, each with a node that reads its result, or that it reads."""
    makers = makers_of(graph)
    readers: dict[str, int] = {}
    in_weights: set[int] = set()
    for i, node in reversed(list(enumerate(graph.nodes))):
        readers.update((name, i) for name in used_values(node))
    for i, node in enumerate(graph.nodes):
        if i in executed:
            continue
        back = list(_merged(graph, makers, i)) if node.op_type in _MERGED else []
        if back and not executed.isdisjoint(back[-1]):
            in_weights.add(i)
            yield from back
            continue
        after = [readers[name] for name in node.output if name in readers]
        before = [makers[name] for name in used_values(node) if name in makers]
        if stores(node) and before[0] in in_weights:
            yield i, before[0]
        elif after or before:
            yield i, (after or before)[0]


def _merged(graph: Graph, makers: Mapping[str, int], position: int) -> Iterator[tuple[int, int]]:
    """The way back from a node that has become part of weights, to the node with the weights."""
    while True:
        before = [makers[n] for n in graph.nodes[position].input if n in makers]
        before = [i for i in before if graph.nodes[i].op_type not in MADE_CONSTANTS]
        if len(before) != 1:
            return
        yield position, before[0]
        position = before[0]
        if graph.nodes[position].op_type not in _PASSING:
            return


def _first_kernels(execution: Execution) -> dict[int, int]:
    """By node, the number of the first kernel that works for it."""
    first: dict[int, int] = {}
    for n, kernel in enumerate(execution.kernels):
        if n in execution.owner:
            for position in kernel.positions or (execution.owner[n],):
                first.setdefault(position, kernel.order)
    return first


def _summand(execution: Execution, kernel: Kernel, source: int) -> str | None:
    """The value that a convolution adds to its result, by the kernel that it comes from."""
    graph = execution.graph
    inside = kernel.positions
    made = {name: graph.nodes[i] for i in inside for name in graph.nodes[i].output}
    outside = []
    for i in sorted(inside, reverse=True):
        for name in graph.nodes[i].input if graph.nodes[i].op_type in ("Add", "Sum") else ():
            read = made[name].input[0] if name in made and made[name].op_type == _CAST else name
            if read not in made and read not in graph.initializers:
                outside.append(read)
    maker = makers_of(graph)
    from_there = [n for n in outside if maker.get(n) in execution.kernels[source].positions]
    return next(iter(from_there or outside), None)
