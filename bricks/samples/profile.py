"""A runtime's own profile of a whole model: begin and end of its nodes in a typical run.

Recording takes time itself, so a profiled run is slower than an ordinary one: a profile is shown
next to measurements, and never used as one. Must not know how runtimes record, nor how a profile is
drawn.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from bricks.decompose.granularity import EXECUTED
from bricks.samples.matching import Matching, match

if TYPE_CHECKING:
    from bricks.decompose.plan import Decomposition, Plan


@dataclass(frozen=True, slots=True)
class NodeRun:
    """A node of the executed graph in one run, in seconds from the run's beginning.

    ``lane`` numbers the threads, by first use. ``inner`` nodes ran inside another node (in the body
    of a loop). ``position`` is the position in the plan; None for inner nodes, and where it is not
    known.
    """

    name: str
    operator: str
    begin_s: float
    end_s: float
    lane: int
    inner: bool = False
    position: int | None = None


@dataclass(frozen=True, slots=True)
class TypicalRun:
    """The nodes of the run with the median latency, ``runs_s[typical]``, out of several.

    ``nodes`` are per thread in order of their ends. ``omitted`` inner nodes were left out.
    """

    runs_s: tuple[float, ...]
    typical: int
    nodes: tuple[NodeRun, ...]
    omitted: int


@dataclass(frozen=True, slots=True)
class Profile(TypicalRun):
    """A typical run whose ``nodes`` are matched to the occurrences of a plan.

    They are in order of start time; inner nodes directly follow the node that contains them.
    ``unmatched`` says why the nodes could not be matched; None if they were. ``unsure`` counts
    nodes whose position may belong to another occurrence of the same operator.
    """

    unmatched: str | None = None
    unsure: int = 0

    @property
    def latency_s(self) -> float:
        """Seconds of the typical run."""
        return self.runs_s[self.typical]

    @property
    def nodes_s(self) -> float:
        """Seconds of its nodes, each one's inner nodes included."""
        return sum(node.end_s - node.begin_s for node in self.nodes if not node.inner)

    @property
    def lanes(self) -> int:
        """How many threads ran nodes."""
        return max((node.lane for node in self.nodes), default=0) + 1

    @property
    def reordered(self) -> bool:
        """Whether a single thread ran the occurrences in another order than the plan's."""
        positions = list(self.of_occurrences)
        return self.lanes == 1 and positions != sorted(positions)

    @property
    def of_occurrences(self) -> Mapping[int, NodeRun]:
        """The nodes by the position of their occurrence in the plan; empty if unmatched."""
        return {node.position: node for node in self.nodes if node.position is not None}


@dataclass(frozen=True, slots=True)
class NoProfile:
    """The reason why there is no profile, in one line."""

    reason: str


def profile_of(
    run: TypicalRun,
    decomposition: Decomposition,
    current: Plan,
    names: Sequence[str],
) -> Profile:
    """The profile of a typical ``run``, with its nodes matched to the plan's occurrences.

    ``current`` is the plan as the model is executed now, ``names`` are the names of its nodes.
    """
    nodes = _as_begun(run.nodes)
    outer = [i for i, node in enumerate(nodes) if not node.inner]
    counts = Counter(names)
    places = {name: i for i, name in enumerate(names) if name and counts[name] == 1}
    known = {i: places[name] for i, j in enumerate(outer) if (name := nodes[j].name) in places}
    plan = decomposition.plan
    if plan.granularity != EXECUTED:
        reason = f"bricks of granularity {plan.granularity} are not the nodes that the runtime runs"
        matching = Matching(problem=reason)
    elif len(names) != len(current.occurrences):
        matching = Matching(problem="the runtime runs several nodes of the model as one")
    else:
        matching = match([nodes[i] for i in outer], known, current, decomposition)
    positions = dict(zip(outer, matching.positions, strict=False))  # empty if there is a problem
    return Profile(
        runs_s=run.runs_s,
        typical=run.typical,
        nodes=tuple(replace(node, position=positions.get(i)) for i, node in enumerate(nodes)),
        omitted=run.omitted,
        unmatched=matching.problem,
        unsure=matching.unsure,
    )


def _as_begun(ended: Sequence[NodeRun]) -> list[NodeRun]:
    """Nodes, which arrive in order of end time, in order of start time; lanes are renumbered.

    Clocks are coarse: of nodes with equal start times, the one that ended first comes first.
    """
    inner: dict[int, list[NodeRun]] = {}  # by lane, until the node that contains them ends
    groups = []
    for node in ended:
        if node.inner:
            inner.setdefault(node.lane, []).append(node)
        else:
            within = sorted(
                inner.pop(node.lane, []), key=lambda nested: (nested.begin_s, -nested.end_s)
            )
            groups.append([node, *within])
    groups.sort(key=lambda group: group[0].begin_s)
    lanes: dict[int, int] = {}
    return [
        replace(node, lane=lanes.setdefault(node.lane, len(lanes)))
        for group in groups
        for node in group
    ]
