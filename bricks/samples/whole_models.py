"""What running whole models shows: a profile by the runtime, memory peaks, runs of changing sizes.

Recording a profile takes time itself, so a profiled run is slower than an ordinary one: a profile
is shown next to measurements, and never used as one. A runtime prepares for sizes that it has not
run before: its arena grows, kernels are compiled for the new shapes.

A runtime may order a graph differently each time it optimises it, and may rename the nodes that it
adds. So nodes are matched with the occurrences of a plan by name where names are stable; their
neighbours are matched through connections; all others by the time of their run: after their
producers and before their consumers. Must not know how runs are recorded or timed, nor how a
profile is drawn.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import comb, inf
from statistics import median
from typing import TYPE_CHECKING, Protocol

from bricks.decompose.granularity import EXECUTED
from bricks.units.interval import Interval

if TYPE_CHECKING:
    from bricks.decompose.plan import Decomposition, Plan

# Profile clocks are coarser than this.
_SLACK_S = 1e-9


@dataclass(frozen=True, slots=True)
class SizeTimes:
    """Seconds of runs of one size.

    ``first_s`` is the first run of the size in its session; None for the size that the session ran
    before all others, since that run prepares everything. ``changed_s`` are later runs right after
    a run of another size, and ``settled_s`` the median of the runs of the same size that followed
    each. ``open_ratios`` are such settled runs relative to runs of a session for this size alone,
    in turn with them.
    """

    first_s: float | None
    changed_s: tuple[float, ...]
    settled_s: tuple[float, ...]
    open_ratios: tuple[float, ...]

    @property
    def open_ratio(self) -> float:
        """How many times as long as a session for this size alone one with open dimensions takes.

        The median over pairs of runs in turn.
        """
        return median(self.open_ratios)

    @property
    def change_s(self) -> Interval:
        """How many seconds longer than settled runs the run after another size takes.

        The median over pairs of runs in turn, both of which other load slows down.
        """
        pairs = zip(self.changed_s, self.settled_s, strict=True)
        return _median_of([changed - settled for changed, settled in pairs])

    @property
    def new_s(self) -> float | None:
        """How many seconds longer than settled runs the very first run of the size takes."""
        return None if self.first_s is None else self.first_s - median(self.settled_s)


@dataclass(frozen=True, slots=True)
class SizeChanges:
    """The runs of each of several sizes, in order."""

    sizes: tuple[SizeTimes, ...]


def _median_of(values: Sequence[float]) -> Interval:
    """The median and its 95 % interval, between two of the values: no distribution is assumed."""
    ordered, count = sorted(values), len(values)
    beyond, rank = 0.0, 0
    while rank < count // 2 and beyond + comb(count, rank) / 2**count <= 0.025:
        beyond += comb(count, rank) / 2**count
        rank += 1
    last = max(rank - 1, 0)
    return Interval(median(ordered), ordered[last], ordered[count - 1 - last])


@dataclass(frozen=True, slots=True)
class MemoryPeaks:
    """Peaks of a process's resident memory, in bytes above that before it loaded a model.

    ``loading_bytes`` until the model is loaded, ``running_bytes`` in the runs afterwards.
    """

    loading_bytes: int
    running_bytes: int

    @property
    def peak_bytes(self) -> int:
        """The higher of the two."""
        return max(self.loading_bytes, self.running_bytes)


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


class Ran(Protocol):
    """A node that ran."""

    @property
    def operator(self) -> str:
        """Its operator; profiles do not give the domain."""
        ...

    @property
    def begin_s(self) -> float:
        """Its start time."""
        ...

    @property
    def end_s(self) -> float:
        """Its end time."""
        ...


@dataclass(frozen=True, slots=True)
class Matching:
    """The position in the plan of each node; ``unsure`` nodes could also be at another position.

    ``problem`` says why nodes and occurrences do not match; then there are no positions.
    """

    positions: tuple[int, ...] = ()
    unsure: int = 0
    problem: str | None = None


def match(
    ran: Sequence[Ran], known: Mapping[int, int], current: Plan, decomposition: Decomposition
) -> Matching:
    """Match the executed nodes ``ran``, none inside another, to the occurrences of a plan.

    ``current`` is the plan as the model is executed now, possibly in another order. ``known`` maps
    indices in ``ran`` to positions in ``current`` where names match.
    """
    plan = decomposition.plan
    counterpart = counterparts(current, plan)
    if counterpart is None:
        return Matching(problem="the runtime now executes another graph than the plan's")
    planned = [
        "+".join(map(_bare, decomposition.bricks[occurrence.brick].operators))
        for occurrence in plan.occurrences
    ]
    position_in_plan, ambiguous = counterpart
    unsure = sum(position in ambiguous for position in known.values())
    index_of = {position_in_plan[position]: i for i, position in known.items()}
    left = sorted({*range(len(ran))} - known.keys(), key=lambda i: ran[i].begin_s)
    open_ = {*range(len(planned))} - index_of.keys()
    differing = [
        i for position, i in index_of.items() if _bare(ran[i].operator) != planned[position]
    ]
    operators = Counter(_bare(ran[i].operator) for i in left)
    if differing or operators != Counter(planned[position] for position in open_):
        return Matching(
            problem=f"the {len(ran)} nodes that the runtime ran are not the plan's {len(planned)}"
        )
    first_s, last_s = _windows(plan, ran, index_of)
    positions = {i: position for position, i in index_of.items()}
    for i in left:  # in order of start time: producers come first
        node = ran[i]
        candidates = [
            position
            for position in open_
            if planned[position] == _bare(node.operator)
            and first_s[position] <= node.begin_s + _SLACK_S
            and node.end_s <= last_s[position] + _SLACK_S
        ]
        if not candidates:
            return Matching(
                problem=f"{node.operator} ran when no {node.operator} of the plan could"
            )
        positions[i] = min(candidates, key=lambda position: (last_s[position], position))
        open_.remove(positions[i])
        unsure += len(candidates) > 1
    return Matching(tuple(positions[i] for i in range(len(ran))), unsure)


def counterparts(one: Plan, other: Plan) -> tuple[list[int], set[int]] | None:
    """Map the positions in ``one`` plan to positions in an ``other`` order of the same plan.

    None if the plans do not match. Also returns the ambiguous positions, where a model does the
    same work on the same inputs with different weights.
    """
    numbers: dict[Hashable, int] = {}
    here, there = _colours(one, numbers), _colours(other, numbers)
    if Counter(here) != Counter(there):
        return None
    places: dict[int, list[int]] = defaultdict(list)
    for position, colour in enumerate(there):
        places[colour].append(position)
    needs, theirs = one.producers(), other.producers()
    counterpart: list[int] = []
    ambiguous: set[int] = set()
    for position, colour in enumerate(here):
        needed = sorted(counterpart[p] for p in needs[position])
        fitting = [place for place in places[colour] if theirs[place] == needed]
        if not fitting:
            return None
        if len(fitting) > 1:
            ambiguous.add(position)
        counterpart.append(fitting[0])
        places[colour].remove(fitting[0])
    return counterpart, ambiguous


def _colours(plan: Plan, numbers: dict[Hashable, int]) -> list[int]:
    """A number for each occurrence, equal for equal bricks with equal ancestors and descendants."""

    def number(of: Hashable) -> int:
        return numbers.setdefault(of, len(numbers))

    made: dict[int, Hashable] = {v: ("input", port) for port, v in enumerate(plan.inputs)}
    before = []
    for occurrence in plan.occurrences:
        before.append(number((occurrence.brick, tuple(made[v] for v in occurrence.inputs))))
        made.update((v, (before[-1], port)) for port, v in enumerate(occurrence.outputs))
    used: dict[int, list[Hashable]] = defaultdict(list)
    for port, v in enumerate(plan.outputs):
        used[v].append(("output", port, 0))
    colours = [0] * len(before)
    for position in range(len(before) - 1, -1, -1):
        occurrence = plan.occurrences[position]
        uses = tuple(tuple(sorted(used[v], key=repr)) for v in occurrence.outputs)
        after = number((before[position], uses))
        for port, v in enumerate(occurrence.inputs):
            used[v].append(("use", port, after))
        colours[position] = number((before[position], after))
    return colours


def _windows(
    plan: Plan, ran: Sequence[Ran], index_of: Mapping[int, int]
) -> tuple[list[float], list[float]]:
    """The earliest start and the latest end of each occurrence, in seconds."""
    producers = plan.producers()
    first_s, last_s = [0.0] * len(producers), [inf] * len(producers)
    for position, needed in enumerate(producers):
        ends = (ran[index_of[p]].end_s if p in index_of else first_s[p] for p in needed)
        first_s[position] = max(ends, default=0.0)
    for position in range(len(producers) - 1, -1, -1):
        begin_s = ran[index_of[position]].begin_s if position in index_of else last_s[position]
        for p in producers[position]:
            last_s[p] = min(last_s[p], begin_s)
    return first_s, last_s


def _bare(operator: str) -> str:
    return operator.rpartition(".")[2]
