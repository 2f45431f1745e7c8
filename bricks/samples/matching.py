"""Maps the nodes that a runtime ran to the occurrences of a plan.

A runtime may order a graph differently each time it optimises it, and may rename the nodes that it
adds. So nodes are matched by name where names are stable; their neighbours are matched through
connections; all others by the time of their run: after their producers and before their consumers.
Must not know any particular runtime.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from bricks.decompose.plan import Decomposition, Plan

# Profile clocks are coarser than this.
_SLACK_S = 1e-9


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
