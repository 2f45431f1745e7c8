"""Composes tasks on lanes into a timeline, for every question about a whole run.

A list scheduler over fluid work: it moves from event to event. Between two events the speed of each
lane is constant, though it may depend on which other lanes are busy. Must not know what tasks are.
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
    """The speed of lanes that share no resource: 1, however many are ``busy``."""
    return 1.0


def compose(
    tasks: Sequence[Task],
    *,
    policies: Mapping[str, Policy] = MappingProxyType({}),
    overlap: Overlap | None = None,
    speed: Callable[[int], float] = full_speed,
) -> Timeline:
    """Schedule ``tasks`` as early as their lanes and dependencies permit.

    Each lane runs its tasks in the order of ``tasks``, or as its policy in ``policies`` decides. If
    ``overlap`` forbids two tasks to run at once, the earlier in ``tasks`` begins first. ``speed``
    is the speed of each busy lane as a function of their number. Raises :class:`RuntimeError` for
    tasks that wait for each other.
    """
    alone = not policies and overlap is None and speed is full_speed
    if alone and not any(task.slowed for task in tasks):
        spans = _in_order(tasks)
    else:
        run = _Run(tasks, policies, overlap, speed)
        while run.advance():
            pass
        spans = run.spans
    return Timeline(tuple(sorted(spans, key=lambda span: span.begin_s)))


def _in_order(tasks: Sequence[Task]) -> list[LaneSpan]:
    """The spans of tasks whose lanes run in order at full speed, whatever other lanes do.

    Each begins once the one before it on its lane and all its dependencies have ended.
    """
    queues: dict[str, deque[int]] = defaultdict(deque)
    for position, task in enumerate(tasks):
        queues[task.lane].append(position)
    spans: list[LaneSpan] = []
    ends_s: dict[int, float] = {}
    blocked: dict[int, list[str]] = defaultdict(list)
    lanes, free_s = deque(queues), dict.fromkeys(queues, 0.0)
    while lanes:
        lane = lanes.popleft()
        queue, at_s = queues[lane], free_s[lane]
        while queue:
            position = queue[0]
            task = tasks[position]
            begin_s, missing = _begin_s(task, at_s, ends_s)
            if missing is not None:
                blocked[missing].append(lane)
                break
            at_s = ends_s[position] = begin_s + task.work_s
            spans.append(LaneSpan(task, begin_s, at_s, (position,)))
            queue.popleft()
            if position in blocked:
                lanes.extend(blocked.pop(position))
        free_s[lane] = at_s
    if left := len(tasks) - len(spans):
        raise RuntimeError(f"{left} tasks wait for each other")
    return spans


def _begin_s(task: Task, free_s: float, ends_s: Mapping[int, float]) -> tuple[float, int | None]:
    """When a task begins on a lane that is free from ``free_s``, or which task it still needs."""
    for needed, lag_s in task.after.items():
        end_s = ends_s.get(needed)
        if end_s is None:
            return free_s, needed
        free_s = max(free_s, end_s + lag_s)
    return free_s, None


@dataclass(slots=True)
class _Running:
    """The current work of a lane; ``left_s`` are the seconds that are left at full speed."""

    work: Task
    members: tuple[int, ...]
    begin_s: float
    left_s: float
    speed: float = 1.0

    @property
    def wait_s(self) -> float:
        return max(0.0, self.left_s) / self.speed


@dataclass(slots=True)
class _Dependencies:
    """Unfinished dependencies of each task, and the times at which tasks become ready."""

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
        """End a task; yield each task that becomes ready by it, and the time it may begin."""
        for user in self.users.pop(position, ()):
            arrival_s = now_s + self.tasks[user].after[position]
            known_s = self.ready_s[user]
            self.ready_s[user] = arrival_s if known_s == inf else max(known_s, arrival_s)
            self.open[user] -= 1
            if not self.open[user]:
                yield user, self.ready_s[user]

    def of(self, position: int) -> float:
        """The time from which a task may begin; infinite while it has unfinished dependencies."""
        return inf if self.open[position] else self.ready_s[position]


@dataclass(slots=True)
class _PolicyLane:
    """A lane whose policy chooses from ``ready``; ``coming`` are tasks that get ready later."""

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
    """A run that is being composed; :meth:`advance` moves to the next event."""

    def __init__(
        self,
        tasks: Sequence[Task],
        policies: Mapping[str, Policy],
        overlap: Overlap | None,
        speed: Callable[[int], float],
    ) -> None:
        self._tasks, self._overlap, self._speed = tasks, overlap, speed
        self._dependencies = _Dependencies(tasks)
        self._policy_lanes = {lane: _PolicyLane(policy) for lane, policy in policies.items()}
        self._queues: dict[str, deque[int]] = defaultdict(deque)
        self._running: dict[str, _Running] = {}
        self._now_s, self._left = 0.0, len(tasks)
        self.spans: list[LaneSpan] = []
        for position, task in enumerate(tasks):
            if task.lane not in self._policy_lanes:
                self._queues[task.lane].append(position)
            elif not task.after:
                self._policy_lanes[task.lane].add(position, 0.0)

    def advance(self) -> bool:
        """Move to the next event; return False once all tasks have ended."""
        self._begin_in_order()
        # The policy of each free lane chooses, or names the time to ask again at.
        again_s = inf
        for lane, chosen in self._policy_lanes.items():
            if lane in self._running:
                continue
            choice = chosen.next(self._now_s)
            if isinstance(choice, Group):
                self._begin(choice.work, choice.members)
            elif choice is not None:
                again_s = min(again_s, choice)
        if not self._left:
            return False
        shared = self._speed(len(self._running))
        for running in self._running.values():
            factors = [f for other, f in running.work.slowed.items() if other in self._running]
            running.speed = shared / max(factors) if factors else shared
        wait_s = min((running.wait_s for running in self._running.values()), default=inf)
        times = [self._dependencies.of(position) for position in self._heads()]
        times += [chosen.coming[0][0] for chosen in self._policy_lanes.values() if chosen.coming]
        coming_s = max(
            self._now_s,
            min(min((at_s for at_s in times if at_s > self._now_s), default=inf), again_s),
        )
        if min(wait_s, coming_s) == inf:
            raise RuntimeError(f"{self._left} tasks wait for each other")
        # Until the first lane is done, or a task is ready.
        ends = self._now_s + wait_s <= coming_s
        by_s = wait_s if ends else coming_s - self._now_s
        done = [lane for lane, running in self._running.items() if ends and running.wait_s <= by_s]
        for running in self._running.values():
            running.left_s -= by_s * running.speed
        self._now_s = self._now_s + by_s if ends else coming_s
        self._end(done)
        return True

    def _begin_in_order(self) -> None:
        """Begin all ready tasks of lanes with an order, and end those of no duration at once."""
        while True:
            begun = False
            for position in self._heads():
                if self._dependencies.of(position) > self._now_s:
                    continue
                if self._overlap is not None:
                    beside = [i for running in self._running.values() for i in running.members]
                    if not self._overlap(position, beside):
                        continue
                task = self._tasks[position]
                self._queues[task.lane].popleft()
                self._begin(task, (position,))
                begun = True
            done = [lane for lane, running in self._running.items() if running.left_s <= 0.0]
            if not begun or not self._end(done):
                return

    def _heads(self) -> list[int]:
        queues = self._queues.items()
        return sorted(queue[0] for lane, queue in queues if queue and lane not in self._running)

    def _begin(self, work: Task, members: tuple[int, ...]) -> None:
        self._running[work.lane] = _Running(work, members, self._now_s, work.work_s)

    def _end(self, lanes: Sequence[str]) -> bool:
        for lane in lanes:
            running = self._running.pop(lane)
            self.spans.append(LaneSpan(running.work, running.begin_s, self._now_s, running.members))
            for member in running.members:
                self._left -= 1
                for user, at_s in self._dependencies.end(member, self._now_s):
                    if (policy := self._policy_lanes.get(self._tasks[user].lane)) is not None:
                        policy.add(user, at_s)
        return bool(lanes)
