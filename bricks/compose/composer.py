"""Composes tasks on lanes into a timeline: the one engine behind each answer about a whole run.

A list scheduler over fluid work: it moves from event to event, and between two events the speed of
each lane is constant, though it may depend on what other lanes do. Must not know what tasks are.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import inf
from types import MappingProxyType

from bricks.compose.lanes import Group, LaneSpan, Overlap, Policy, Task, Timeline


def full_speed(busy: int) -> float:
    """Lanes that share nothing: each has its full speed."""
    return 1.0


def compose(
    tasks: Sequence[Task],
    *,
    policies: Mapping[str, Policy] = MappingProxyType({}),
    overlap: Overlap | None = None,
    speed: Callable[[int], float] = full_speed,
) -> Timeline:
    """The run of ``tasks``, as early as lanes and the tasks before permit.

    Each lane runs its tasks in their order here, or as its policy says. Where ``overlap`` does not
    let two tasks run at once, the earlier one here begins first. ``speed`` tells from the number of
    busy lanes the speed of each. :class:`RuntimeError` if tasks wait for each other forever.
    """
    run = _Run(tasks, policies, overlap, speed)
    while run.goes_on():
        pass
    return Timeline(tuple(sorted(run.spans, key=lambda span: span.begin_s)))


@dataclass(slots=True)
class _Running:
    """Work that a lane does now, and how many seconds of it are left at full speed."""

    work: Task
    members: tuple[int, ...]
    begin_s: float
    left_s: float
    speed: float = 1.0

    @property
    def wait_s(self) -> float:
        return max(0.0, self.left_s) / self.speed


@dataclass(slots=True)
class _Needs:
    """When the tasks that each task needs will have ended, as far as they have."""

    tasks: Sequence[Task]
    open: list[int] = field(init=False)
    ready_s: list[float] = field(init=False)
    users: dict[int, list[int]] = field(init=False)

    def __post_init__(self) -> None:
        self.open = [len(task.after) for task in self.tasks]
        self.ready_s = [inf if task.after else 0.0 for task in self.tasks]
        self.users = defaultdict(list)
        for position, task in enumerate(self.tasks):
            for needed in task.after:
                self.users[needed].append(position)

    def end(self, position: int, now_s: float) -> Iterable[tuple[int, float]]:
        """Note that a task has ended; the tasks that have all they need, and when."""
        for user in self.users.pop(position, ()):
            there_s = now_s + self.tasks[user].after[position]
            known_s = self.ready_s[user]
            self.ready_s[user] = there_s if known_s == inf else max(known_s, there_s)
            self.open[user] -= 1
            if not self.open[user]:
                yield user, self.ready_s[user]

    def of(self, position: int) -> float:
        """The time from which a task may begin; infinite if that is not known yet."""
        return inf if self.open[position] else self.ready_s[position]


@dataclass(slots=True)
class _Asked:
    """A lane whose policy chooses: the tasks that will be ready, and those that are."""

    policy: Policy
    coming: list[tuple[float, int, int]] = field(default_factory=list)
    ready: list[int] = field(default_factory=list)
    count: int = 0

    def add(self, position: int, at_s: float) -> None:
        heappush(self.coming, (at_s, self.count, position))
        self.count += 1

    def next(self, now_s: float) -> Group | float | None:
        while self.coming and self.coming[0][0] <= now_s:
            self.ready.append(heappop(self.coming)[2])
        choice = self.policy.next(self.ready, now_s)
        if isinstance(choice, Group):
            self.ready = [i for i in self.ready if i not in choice.members]
        return choice


class _Run:
    """A run that is being composed; :meth:`goes_on` moves to the next event."""

    def __init__(
        self,
        tasks: Sequence[Task],
        policies: Mapping[str, Policy],
        overlap: Overlap | None,
        speed: Callable[[int], float],
    ) -> None:
        self._tasks, self._overlap, self._speed = tasks, overlap, speed
        self._needs = _Needs(tasks)
        self._asked = {lane: _Asked(policy) for lane, policy in policies.items()}
        self._queues: dict[str, deque[int]] = defaultdict(deque)
        self._running: dict[str, _Running] = {}
        self._now_s, self._left = 0.0, len(tasks)
        self.spans: list[LaneSpan] = []
        for position, task in enumerate(tasks):
            if task.lane not in self._asked:
                self._queues[task.lane].append(position)
            elif not task.after:
                self._asked[task.lane].add(position, 0.0)

    def goes_on(self) -> bool:
        """Move to the next event; False once all tasks have ended."""
        self._begin_in_order()
        asked_s = self._begin_asked()
        if not self._left:
            return False
        self._set_speeds()
        wait_s = min((running.wait_s for running in self._running.values()), default=inf)
        coming_s = max(self._now_s, min(self._coming_s(), asked_s))
        if min(wait_s, coming_s) == inf:
            raise RuntimeError(f"{self._left} tasks wait for what never ends")
        self._advance(wait_s, coming_s)
        return True

    def _begin_in_order(self) -> None:
        """Begin what may begin now; what takes no time ends at once, and lets others begin."""
        while self._begin_heads():
            if not self._end(
                [lane for lane, running in self._running.items() if running.left_s <= 0.0]
            ):
                return

    def _heads(self) -> list[int]:
        """The next tasks of the free lanes that have an order."""
        queues = self._queues.items()
        return sorted(queue[0] for lane, queue in queues if queue and lane not in self._running)

    def _begin_heads(self) -> bool:
        begun = False
        for position in self._heads():
            if self._needs.of(position) <= self._now_s and self._may_begin(position):
                task = self._tasks[position]
                self._queues[task.lane].popleft()
                self._begin(task, (position,))
                begun = True
        return begun

    def _may_begin(self, position: int) -> bool:
        if self._overlap is None:
            return True
        positions = [i for running in self._running.values() for i in running.members]
        return self._overlap(position, positions)

    def _begin_asked(self) -> float:
        """Let free lanes that choose begin something; the time to ask again at."""
        again_s = inf
        for lane, asked in self._asked.items():
            if lane in self._running:
                continue
            choice = asked.next(self._now_s)
            if isinstance(choice, Group):
                self._begin(choice.work, choice.members)
            elif choice is not None:
                again_s = min(again_s, choice)
        return again_s

    def _begin(self, work: Task, members: tuple[int, ...]) -> None:
        self._running[work.lane] = _Running(work, members, self._now_s, work.work_s)

    def _coming_s(self) -> float:
        """When the next task that waits for nothing but time may begin."""
        times = [self._needs.of(position) for position in self._heads()]
        times += [asked.coming[0][0] for asked in self._asked.values() if asked.coming]
        return min((at_s for at_s in times if at_s > self._now_s), default=inf)

    def _set_speeds(self) -> None:
        shared = self._speed(len(self._running))
        for running in self._running.values():
            factors = [f for other, f in running.work.slowed.items() if other in self._running]
            running.speed = shared / max(factors) if factors else shared

    def _advance(self, wait_s: float, coming_s: float) -> None:
        """Go on for ``wait_s``, until the first lane is done, or until ``coming_s``."""
        ends = self._now_s + wait_s <= coming_s
        by_s = wait_s if ends else coming_s - self._now_s
        done = [lane for lane, running in self._running.items() if ends and running.wait_s <= by_s]
        for running in self._running.values():
            running.left_s -= by_s * running.speed
        self._now_s = self._now_s + by_s if ends else coming_s
        self._end(done)

    def _end(self, lanes: Sequence[str]) -> bool:
        for lane in lanes:
            running = self._running.pop(lane)
            self.spans.append(LaneSpan(running.work, running.begin_s, self._now_s, running.members))
            for member in running.members:
                self._end_task(member)
        return bool(lanes)

    def _end_task(self, position: int) -> None:
        self._left -= 1
        for user, at_s in self._needs.end(position, self._now_s):
            lane = self._tasks[user].lane
            if lane in self._asked:
                self._asked[lane].add(user, at_s)
