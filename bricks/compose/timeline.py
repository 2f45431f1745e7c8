"""A model's estimate as a timeline: when each occurrence of a brick runs, and for how long.

Here because :mod:`bricks.compose.recompose` only adds these latencies up; a timeline puts them end
to end in the model's order, or along the schedule of several workers. An occurrence without a
measurement has a position and a reason, never a duration. Must not know how a timeline is drawn.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from bricks.compose.basis import Basis
from bricks.compose.composer import compose
from bricks.compose.lanes import Span, Task, Timeline
from bricks.compose.latencies import latencies
from bricks.compose.occurrences import CORE, occurrence_tasks
from bricks.compose.parts import gaps
from bricks.compose.schedule import schedule, worker
from bricks.units.interval import Interval

CALL = "call of the runtime"


@dataclass(frozen=True, slots=True)
class OccurrenceRun:
    """An occurrence that runs: ``position`` is its place in the plan, ``span`` when it does.

    ``latency_s`` is the contribution of one occurrence of the brick. The span lasts as long, with
    two exceptions: workers that share processors or threads take longer, and a brick that overlaps
    with an earlier one only takes the time of its remaining layers.
    """

    position: int
    span: Span
    latency_s: Interval
    predicted: bool


@dataclass(frozen=True, slots=True)
class MissingLatency:
    """An occurrence without a latency: where it would begin, and why its latency is missing."""

    position: int
    span: Span
    reason: str


@dataclass(frozen=True, slots=True)
class Subtraction:
    """A layer shared by two overlapping bricks: its latency is subtracted from the next one."""

    position: int
    span: Span
    latency_s: Interval
    predicted: bool


Entry = OccurrenceRun | MissingLatency | Subtraction


@dataclass(frozen=True, slots=True)
class ModelTimeline:
    """A run of a model, with an entry for each occurrence of its plan, in the plan's order.

    ``run`` begins with a call of the runtime, which takes ``call_s`` seconds; the first occurrence
    begins after it. The run lasts as long as the estimate plus ``excess_s``, the part of overlaps
    that could not be subtracted because the next occurrence was shorter. ``lanes`` are those of all
    workers. ``missing`` are the reasons why it is incomplete, by the key of the unmeasured brick.
    """

    run: Timeline
    entries: tuple[Entry, ...]
    call_s: float
    lanes: tuple[str, ...]
    excess_s: float
    missing: Mapping[str, str]


def timeline(basis: Basis) -> ModelTimeline:
    """The time of each occurrence, according to ``basis``."""
    plan, construction = basis.plan, basis.construction
    found = latencies(basis)
    missing = {gap.brick: gap.reason for gap in gaps(plan, basis.results, found.predicted)}
    nets = {key: found.net(key) for key in found.gross_s}
    net_s = {key: nets[key].value if key in nets else 0.0 for key in plan.keys}
    lanes: tuple[str, ...] = (CORE,)
    if construction is None:
        of = occurrence_tasks(plan, net_s)
        run, excess_s = compose(of.tasks), of.excess_s
    else:
        run, excess_s = schedule(plan, construction, net_s), 0.0
        lanes = tuple(map(worker, range(max(construction.streams, default=0) + 1)))
    call_s = found.call_s.value
    run = run.later(call_s)
    spans = run.by_task
    entries: list[Entry] = []
    for i, occurrence in enumerate(plan.occurrences):
        key, predicted = occurrence.brick, occurrence.brick in found.predicted
        if key in missing:
            entries.append(MissingLatency(i, spans[i], missing[key]))
        elif occurrence.repeats is not None:
            entries.append(Subtraction(i, spans[i], nets[key], predicted))
        else:
            entries.append(OccurrenceRun(i, spans[i], nets[key], predicted))
    call = Span(Task(lanes[0], call_s, CALL), 0.0, call_s)
    return ModelTimeline(
        replace(run, spans=(call, *run.spans)),
        tuple(entries),
        call_s=call_s,
        lanes=lanes,
        excess_s=excess_s,
        missing=missing,
    )
