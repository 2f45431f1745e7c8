"""A model's estimate as a timeline: when each occurrence of a brick runs, and for how long.

Here because :mod:`bricks.compose.recompose` only adds these latencies up; a timeline puts them end
to end in the model's order, or along the schedule of several workers. A brick without a measurement
has a position and a reason, never a duration. Must not know how a timeline is drawn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bricks.compose.recompose import Basis, gaps, latencies
from bricks.compose.schedule import Run, schedule
from bricks.decompose.plan import Plan
from bricks.units.interval import Interval


@dataclass(frozen=True, slots=True)
class TimelineStep:
    """An occurrence that runs: ``position`` is its place in the plan, ``lane`` its worker.

    Times are seconds from the beginning. ``latency_s`` is the contribution of one occurrence of the
    brick. The step lasts as long, with two exceptions: workers that share processors or threads
    take longer, and a brick that overlaps with an earlier one only takes the time of its remaining
    layers.
    """

    position: int
    lane: int
    begin_s: float
    end_s: float
    latency_s: Interval
    predicted: bool


@dataclass(frozen=True, slots=True)
class Hole:
    """An occurrence without a latency: where it would begin, and why its latency is missing."""

    position: int
    lane: int
    at_s: float
    reason: str


@dataclass(frozen=True, slots=True)
class Deduction:
    """A layer shared by two overlapping bricks: its latency is subtracted from the next step."""

    position: int
    lane: int
    at_s: float
    latency_s: Interval
    predicted: bool


Entry = TimelineStep | Hole | Deduction


@dataclass(frozen=True, slots=True)
class Timeline:
    """An entry for each occurrence of a plan, in the plan's order; in seconds.

    It begins with a call of the runtime, which takes ``call_s``; the first occurrence begins after
    it. ``length_s`` is the total: the estimate plus ``excess_s``, the part of overlaps that could
    not be subtracted because the next step was shorter. ``missing`` are the reasons why it is
    incomplete, by the key of the unmeasured brick.
    """

    entries: tuple[Entry, ...]
    call_s: float
    length_s: float
    lanes: int
    excess_s: float
    missing: Mapping[str, str]


def timeline(basis: Basis) -> Timeline:
    """The time of each occurrence, according to ``basis``."""
    plan, construction = basis.plan, basis.construction
    found = latencies(
        plan,
        basis.results,
        basis.state_s,
        predictions=basis.predictions,
        states=basis.states,
    )
    missing = {gap.brick: gap.reason for gap in gaps(plan, basis.results, found.predicted)}
    nets = {key: found.net(key) for key in found.spreads}
    net_s = {key: nets[key].value if key in nets else 0.0 for key in plan.keys}
    if construction is None:
        runs, excess_s = _in_sequence(plan, net_s)
        lanes: Sequence[int] = [0] * len(runs)
    else:
        runs, excess_s = schedule(plan, construction, net_s), 0.0
        lanes = construction.streams
    call_s = found.call.value
    entries: list[Entry] = []
    for i, (occurrence, run) in enumerate(zip(plan.occurrences, runs, strict=True)):
        key, lane = occurrence.brick, lanes[i]
        begin_s, end_s, predicted = call_s + run.begin_s, call_s + run.end_s, key in found.predicted
        if key in missing:
            entries.append(Hole(i, lane, begin_s, missing[key]))
        elif occurrence.repeats is not None:
            entries.append(Deduction(i, lane, begin_s, nets[key], predicted))
        else:
            entries.append(TimelineStep(i, lane, begin_s, end_s, nets[key], predicted))
    return Timeline(
        tuple(entries),
        call_s=call_s,
        length_s=call_s + max((run.end_s for run in runs), default=0.0),
        lanes=max(lanes, default=0) + 1,
        excess_s=excess_s,
        missing=missing,
    )


def _in_sequence(plan: Plan, net_s: Mapping[str, float]) -> tuple[Sequence[Run], float]:
    """Each occurrence after the one before it; and the seconds that could not be subtracted."""
    runs = []
    at_s = away_s = excess_s = 0.0
    for occurrence in plan.occurrences:
        if occurrence.repeats is not None:  # the overlapping brick comes next
            away_s = net_s[occurrence.brick]
            runs.append(Run(at_s, at_s))
            continue
        own_s = net_s[occurrence.brick] - away_s
        excess_s += max(0.0, -own_s)
        runs.append(Run(at_s, at_s + max(0.0, own_s)))
        at_s, away_s = runs[-1].end_s, 0.0
    return runs, excess_s
