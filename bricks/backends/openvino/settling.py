"""Make every group run alone what it runs in its model, by taking in neighbours where it does not.

OpenVINO chooses kernels and layouts by what is around them: a pooling alone is planar, behind a
convolution it is not. So each group is compiled alone, as it will be measured, and its kernels are
compared with those in the model. A group whose kernels differ takes in the groups that read its
results if that helps, and else those that its inputs come from, and is compared anew; in the end, a
whole model is what it is.

Where even that is not, each group takes in neighbours by itself, up to a limit, and one that no
neighbours help stays as it was: it cannot be measured, and others can.

Must not know how a group is compiled.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import networkx as nx
import onnx

from bricks.backends.openvino.execution import Kernel
from bricks.backends.openvino.grouping import Execution, Group, groups_of, makers_of, ordered
from bricks.graph.topology import used_values

# The kernels of groups, each compiled alone.
Alone = Callable[[Sequence[Group]], Sequence[Sequence[Kernel]]]

# How often a group takes in all that is next to it, where the whole model is not what it is.
_STEPS = 3


@dataclass(frozen=True, slots=True)
class Settled:
    """Groups in an order in which they can run; ``other_kernels`` run otherwise alone.

    These are by their first node, and what is said of each are its kernels in the model.
    """

    groups: Sequence[Group]
    other_kernels: Mapping[int, Sequence[str]]


@dataclass(frozen=True, slots=True)
class Cut:
    """A model ``proto`` as OpenVINO executes it, and the groups that may be its bricks.

    ``layouts`` are those of its values. Of the groups, the ``differing`` run other kernels
    ``alone``.
    """

    proto: onnx.ModelProto
    execution: Execution
    layouts: Mapping[str, str]
    alone: Alone
    groups: Sequence[Group]
    differing: Sequence[Group]

    @classmethod
    def of(
        cls,
        proto: onnx.ModelProto,
        execution: Execution,
        layouts: Mapping[str, str],
        alone: Alone,
    ) -> Cut:
        """Find the groups, and compile each."""
        found = groups_of(execution)
        return cls(proto, execution, layouts, alone, found, differing(execution, found, alone))

    def nodes_of_differing(self) -> list[onnx.NodeProto]:
        """The nodes of differing groups."""
        return [self.execution.graph.nodes[i] for group in self.differing for i in group]


def differing(execution: Execution, groups: Iterable[Group], alone: Alone) -> list[Group]:
    """Those of ``groups`` that run other kernels alone than in the model."""
    unique = list(dict.fromkeys(groups))
    pairs = zip(unique, alone(unique), strict=True)
    return [group for group, own in pairs if not _same(execution.kernels_of(group), own)]


def settled(execution: Execution, groups: Sequence[Group], alone: Alone) -> Settled:
    """``groups``, with those merged that run other kernels alone than in the model."""
    current = list(groups)
    while different := differing(execution, current, alone):
        before, after = (
            {group: _neighbours(execution, group, readers=readers) for group in different}
            for readers in (False, True)
        )
        if not all(before[group] or after[group] for group in different):
            return _limited(execution, groups, alone)
        # Some optimisations depend on what reads a value: a stride of the next convolution, say.
        grown = {
            group: _grown(execution, current, group, near) for group, near in after.items() if near
        }
        still = differing(execution, grown.values(), alone)
        helped = {group for group, larger in grown.items() if larger not in still}
        taken = {
            group: after[group] if group in helped or not before[group] else before[group]
            for group in different
        }
        current = _merged(execution, current, taken)
    return Settled(current, {})


def _limited(execution: Execution, groups: Sequence[Group], alone: Alone) -> Settled:
    """``groups``, each merged with the least neighbours that help it, within :data:`_STEPS`."""
    current, lost = list(groups), set[Group]()
    while different := set(differing(execution, current, alone)) - lost:
        helping = _helping(execution, current, sorted(different), alone)
        lost |= different - helping.keys()
        current = _merged(execution, current, helping)
    return Settled(
        current,
        {group[0]: _forms(execution.kernels_of(group)) for group in current if group in lost},
    )


def _helping(
    execution: Execution, groups: Sequence[Group], different: Sequence[Group], alone: Alone
) -> dict[Group, Group]:
    """Those of ``different`` that neighbours help, and the group that each is to be part of."""
    found: dict[Group, Group] = {}
    grown = {group: group for group in different}
    for _ in range(_STEPS):
        for sides in ((True,), (False,), (True, False)):
            larger = {
                group: _grown(execution, groups, own, [*own, *_around(execution, own, sides)])
                for group, own in grown.items()
                if group not in found
            }
            still = set(differing(execution, larger.values(), alone))
            found |= {group: own for group, own in larger.items() if own not in still}
        grown = larger
    return found


def _merged(
    execution: Execution, groups: Sequence[Group], taken: Mapping[Group, Sequence[int]]
) -> list[Group]:
    """``groups``, some of which have taken in the groups of other nodes."""
    joined: nx.Graph[int] = nx.Graph()
    joined.add_nodes_from(range(len(execution.graph.nodes)))
    for group in groups:
        nx.add_path(joined, group)
    for group, near in taken.items():
        for i in near:
            nx.add_path(joined, [group[0], i])
    return ordered(execution, [tuple(sorted(each)) for each in nx.connected_components(joined)])


def _grown(
    execution: Execution, groups: Sequence[Group], group: Group, near: Sequence[int]
) -> Group:
    """The group that ``group`` would be part of."""
    merged = _merged(execution, groups, {group: near})
    return next(each for each in merged if group[0] in each)


def _around(execution: Execution, group: Group, sides: Iterable[bool]) -> list[int]:
    """The neighbours of a group on each of ``sides``: those that read its results, or others."""
    return [i for readers in sides for i in _neighbours(execution, group, readers=readers)]


def _same(there: Sequence[Kernel], alone: Sequence[Kernel]) -> bool:
    """Whether kernels in the model are those that a group runs ``alone``."""
    inside, own = (Counter(kernel.form for kernel in kernels) for kernels in (there, alone))
    return inside == own or _laid_out_alike(there, alone)


def _forms(kernels: Sequence[Kernel]) -> list[str]:
    """What is said of kernels, in an order that does not depend on theirs."""
    return sorted(" ".join(kernel.form) for kernel in kernels) or ["nothing"]


def _laid_out_alike(there: Sequence[Kernel], alone: Sequence[Kernel]) -> bool:
    """Whether kernels differ only in the precision in which outputs are brought into their layout.

    A model and its bricks may leave an output in different ones, and so in different kernels.
    """
    forms = [Counter(k.form for k in kernels if not k.lays_out) for kernels in (there, alone)]
    last = [[k for k in kernels if k.lays_out] for kernels in (there, alone)]
    layouts = [Counter(k.layouts for k in kernels) for kernels in last]
    alike = {k.form for k in last[0]} & {k.form for k in last[1]}
    left = [{k.precision for k in kernels if k.form not in alike} for kernels in last]
    return forms[0] == forms[1] and layouts[0] == layouts[1] and left[0].isdisjoint(left[1])


def _neighbours(execution: Execution, group: Group, *, readers: bool) -> list[int]:
    """Nodes outside a group that make what it reads, or that read what it makes."""
    inside, makers = set(group), makers_of(execution.graph)
    nodes = execution.graph.nodes
    if not readers:
        read = [name for i in group for name in used_values(nodes[i])]
        return sorted({makers[name] for name in read if name in makers}.difference(inside))
    made = {name for i in group for name in nodes[i].output}
    return [
        i
        for i, node in enumerate(nodes)
        if i not in inside and made.intersection(used_values(node))
    ]
