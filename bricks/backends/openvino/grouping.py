"""Groups of source nodes that OpenVINO executes as one, and the layouts of values between them.

A kernel's source nodes are a group. It also takes in nodes that share a kernel with others, removed
nodes, with their readers, and other views of a value, which take no time where the value is made.
Groups are convex: none waits for a node that waits for the group itself.

Groups are merged until each runs, in isolation, the kernels that it runs in its model. OpenVINO
chooses kernels and layouts by the nodes around them: a pooling in isolation is planar, behind a
convolution it is not. So each group is compiled in isolation, as it will be measured, and its
kernels are compared with those in the model. A group whose kernels differ is merged with the groups
that read its results if that helps, else with the groups that make its inputs, and is compared
again; in the end, a whole model runs its own kernels.

Where even that differs, each group is merged with neighbours separately, up to a limit, and a group
that no neighbours help stays as it was: it cannot be measured, and others can.

Must not know how a group is compiled or run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import onnx

from bricks.backends.node_groups import Group, connected, convex
from bricks.backends.openvino.boundary import is_channels_last
from bricks.backends.openvino.execution import CONSTANT_NODES, PORTS, VIEW, CompiledKernel
from bricks.backends.openvino.precision import is_storing_cast
from bricks.graph.model import Graph
from bricks.graph.topology import producers, used_values

# Kinds of kernels that are views where OpenVINO names no implementation, since none is needed.
_CONCATENATION = "Concatenation"
_SOMETIMES_VIEWS = frozenset((_CONCATENATION, "Split", "Gather", "StridedSlice"))
_NO_PRIMITIVE = "unknown"

# Operators that OpenVINO computes on weights when it compiles, and those that may lie between.
_MERGED = frozenset(("Mul", "Div"))
_CAST = "Cast"
_PASSING = frozenset(("Transpose", "Reshape", "Squeeze", "Unsqueeze", "Add", "Mul", "Div", _CAST))

# The kernel that remains of a normalisation without scale and shift, under a name of OpenVINO's.
_NORMALISING, _NORMALISATION = "MVN", "Normalization"

# A convolution adds another value to its result in place.
_CONVOLUTION = "Convolution"
_OVERWRITING = frozenset(("MVN", "NormalizeL2"))


@dataclass(frozen=True, slots=True)
class Execution:
    """A graph and the kernels that execute it; ``owner`` maps a kernel's number to its node.

    A normalisation owns the kernel that remains of it. Other kernels that OpenVINO adds belong to
    the node whose inputs they prepare, or else to the one whose results they convert. Inputs,
    outputs and constants have no owner.
    """

    graph: Graph
    kernels: Sequence[CompiledKernel]
    owner: dict[int, int]

    @classmethod
    def of(cls, graph: Graph, kernels: Sequence[CompiledKernel]) -> Execution:
        """Find the owners."""
        owner = {n: min(k.positions) for n, k in enumerate(kernels) if k.positions and _runs(k)}
        owner |= _nameless(graph, kernels, owner)
        for n in reversed(range(len(kernels))):  # from readers to producers
            for source, _ in kernels[n].sources:
                if n in owner and source not in owner and _runs(kernels[source]):
                    owner[source] = owner[n]
        for n, kernel in enumerate(kernels):
            if n not in owner and _runs(kernel):
                made = [owner[source] for source, _ in kernel.sources if source in owner]
                owner.update((n, first) for first in made[:1])
        return cls(graph, kernels, owner)

    def kernels_of(self, group: Iterable[int]) -> list[CompiledKernel]:
        """The computing kernels of the nodes of a group, in order."""
        inside = set(group)
        return [
            kernel
            for n, kernel in enumerate(self.kernels)
            if self.owner.get(n) in inside and kernel.computes
        ]

    def nodes_of(self, number: int) -> Iterable[int]:
        """The nodes that the kernel ``number``, which has an owner, runs for."""
        return self.kernels[number].positions or (self.owner[number],)


def groups_of(execution: Execution) -> list[Group]:
    """The groups of all nodes, in an order in which they can run."""
    kernels, owner = execution.kernels, execution.owner
    links: list[Sequence[int]] = []
    for n in owner:
        links.append(sorted(kernels[n].positions))
        links.append([owner[n], *(owner[m] for m in _viewed(kernels, n) if m in owner)])
    executed = {position for n in owner for position in execution.nodes_of(n)}
    return linked(execution, [*links, *_removed(execution.graph, executed)])


def linked(execution: Execution, links: Iterable[Sequence[int]]) -> list[Group]:
    """The smallest convex groups of all nodes in which the nodes of each link are together.

    They are in an order in which they can run, as close to OpenVINO's as possible.
    """
    nodes = execution.graph.nodes
    first: dict[int, int] = {}  # by node, the execution order of its first kernel
    for n in sorted(execution.owner):
        for position in execution.nodes_of(n):
            first.setdefault(position, execution.kernels[n].order)
    sets = connected(len(nodes), links)
    return convex(nodes, sets, rank=lambda group: min(first.get(i, i) for i in group))


def layouts(execution: Execution) -> dict[str, str]:
    """The layouts of the values that OpenVINO keeps with their channels last, by name.

    The layout of a value is that in which the kernel of its node leaves it. Inputs and outputs of
    the graph are planar.
    """
    graph = execution.graph
    last: dict[int, CompiledKernel] = {}
    for n, kernel in enumerate(execution.kernels):
        if kernel.computes and n in execution.owner:
            last.update((position, kernel) for position in kernel.positions)
    result = {}
    for position, kernel in last.items():
        for output, name in enumerate(graph.nodes[position].output):
            if not name or name in graph.outputs or name not in graph.types:
                continue
            layout = kernel.layout(output)
            shape = graph.types[name].shape
            if is_channels_last(layout, len(shape)) and shape[1] > 1 and set(shape[2:]) != {1}:
                result[name] = layout
    return result


def in_place(execution: Execution) -> dict[str, str]:
    """By name of a value, the value that OpenVINO overwrites with it.

    A convolution adds in place to the value that is added to its result; some normalisations
    overwrite their input. Values with other readers, and inputs, are not overwritten.
    """
    graph = execution.graph
    overwritten = {}
    for n, kernel in enumerate(execution.kernels):
        if n not in execution.owner or not kernel.positions:
            continue
        made = graph.nodes[max(kernel.positions)].output[0]
        read = [m for m, _ in kernel.sources if not execution.kernels[m].constant]
        if kernel.kind == _CONVOLUTION and len(read) > 1:
            summand = _summand(execution, kernel, read[-1])
            if summand and made:
                overwritten[made] = summand
        elif kernel.kind in _OVERWRITING and made:
            overwritten[made] = graph.nodes[min(kernel.positions)].input[0]
    readers = Counter(name for node in graph.nodes for name in used_values(node))
    readers.update(graph.outputs)
    return {
        made: over
        for made, over in overwritten.items()
        if over not in graph.inputs
        and readers[over] == 1
        and graph.types.get(over) == graph.types[made]
    }


def _runs(kernel: CompiledKernel) -> bool:
    return not kernel.constant and kernel.kind not in PORTS


def _nameless(
    graph: Graph, kernels: Sequence[CompiledKernel], owner: Mapping[int, int]
) -> dict[int, int]:
    """By number of a kernel without source nodes, the normalisation of which it remains."""
    executed = {position for n in owner for position in kernels[n].positions}
    candidates = [
        (i, set(node.input[:1]))
        for i, node in enumerate(graph.nodes)
        if node.op_type.endswith(_NORMALISATION) and i not in executed
    ]
    result: dict[int, int] = {}
    for n, kernel in enumerate(kernels):
        if kernel.kind == _NORMALISING and n not in owner:
            before = [result.get(m, owner.get(m)) for m, _ in kernel.sources]
            sources = {i for m, _ in kernel.sources for i in kernels[m].positions}
            sources.update(i for i in before if i is not None)
            made = {name for i in sources for name in graph.nodes[i].output}
            reading = (i for i, read in candidates if i not in result.values() and read & made)
            result.update((n, i) for i in [*reading][:1])
    return result


def _viewed(kernels: Sequence[CompiledKernel], n: int) -> Iterator[int]:
    """The kernels that must run with the kernel ``n`` because it is only a view of a value."""
    kernel = kernels[n]
    nothing = kernel.kind in _SOMETIMES_VIEWS and kernel.primitive.startswith(_NO_PRIMITIVE)
    if kernel.kind != VIEW and not nothing:
        return
    sources = [m for m, _ in kernel.sources if _runs(kernels[m])]
    if kernel.kind == _CONCATENATION:
        yield from sources
    elif kernel.kind == VIEW and sources:
        yield sources[0]
    else:
        readers = (m for m, other in enumerate(kernels) if any(s == n for s, _ in other.sources))
        yield from readers


def _removed(graph: Graph, executed: set[int]) -> Iterator[tuple[int, int]]:
    """Removed nodes, each with a node that reads its result, or else that it reads."""
    makers = producers(graph.nodes)
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
        if is_storing_cast(node) and before[0] in in_weights:
            yield i, before[0]
        elif after or before:
            yield i, (after or before)[0]


def _merged(graph: Graph, makers: Mapping[str, int], position: int) -> Iterator[tuple[int, int]]:
    """The way back from a node that has become part of weights, to the node with the weights."""
    while True:
        before = [makers[n] for n in graph.nodes[position].input if n in makers]
        before = [i for i in before if graph.nodes[i].op_type not in CONSTANT_NODES]
        if len(before) != 1:
            return
        yield position, before[0]
        position = before[0]
        if graph.nodes[position].op_type not in _PASSING:
            return


def _summand(execution: Execution, kernel: CompiledKernel, source: int) -> str | None:
    """The value that a convolution adds to its result, by the kernel that it comes from."""
    graph, inside = execution.graph, kernel.positions
    made = {name: graph.nodes[i] for i in inside for name in graph.nodes[i].output}
    outside = []
    for i in sorted(inside, reverse=True):
        for name in graph.nodes[i].input if graph.nodes[i].op_type in ("Add", "Sum") else ():
            read = made[name].input[0] if name in made and made[name].op_type == _CAST else name
            if read not in made and read not in graph.initializers:
                outside.append(read)
    makers = producers(graph.nodes)
    from_source = [n for n in outside if makers.get(n) in execution.kernels[source].positions]
    return next(iter(from_source or outside), None)


# The kernels of groups, each compiled in isolation.
Compile = Callable[[Sequence[Group]], Sequence[Sequence[CompiledKernel]]]

# How often a group takes in all its neighbours, where the whole model does not run its own kernels.
_STEPS = 3


@dataclass(frozen=True, slots=True)
class Merging:
    """Merges groups of the nodes of an ``execution``, and compiles them in isolation."""

    execution: Execution
    compile: Compile

    def differing(self, groups: Iterable[Group]) -> list[Group]:
        """The ``groups`` that run other kernels in isolation than in the model."""
        unique = list(dict.fromkeys(groups))
        pairs = zip(unique, self.compile(unique), strict=True)
        return [
            group
            for group, isolated in pairs
            if not _same_kernels(self.execution.kernels_of(group), isolated)
        ]

    def merged(
        self, groups: Sequence[Group]
    ) -> tuple[Sequence[Group], Mapping[int, Sequence[str]]]:
        """``groups``, merged where they differ, in an order in which they can run.

        And the kernels in the model of groups that still differ, by the group's first node.
        """
        current = list(groups)
        while differing := self.differing(current):
            before = {group: self._sources(group) for group in differing}
            after = {group: self._readers(group) for group in differing}
            if not all(before[group] or after[group] for group in differing):
                return self._merged_within_limit(groups)
            # Some optimisations depend on readers: on the stride of the next convolution, say.
            larger = {g: self._grown(current, g, near) for g, near in after.items() if near}
            still = self.differing(larger.values())
            helped = {group for group, grown in larger.items() if grown not in still}
            current = self._with_neighbours(
                current,
                {
                    group: after[group] if group in helped or not before[group] else before[group]
                    for group in differing
                },
            )
        return current, {}

    def _merged_within_limit(
        self, groups: Sequence[Group]
    ) -> tuple[Sequence[Group], Mapping[int, Sequence[str]]]:
        """``groups``, each merged with the fewest neighbours that help it, in few steps."""
        current, hopeless = list(groups), set[Group]()
        while differing := set(self.differing(current)) - hopeless:
            helping = self._helping(current, sorted(differing))
            hopeless |= differing - helping.keys()
            current = self._with_neighbours(current, helping)
        return current, {
            group[0]: sorted(" ".join(k.signature) for k in self.execution.kernels_of(group))
            or ["nothing"]
            for group in current
            if group in hopeless
        }

    def _helping(self, groups: Sequence[Group], differing: Sequence[Group]) -> dict[Group, Group]:
        """By differing group, the larger group in which its kernels are those of the model.

        Groups that no neighbours help are missing.
        """
        helping: dict[Group, Group] = {}
        grown = {group: group for group in differing}

        def all_neighbours(group: Group) -> list[int]:
            return [*self._readers(group), *self._sources(group)]

        for _ in range(_STEPS):
            for neighbours in (self._readers, self._sources, all_neighbours):
                larger = {
                    group: self._grown(groups, own, [*own, *neighbours(own)])
                    for group, own in grown.items()
                    if group not in helping
                }
                still = set(self.differing(larger.values()))
                helping |= {group: own for group, own in larger.items() if own not in still}
            grown = larger
        return helping

    def _with_neighbours(
        self, groups: Sequence[Group], neighbours: Mapping[Group, Sequence[int]]
    ) -> list[Group]:
        near = [(group[0], i) for group, nodes in neighbours.items() for i in nodes]
        return linked(self.execution, [*groups, *near])

    def _grown(self, groups: Sequence[Group], group: Group, near: Sequence[int]) -> Group:
        merged = self._with_neighbours(groups, {group: near})
        return next(larger for larger in merged if group[0] in larger)

    def _sources(self, group: Group) -> list[int]:
        nodes = self.execution.graph.nodes
        makers = producers(nodes)
        read = [name for i in group for name in used_values(nodes[i])]
        return sorted({makers[name] for name in read if name in makers}.difference(group))

    def _readers(self, group: Group) -> list[int]:
        nodes, inside = self.execution.graph.nodes, set(group)
        made = {name for i in group for name in nodes[i].output}
        return [
            i
            for i, node in enumerate(nodes)
            if i not in inside and made.intersection(used_values(node))
        ]


@dataclass(frozen=True, slots=True)
class GroupedModel:
    """A model ``proto`` as OpenVINO executes it, and the groups of nodes that may be its bricks.

    ``layouts`` are those of its values, by name. The groups ``differing`` run other kernels in
    isolation.
    """

    proto: onnx.ModelProto
    merging: Merging
    layouts: Mapping[str, str]
    groups: Sequence[Group]
    differing: Sequence[Group]

    @classmethod
    def of(
        cls, proto: onnx.ModelProto, merging: Merging, layouts: Mapping[str, str]
    ) -> GroupedModel:
        """Find the groups, and compile each."""
        groups = groups_of(merging.execution)
        return cls(proto, merging, layouts, groups, merging.differing(groups))

    def differing_nodes(self) -> list[onnx.NodeProto]:
        """The nodes of differing groups."""
        nodes = self.merging.execution.graph.nodes
        return [nodes[i] for group in self.differing for i in group]


def _same_kernels(in_model: Sequence[CompiledKernel], isolated: Sequence[CompiledKernel]) -> bool:
    """Whether a group runs the same kernels in its model and in isolation, in any order.

    They may differ in the precision in which outputs are brought into their layout: a model and its
    bricks may leave an output in different ones, and so in different kernels.
    """
    both = (in_model, isolated)
    own, there = (Counter(kernel.signature for kernel in kernels) for kernels in both)
    if own == there:
        return True
    last = [[k for k in kernels if k.reorders_output] for kernels in both]
    own, there = (
        Counter(k.signature for k in kernels if not k.reorders_output) for kernels in both
    )
    layouts = [Counter(k.layouts for k in kernels) for kernels in last]
    common = {k.signature for k in last[0]} & {k.signature for k in last[1]}
    left = [{k.precision for k in kernels if k.signature not in common} for kernels in last]
    return own == there and layouts[0] == layouts[1] and left[0].isdisjoint(left[1])
