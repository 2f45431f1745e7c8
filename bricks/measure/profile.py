"""A runtime's own profile of a whole model: which of its nodes ran when, in a typical run.

Runtimes write down when they begin and end a node. That costs time itself, so that a run with a
profile takes longer than one without: it is looked at beside measurements, and never one of them.
It must not know how the worker was asked, nor how a profile is drawn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bricks.decompose.granularity import EXECUTED
from bricks.decompose.plan import Decomposition


@dataclass(frozen=True, slots=True)
class NodeRun:
    """A node of the executed graph in one run, in seconds from the run's beginning.

    ``lane`` numbers the threads, by first use. ``position`` is the node's place in the executed
    graph; None where it is inside of another node (in the body of a loop).
    """

    name: str
    operator: str
    begin_s: float
    end_s: float
    lane: int
    position: int | None


@dataclass(frozen=True, slots=True)
class Profile:
    """One of several runs, of which all take ``runs_s``: the one called ``typical``, by number.

    ``nodes`` are in the order in which they began, and what ran inside of one follows it at once.
    ``unmatched`` says why they are not the plan's
    occurrences; if None, a node's position is its occurrence's. So many nodes inside of others were
    left out (``omitted``).
    """

    runs_s: tuple[float, ...]
    typical: int
    nodes: tuple[NodeRun, ...]
    unmatched: str | None = None
    omitted: int = 0

    @property
    def latency_s(self) -> float:
        """What the typical run took."""
        return self.runs_s[self.typical]

    @property
    def nodes_s(self) -> float:
        """What its nodes took, each one's inner nodes in it."""
        return sum(node.end_s - node.begin_s for node in self.nodes if node.position is not None)

    @property
    def lanes(self) -> int:
        """How many threads ran nodes."""
        return max((node.lane for node in self.nodes), default=0) + 1

    @property
    def of_occurrences(self) -> Mapping[int, NodeRun]:
        """The nodes by the position of their occurrence in the plan; none if they are unmatched."""
        if self.unmatched is not None:
            return {}
        return {node.position: node for node in self.nodes if node.position is not None}


@dataclass(frozen=True, slots=True)
class NoProfile:
    """Why there is no profile, in one line."""

    reason: str


def profile_of(answer: Mapping[str, Any], decomposition: Decomposition) -> Profile:
    """The profile in a worker's ``answer``, with the plan's occurrences found in it."""
    nodes = _as_begun([NodeRun(*fields) for fields in answer["nodes"]])
    return Profile(
        runs_s=tuple(answer["runs_s"]),
        typical=answer["typical"],
        nodes=tuple(nodes),
        unmatched=_unlike(nodes, decomposition),
        omitted=answer["omitted"],
    )


def _as_begun(ended: Sequence[NodeRun]) -> list[NodeRun]:
    """Nodes, which come as they ended, in the order in which they began; lanes numbered anew.

    Clocks are coarse: of nodes that began at once, the one that ended first came first.
    """
    inner: dict[int, list[NodeRun]] = {}  # by lane, while the node around them has not ended
    groups = []
    for node in ended:
        if node.position is None:
            inner.setdefault(node.lane, []).append(node)
        else:
            within = sorted(inner.pop(node.lane, []), key=lambda each: (each.begin_s, -each.end_s))
            groups.append([node, *within])
    groups.sort(key=lambda group: group[0].begin_s)
    lanes: dict[int, int] = {}
    return [
        replace(node, lane=lanes.setdefault(node.lane, len(lanes)))
        for group in groups
        for node in group
    ]


def _unlike(nodes: Sequence[NodeRun], decomposition: Decomposition) -> str | None:
    """Why the nodes that ran are not the plan's occurrences; None if they are, one by one."""
    plan, bricks = decomposition.plan, decomposition.bricks
    if plan.granularity != EXECUTED:
        return f"bricks of granularity {plan.granularity} are not the nodes that the runtime runs"
    ran = {node.position: node.operator for node in nodes if node.position is not None}
    if sorted(ran) != list(range(len(plan.occurrences))):
        return f"the runtime ran {len(ran)} nodes where the plan has {len(plan.occurrences)}"
    for i, occurrence in enumerate(plan.occurrences):
        planned = bricks[occurrence.brick].operators  # with their domains
        if len(planned) != 1 or planned[0] not in (
            ran[i],
            f"{planned[0].rpartition('.')[0]}.{ran[i]}",
        ):
            return f"node {i} is {ran[i]} where the plan has {', '.join(planned)}"
    return None
