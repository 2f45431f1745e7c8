"""Merge groups of nodes until each runs, in isolation, the kernels that it runs in its model.

OpenVINO chooses kernels and layouts by the nodes around them: a pooling in isolation is planar,
behind a convolution it is not. So each group is compiled in isolation, as it will be measured, and
its kernels are compared with those in the model. A group whose kernels differ is merged with the
groups that read its results if that helps, else with the groups that make its inputs, and is
compared again; in the end, a whole model runs its own kernels.

Where even that differs, each group is merged with neighbours separately, up to a limit, and a group
that no neighbours help stays as it was: it cannot be measured, and others can.

Must not know how a group is compiled.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bricks.backends.node_groups import Group
from bricks.backends.openvino.execution import CompiledKernel
from bricks.backends.openvino.grouping import Execution, groups_of, linked
from bricks.graph.topology import producers, used_values

if TYPE_CHECKING:
    import onnx

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
            group[0]: _signatures(self.execution.kernels_of(group))
            for group in current
            if group in hopeless
        }

    def _helping(self, groups: Sequence[Group], differing: Sequence[Group]) -> dict[Group, Group]:
        """By differing group, the larger group in which its kernels are those of the model.

        Groups that no neighbours help are missing.
        """
        helping: dict[Group, Group] = {}
        grown = {group: group for group in differing}
        for _ in range(_STEPS):
            for neighbours in (self._readers, self._sources, self._all_neighbours):
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
        """``groups``, merged with the groups of their ``neighbours``, which are nodes."""
        near = [(group[0], i) for group, nodes in neighbours.items() for i in nodes]
        return linked(self.execution, [*groups, *near])

    def _grown(self, groups: Sequence[Group], group: Group, near: Sequence[int]) -> Group:
        """The group of which ``group`` is part once it is merged with the nodes ``near``."""
        merged = self._with_neighbours(groups, {group: near})
        return next(larger for larger in merged if group[0] in larger)

    def _sources(self, group: Group) -> list[int]:
        """Nodes outside a group that make values which it reads."""
        nodes = self.execution.graph.nodes
        makers = producers(nodes)
        read = [name for i in group for name in used_values(nodes[i])]
        return sorted({makers[name] for name in read if name in makers}.difference(group))

    def _readers(self, group: Group) -> list[int]:
        """Nodes outside a group that read values which it makes."""
        nodes, inside = self.execution.graph.nodes, set(group)
        made = {name for i in group for name in nodes[i].output}
        return [
            i
            for i, node in enumerate(nodes)
            if i not in inside and made.intersection(used_values(node))
        ]

    def _all_neighbours(self, group: Group) -> list[int]:
        return [*self._readers(group), *self._sources(group)]


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


def _signatures(kernels: Sequence[CompiledKernel]) -> list[str]:
    """The signatures of kernels as texts, sorted: the order of kernels does not count."""
    return sorted(" ".join(kernel.signature) for kernel in kernels) or ["nothing"]
