"""A model's estimate as a timeline: begin and duration of each occurrence of a brick.

:mod:`bricks.compose.recompose` only adds latencies up; a timeline puts them end to end in the
model's order, or on the schedule of several workers. An occurrence without a latency has a position
and a reason, never a duration.

For a model on a device, it is that of a step on host and device. Must not know how a timeline is
drawn.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from bricks.compose.basis import gaps
from bricks.compose.composer import compose
from bricks.compose.device.launching import DeviceRun, device_run
from bricks.compose.lanes import CORE, DEVICE, HOST, LaneSpan, Task, Timeline, occurrence_tasks
from bricks.compose.latencies import BrickLatencies, latencies
from bricks.compose.schedule import schedule, worker

if TYPE_CHECKING:
    from bricks.compose.basis import Basis
    from bricks.units.interval import Interval

CALL = "call of the runtime"


@dataclass(frozen=True, slots=True)
class OccurrenceRun:
    """An occurrence at ``position`` in the plan, which runs for ``span``.

    ``latency_s`` is the contribution of one occurrence of the brick. The span is as long, with two
    exceptions: it is longer for workers that share processors or threads, and shorter for a brick
    that overlaps with an earlier one, whose shared layers are left out.
    """

    position: int
    span: LaneSpan
    latency_s: Interval
    predicted: bool


@dataclass(frozen=True, slots=True)
class MissingLatency:
    """An occurrence without a latency: an empty span where it would begin, and the reason."""

    position: int
    span: LaneSpan
    reason: str


@dataclass(frozen=True, slots=True)
class Subtraction:
    """A layer shared by two overlapping bricks: its latency is subtracted from the next one."""

    position: int
    span: LaneSpan
    latency_s: Interval
    predicted: bool


Entry = OccurrenceRun | MissingLatency | Subtraction


@dataclass(frozen=True, slots=True)
class ModelTimeline:
    """A run of a model, with an entry for each occurrence of its plan, in the plan's order.

    ``run`` begins with a call of the runtime, which takes ``call_s`` seconds; the first occurrence
    begins after it. The run lasts as long as the estimate plus ``excess_s``, the seconds of
    overlaps that could not be subtracted because the next occurrence was shorter. ``lanes`` are one
    core, all workers, or host and device (kernels have no entry). ``missing`` are the reasons of
    missing latencies, by the key of the brick.
    """

    run: Timeline
    entries: tuple[Entry, ...]
    call_s: float
    lanes: tuple[str, ...]
    excess_s: float
    missing: Mapping[str, str]


def timeline(basis: Basis) -> ModelTimeline:
    """The timeline of the model that ``basis`` estimates."""
    known = latencies(basis)
    missing = {gap.brick: gap.reason for gap in gaps(basis.plan, basis.results, known.predicted)}
    net_s = dict.fromkeys(basis.plan.keys, 0.0) | known.net_s
    run, lanes, excess_s = _run(basis, known, net_s)
    call_s = known.call_s.value
    run = run.later(call_s)
    call = LaneSpan(Task(lanes[0], call_s, CALL), 0.0, call_s)
    spans, nets = run.by_task, {key: known.net(key) for key in known.gross_s}
    entries = list[Entry]()
    for i, occurrence in enumerate(basis.plan.occurrences):
        key, predicted = occurrence.brick, occurrence.brick in known.predicted
        if key in missing:
            entries.append(MissingLatency(i, spans[i], missing[key]))
        elif occurrence.repeats is not None:
            entries.append(Subtraction(i, spans[i], nets[key], predicted))
        else:
            entries.append(OccurrenceRun(i, spans[i], nets[key], predicted))
    return ModelTimeline(
        replace(run, spans=(call, *run.spans)),
        tuple(entries),
        call_s=call_s,
        lanes=lanes,
        excess_s=excess_s,
        missing=missing,
    )


def _run(
    basis: Basis, known: BrickLatencies, net_s: Mapping[str, float]
) -> tuple[Timeline, tuple[str, ...], float]:
    plan, construction = basis.plan, basis.construction
    if construction is not None:
        lanes = map(worker, range(max(construction.streams, default=0) + 1))
        return schedule(plan, construction, net_s), tuple(lanes), 0.0
    if known.kernels:
        step = device_step(basis, known)
        return step.run.timeline, (HOST, DEVICE), step.excess_s
    of = occurrence_tasks(plan, net_s)
    return compose(of.tasks), (CORE,), of.excess_s


@dataclass(frozen=True, slots=True)
class DeviceStep:
    """A run of a plan; ``excess_s`` is that of its tasks on the host (``OccurrenceTasks``)."""

    run: DeviceRun
    excess_s: float


def device_step(basis: Basis, known: BrickLatencies) -> DeviceStep:
    """Compose the step of ``basis`` from the host's latencies and the kernels in ``known``.

    A brick without a latency takes no time, nor does launching.
    """
    plan = basis.plan
    net_s = dict.fromkeys(plan.keys, 0.0) | known.net_s
    on_host = occurrence_tasks(plan, net_s, [HOST] * len(plan.occurrences))
    kernels = [
        known.kernels.get(occurrence.brick, ()) if occurrence.repeats is None else ()
        for occurrence in plan.occurrences
    ]
    host_s = [task.work_s for task in on_host.tasks]
    return DeviceStep(device_run(plan, host_s, kernels), on_host.excess_s)
