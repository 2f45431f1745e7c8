"""Occurrences of a plan's bricks as tasks: the lane of each, and its dependencies.

Sums, critical paths, schedules and timelines all use these tasks. Must not know where latencies
come from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bricks.compose.lanes import Task

if TYPE_CHECKING:
    from bricks.decompose.plan import Plan

CORE, HOST, DEVICE = "core", "host", "device"


@dataclass(frozen=True, slots=True)
class OccurrenceTasks:
    """A task for each occurrence of a plan, in the plan's order.

    ``excess_s`` are the seconds of shared layers that cannot be subtracted, because the brick that
    contains them takes less: the tasks are that much longer than the sum of all latencies.
    """

    tasks: tuple[Task, ...]
    excess_s: float


def occurrence_tasks(
    plan: Plan,
    latency_s: Mapping[str, float],
    lanes: Sequence[str] | None = None,
    handover_s: float = 0.0,
) -> OccurrenceTasks:
    """A task for each occurrence of ``plan`` on its lane in ``lanes``, or all on one core.

    ``latency_s`` are isolated latencies by brick. A layer that two overlapping bricks share takes
    no time: it is subtracted from the second brick, the next occurrence. A result reaches another
    lane after ``handover_s``.
    """
    on = [CORE] * len(plan.occurrences) if lanes is None else lanes
    tasks, subtracted_s, excess_s = list[Task](), 0.0, 0.0
    for i, (occurrence, needed) in enumerate(zip(plan.occurrences, plan.producers(), strict=True)):
        after = {p: 0.0 if on[p] == on[i] else handover_s for p in needed}
        own_s = latency_s[occurrence.brick] - subtracted_s
        subtracted_s = 0.0
        if occurrence.repeats is not None:
            own_s, subtracted_s = 0.0, latency_s[occurrence.brick]
        excess_s += max(0.0, -own_s)
        tasks.append(Task(on[i], max(0.0, own_s), occurrence.brick, after))
    return OccurrenceTasks(tuple(tasks), excess_s)
