"""Occurrences of a plan's bricks as tasks: which lane runs each, and what each one needs.

Here because sums, critical paths, schedules and timelines are all of the same tasks. On a GPU the
host launches kernels in order, and the device runs them in order: a kernel begins once the call
that launches it has returned and the kernel before has ended. The run ends with the later of both,
where the host waits for the device. Must not know how latencies came about.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bricks.compose.lanes import Task
from bricks.decompose.plan import Plan
from bricks.units.sample import Kernel

CORE, HOST, DEVICE = "core", "host", "device"


@dataclass(frozen=True, slots=True)
class OccurrenceTasks:
    """A task for each occurrence of a plan, in the plan's order.

    ``excess_s`` are the seconds of shared layers that cannot be subtracted, because the brick that
    they are part of takes less: the tasks last longer by them than all latencies add up to.
    """

    tasks: tuple[Task, ...]
    excess_s: float


def occurrence_tasks(
    plan: Plan,
    latency_s: Mapping[str, float],
    lanes: Sequence[str] | None = None,
    handover_s: float = 0.0,
) -> OccurrenceTasks:
    """The tasks of ``plan`` on ``lanes``, one for each occurrence, or all on one core.

    ``latency_s`` gives each brick's latency alone. A layer that two overlapping bricks share takes
    no time: it is subtracted from the second brick, which comes next. A result reaches another
    lane after ``handover_s``.
    """
    on = [CORE] * len(plan.occurrences) if lanes is None else lanes
    tasks, away_s, excess_s = list[Task](), 0.0, 0.0
    for i, (occurrence, needed) in enumerate(zip(plan.occurrences, plan.producers(), strict=True)):
        after = {p: 0.0 if on[p] == on[i] else handover_s for p in needed}
        own_s = latency_s[occurrence.brick] - away_s
        away_s = 0.0
        if occurrence.repeats is not None:
            own_s, away_s = 0.0, latency_s[occurrence.brick]
        excess_s += max(0.0, -own_s)
        tasks.append(Task(on[i], max(0.0, own_s), occurrence.brick, after))
    return OccurrenceTasks(tuple(tasks), excess_s)


def launching_tasks(
    plan: Plan, host_s: Mapping[str, float], kernels: Mapping[str, Sequence[Kernel]]
) -> OccurrenceTasks:
    """The tasks of ``plan`` on a host, and behind them those of the device.

    ``host_s`` and ``kernels`` are those of one run of each brick; a brick without kernels runs on
    the host alone.
    """
    of = occurrence_tasks(plan, host_s, [HOST] * len(plan.occurrences))
    launched = [
        Task(DEVICE, kernel.device_s, kernel.name, {position: 0.0})
        for position, occurrence in enumerate(plan.occurrences)
        if occurrence.repeats is None
        for kernel in kernels.get(occurrence.brick, ())
    ]
    return OccurrenceTasks((*of.tasks, *launched), of.excess_s)
