"""Make every group run alone what it runs in its model, by taking in neighbours where it does not.

OpenVINO chooses kernels and layouts by what is around them: a pooling alone is planar, behind a
convolution it is not. So each group is compiled alone, as it will be measured, and its kernels are
compared with those in the model. A group whose kernels differ takes in the groups that read its
results if that helps, and else those that its inputs come from, and is compared anew; in the end, a
whole model is what it is.

Must not know how a group is compiled.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import networkx as nx

from bricks.backends.openvino.execution import Kernel
from bricks.backends.openvino.grouping import Execution, Group, makers_of, ordered
from bricks.errors import BackendError
from bricks.graph.topology import label, used_values

# The kernels of groups, each compiled alone.
Alone = Callable[[Sequence[Group]], Sequence[Sequence[Kernel]]]


def settled(execution: Execution, groups: Sequence[Group], alone: Alone) -> list[Group]:
    """``groups``, with those merged that run other kernels alone than in the model.

    Raises :class:`BackendError` where a group differs that has nothing to take in.
    """

    def differences(some: Sequence[Group]) -> dict[Group, str]:
        pairs = zip(some, alone(some), strict=True)
        return {group: told for group, own in pairs if (told := _difference(execution, group, own))}

    current = list(groups)
    while different := differences(current):
        before, after = (
            {group: _neighbours(execution, group, readers=readers) for group in different}
            for readers in (False, True)
        )
        for group, told in different.items():
            if not before[group] and not after[group]:
                raise BackendError(told)
        # Some optimisations depend on what reads a value: a stride of the next convolution, say.
        grown = {
            group: _grown(execution, current, group, near) for group, near in after.items() if near
        }
        still = differences([*dict.fromkeys(grown.values())])
        helped = {group for group, larger in grown.items() if larger not in still}
        taken = {
            group: after[group] if group in helped or not before[group] else before[group]
            for group in different
        }
        current = _merged(execution, current, taken)
    return current


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


def _difference(execution: Execution, group: Group, alone: Sequence[Kernel]) -> str:
    """What a group runs alone instead of what it runs in the model; empty if that is the same."""
    there = execution.kernels_of(group)
    inside, own = (Counter(kernel.form for kernel in kernels) for kernels in (there, alone))
    if inside == own or _laid_out_alike(there, alone):
        return ""
    first = label(execution.graph.nodes[group[0]])
    return (
        f"OpenVINO runs {_listed(own - inside)} for {first} and what belongs to it alone, and"
        f" {_listed(inside - own)} in the model: it cannot be measured by itself"
    )


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


def _listed(forms: Counter[tuple[str, ...]]) -> str:
    return ", ".join(" ".join(form) for form in sorted(forms)) or "nothing"


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
