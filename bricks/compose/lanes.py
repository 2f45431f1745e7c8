"""Tasks on lanes, and the timeline of their run: plain data, and the protocols that decide order.

A lane runs one task at a time: a core, a worker, the host or the device of a GPU, a rank, a
network. A task begins once its dependencies have ended. :func:`bricks.compose.composer.compose`
makes a timeline of tasks.

Occurrences of a plan's bricks are such tasks: sums, critical paths, schedules and timelines all use
them. Must not know where latencies come from.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from bricks.decompose.plan import Plan


@dataclass(frozen=True, slots=True)
class Task:
    """Work on ``lane`` that takes ``work_s`` seconds at full speed; ``kind`` is its title.

    ``after`` maps the position of each dependency to the seconds that must pass after its end.
    ``slowed`` maps lanes to factors: while such a lane is busy, the task takes that many times as
    long; of several busy lanes the largest factor counts. The task moves ``size_bytes`` bytes
    between lanes.
    """

    lane: str
    work_s: float
    kind: str = ""
    after: Mapping[int, float] = field(default_factory=dict)
    slowed: Mapping[str, float] = field(default_factory=dict)
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Group:
    """The positions of tasks of one lane that run together as ``work``, and end at once."""

    members: tuple[int, ...]
    work: Task


class Policy(Protocol):
    """Decides which task a free lane runs next; an instance serves one run."""

    def next(self, ready: Sequence[int], now_s: float) -> Group | float | None:
        """The group of ``ready`` tasks that begins now; these are in the order of becoming ready.

        Returns a time to be asked again at if no task begins earlier, or None to be asked at the
        next event.
        """


class Overlap(Protocol):
    """Decides which tasks may run at the same time."""

    def __call__(self, position: int, running: Collection[int], /) -> bool:
        """Whether the task at ``position`` may begin while the tasks at ``running`` run."""


@dataclass(frozen=True, slots=True)
class LaneSpan:
    """Work of a lane from ``begin_s`` to ``end_s``, in seconds since the run began.

    ``members`` are the positions of its tasks: one, or several of a ``Group``.
    """

    work: Task
    begin_s: float
    end_s: float
    members: tuple[int, ...] = ()

    @property
    def lane(self) -> str:
        """The lane of the work."""
        return self.work.lane

    @property
    def kind(self) -> str:
        """The title of the work."""
        return self.work.kind

    @property
    def length_s(self) -> float:
        """Seconds from begin to end."""
        return self.end_s - self.begin_s


WAITING = "waiting"


@dataclass(frozen=True, slots=True)
class Timeline:
    """A run: one span for each task or group, in the order in which they began."""

    spans: tuple[LaneSpan, ...]

    @property
    def end_s(self) -> float:
        """Seconds until the last span ends."""
        return max((span.end_s for span in self.spans), default=0.0)

    @property
    def lanes(self) -> tuple[str, ...]:
        """The lanes with a span, in the order in which they began."""
        return tuple(dict.fromkeys(span.lane for span in self.spans))

    @property
    def by_task(self) -> dict[int, LaneSpan]:
        """The span of each task, by position."""
        return {position: span for span in self.spans for position in span.members}

    def later(self, by_s: float) -> Timeline:
        """This run, ``by_s`` seconds later."""
        spans = self.spans
        return Timeline(
            tuple(replace(s, begin_s=s.begin_s + by_s, end_s=s.end_s + by_s) for s in spans)
        )

    def of(self, lane: str) -> tuple[LaneSpan, ...]:
        """The spans of a lane, in order."""
        return tuple(span for span in self.spans if span.lane == lane)

    def busy_s(self, lane: str) -> float:
        """Seconds for which a lane is busy."""
        return sum(span.length_s for span in self.of(lane))

    def shown(self, lane: str) -> tuple[LaneSpan, ...]:
        """The spans of a lane with a duration, and between them spans of waiting."""
        shown, at_s = list[LaneSpan](), 0.0
        for span in self.of(lane):
            if span.begin_s > at_s:
                shown.append(LaneSpan(Task(lane, 0.0, WAITING), at_s, span.begin_s))
            if span.end_s > span.begin_s:
                shown.append(span)
            at_s = span.end_s
        return tuple(shown)


def longest_chain_s(tasks: Sequence[Task]) -> float:
    """Seconds of the longest chain of dependent tasks at full speed: the critical path.

    No run of ``tasks`` ends earlier. The dependencies of a task precede it in ``tasks``.
    """
    ends_s: list[float] = []
    for task in tasks:
        begin_s = max((ends_s[i] + lag_s for i, lag_s in task.after.items()), default=0.0)
        ends_s.append(begin_s + task.work_s)
    return max(ends_s, default=0.0)


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
