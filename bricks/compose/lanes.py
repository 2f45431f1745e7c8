"""Work on lanes, and the timeline that it becomes: plain data, and what decides about order.

A lane does one thing at a time: a core, a worker, the host or the device of a GPU, a rank, a
network. A task is work on a lane that begins once the tasks which it needs have ended.
:func:`bricks.compose.composer.compose` makes a timeline of tasks. Must not know what tasks are.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Task:
    """Work on ``lane`` that takes ``work_s`` seconds at full speed; ``kind`` is shown.

    ``after`` has the positions of the tasks that must have ended, and for how many seconds.
    ``slowed`` says by lane how many times longer the task takes while that lane is busy; of several
    busy lanes the largest factor counts. ``size_bytes`` are those that it moves between lanes.
    """

    lane: str
    work_s: float
    kind: str = ""
    after: Mapping[int, float] = field(default_factory=dict)
    slowed: Mapping[str, float] = field(default_factory=dict)
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Group:
    """Tasks of a lane, by position, that run together as ``work``; they end at once."""

    members: tuple[int, ...]
    work: Task


class Policy(Protocol):
    """Decides what a free lane does next; it lives as long as one run."""

    def next(self, ready: Sequence[int], now_s: float) -> Group | float | None:
        """What begins now, of the ``ready`` tasks in the order in which they became so.

        Returns a time to be asked again at, if nothing begins before that, or None if nothing does
        before the next event.
        """


class Overlap(Protocol):
    """Says which tasks may run at the same time."""

    def __call__(self, position: int, running: Collection[int], /) -> bool:
        """Whether the task at ``position`` may begin while those at ``running`` run."""


@dataclass(frozen=True, slots=True)
class LaneSpan:
    """Work that a lane did from ``begin_s`` to ``end_s``, in seconds since the run began.

    ``members`` are the positions of the tasks that it was: one, or those of a :class:`Group`.
    """

    work: Task
    begin_s: float
    end_s: float
    members: tuple[int, ...] = ()

    @property
    def lane(self) -> str:
        """The lane that did it."""
        return self.work.lane

    @property
    def kind(self) -> str:
        """What kind of work it was."""
        return self.work.kind

    @property
    def length_s(self) -> float:
        """Seconds from its begin to its end."""
        return self.end_s - self.begin_s


WAITING = "waiting"


@dataclass(frozen=True, slots=True)
class Timeline:
    """A run: one span for each task or group, in the order in which they began."""

    spans: tuple[LaneSpan, ...]

    @property
    def end_s(self) -> float:
        """Seconds until everything has ended."""
        return max((span.end_s for span in self.spans), default=0.0)

    @property
    def lanes(self) -> tuple[str, ...]:
        """The lanes that did anything, in the order in which they began."""
        return tuple(dict.fromkeys(span.lane for span in self.spans))

    @property
    def by_task(self) -> dict[int, LaneSpan]:
        """The span of each task, by position."""
        return {position: span for span in self.spans for position in span.members}

    def later(self, by_s: float) -> Timeline:
        """The same run, ``by_s`` seconds later."""
        spans = self.spans
        return Timeline(
            tuple(replace(s, begin_s=s.begin_s + by_s, end_s=s.end_s + by_s) for s in spans)
        )

    def of(self, lane: str) -> tuple[LaneSpan, ...]:
        """The spans of a lane, in order."""
        return tuple(span for span in self.spans if span.lane == lane)

    def busy_s(self, lane: str) -> float:
        """Seconds in which a lane does something."""
        return sum(span.length_s for span in self.of(lane))

    def shown(self, lane: str) -> tuple[LaneSpan, ...]:
        """The spans of a lane that take time, and between them its waiting for other lanes."""
        shown, at_s = list[LaneSpan](), 0.0
        for span in self.of(lane):
            if span.begin_s > at_s:
                shown.append(LaneSpan(Task(lane, 0.0, WAITING), at_s, span.begin_s))
            if span.end_s > span.begin_s:
                shown.append(span)
            at_s = span.end_s
        return tuple(shown)


def longest_chain_s(tasks: Sequence[Task]) -> float:
    """Seconds of the longest chain of tasks that need each other, at full speed.

    It is what the tasks would take on a lane for each; no run of them ends earlier. Tasks need
    earlier ones only.
    """
    ends_s: list[float] = []
    for task in tasks:
        begin_s = max((ends_s[i] + lag_s for i, lag_s in task.after.items()), default=0.0)
        ends_s.append(begin_s + task.work_s)
    return max(ends_s, default=0.0)
