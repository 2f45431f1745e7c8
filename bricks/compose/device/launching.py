"""When each kernel of a step begins: the host issues calls in order, the device runs their kernels.

A kernel begins once its call has issued it, plus the latency of a launch, and the kernel before it
has ended, plus a gap. Issued kernels wait in a queue of limited depth; while it is full, the host
waits. A call that copies to the host waits for its copy. Must not know how long calls and kernels
take, nor why.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal

from bricks.compose.composer import compose
from bricks.compose.lanes import DEVICE, HOST, LaneSpan, Task, Timeline
from bricks.units.interval import Interval

if TYPE_CHECKING:
    from bricks.decompose.plan import Plan
    from bricks.units.sample import Kernel

SYNCHRONIZE = "synchronize"

# Launches that the driver queues for a device before the host waits.
QUEUE_DEPTH = 1024

# Enough steps in a row for the last to take as long as each of many.
_STEPS = 3

_FREE = Interval.exact(0.0)


class RunMode(StrEnum):
    """How steps follow each other on a device.

    EAGER: each is issued call by call, and waited for. PIPELINED: the host issues the next step
    without waiting, as a training loop does. GRAPH: one launch runs all kernels of a step.
    """

    EAGER = "eager"
    PIPELINED = "pipelined"
    GRAPH = "graph"


@dataclass(frozen=True, slots=True)
class LaunchCosts:
    """What launching kernels costs on a system, in seconds; all is free by default.

    ``gap_s`` lies between two kernels of a stream that were issued ahead, ``graph_gap_s`` between
    two of a graph. ``launch_s`` passes from the issue of a kernel until an idle device begins it,
    ``graph_launch_s`` from the launch of a graph until it begins. ``synchronize_s`` passes on the
    host after the device has ended. ``assumed`` says that other cards tell them: launching was not
    measured on this system.
    """

    gap_s: Interval = _FREE
    launch_s: Interval = _FREE
    graph_gap_s: Interval = _FREE
    graph_launch_s: Interval = _FREE
    synchronize_s: Interval = _FREE
    queue_depth: int = QUEUE_DEPTH
    assumed: bool = False

    @property
    def ends(self) -> tuple[LaunchCosts, LaunchCosts]:
        """All costs at the low ends of their intervals, and at the high ends."""
        return self._at("low"), self._at("high")

    def _at(self, end: Literal["low", "high"]) -> LaunchCosts:
        costs: dict[str, Any] = {
            of.name: Interval.exact(getattr(getattr(self, of.name), end))
            for of in fields(self)
            if of.name.endswith("_s")
        }
        return replace(self, **costs)


FREE = LaunchCosts()


@dataclass(frozen=True, slots=True)
class DeviceRun:
    """A step on host and device: ``timeline`` from its first call on, of ``step_s`` seconds.

    Tasks of ``timeline`` have the positions of the plan's occurrences, which run on the host; then
    come one for synchronising and those of all kernels. A kernel's task is ``after`` its call's
    first of all. Pipelined steps follow each other every ``step_s`` seconds, although each may end
    later after its first call. ``host_s`` are the seconds of all calls, ``device_s`` those of all
    kernels with the gaps between them.
    """

    timeline: Timeline
    step_s: float
    host_s: float
    device_s: float

    @property
    def limited_by(self) -> str:
        """The lane that has more to do in a step: HOST or DEVICE."""
        return HOST if self.host_s > self.device_s else DEVICE


def device_run(
    plan: Plan,
    host_s: Sequence[float],
    kernels: Sequence[Sequence[Kernel]],
    costs: LaunchCosts = FREE,
    mode: RunMode = RunMode.EAGER,
) -> DeviceRun:
    """Compose a step of ``plan`` on a host and its device.

    ``host_s`` are the host's seconds in each occurrence, and ``kernels`` those that it starts. The
    seconds of a call that copies to the host contain the wait for its copy on an idle device.
    """
    pace = _Pace.of(costs, mode)
    calls = [
        _Call.of(occurrence.brick, own_s, started, pace)
        for occurrence, own_s, started in zip(plan.occurrences, host_s, kernels, strict=True)
    ]
    steps = _LaunchedSteps(pace)
    for _ in range(pace.steps):
        steps.add(calls)
    started = sum(map(len, kernels))
    gaps = started if pace.steps > 1 else max(0, started - 1)
    timeline, step_s = steps.last(compose(steps.tasks))
    return DeviceRun(
        timeline,
        step_s,
        host_s=sum(host_s) if pace.issuing else 0.0,
        device_s=sum(map(_device_s, kernels)) + gaps * pace.gap_s,
    )


def copies_to_host(kernels: Sequence[Kernel]) -> bool:
    """Whether one of ``kernels`` copies to the host, for which the host waits."""
    return any([kernel.copies_to_host for kernel in kernels])


@dataclass(frozen=True, slots=True)
class _Pace:
    """What holds kernels back in a mode; a host that is not ``issuing`` has nothing to do."""

    launch_s: float
    gap_s: float
    end_s: float
    depth: int = sys.maxsize
    steps: int = 1
    issuing: bool = True

    @classmethod
    def of(cls, costs: LaunchCosts, mode: RunMode) -> _Pace:
        launch_s, gap_s, end_s = costs.launch_s.value, costs.gap_s.value, costs.synchronize_s.value
        match mode:
            case RunMode.EAGER:
                return cls(launch_s, gap_s, end_s, costs.queue_depth)
            case RunMode.PIPELINED:
                return cls(launch_s, gap_s, 0.0, costs.queue_depth, _STEPS)
            case RunMode.GRAPH:
                launch_s, gap_s = costs.graph_launch_s.value, costs.graph_gap_s.value
                return cls(launch_s, gap_s, end_s, issuing=False)


@dataclass(frozen=True, slots=True)
class _Call:
    """A call that issues ``kernels`` for ``work_s`` seconds, and may wait until they have ended."""

    title: str
    work_s: float
    kernels: Sequence[Kernel]
    waits: bool

    @classmethod
    def of(cls, title: str, host_s: float, kernels: Sequence[Kernel], pace: _Pace) -> _Call:
        if not pace.issuing:
            return cls(title, 0.0, kernels, waits=False)
        waits = copies_to_host(kernels)
        waited_s = pace.launch_s + _device_s(kernels) if waits else 0.0
        return cls(title, max(0.0, host_s - waited_s), kernels, waits)


def _device_s(kernels: Sequence[Kernel]) -> float:
    return sum([kernel.device_s for kernel in kernels])


@dataclass(slots=True)
class _LaunchedSteps:
    """Steps in a row as tasks: those of a step's calls, of synchronising, of its kernels.

    ``launched`` are the positions of all kernels so far, ``size`` the number of tasks of a step.
    """

    pace: _Pace
    tasks: list[Task] = field(default_factory=list)
    launched: list[int] = field(default_factory=list)
    size: int = 0

    def add(self, calls: Sequence[_Call]) -> None:
        """Add a step; a step of several does not wait for the device."""
        first = len(self.tasks) + len(calls) + 1
        kernels: list[Task] = []
        waited_for: dict[int, float] = {}
        for call in calls:
            position = len(self.tasks)
            needed = waited_for | self._full(len(call.kernels))
            self.tasks.append(Task(HOST, call.work_s, call.title, needed))
            for kernel in call.kernels:
                after = {position: self.pace.launch_s} | self._launched(self.pace.gap_s)
                self.launched.append(first + len(kernels))
                kernels.append(Task(DEVICE, kernel.device_s, kernel.name, after))
            waited_for = self._launched(0.0) if call.waits else {}
        needed = waited_for if self.pace.steps > 1 else self._launched(0.0)
        self.tasks += [Task(HOST, self.pace.end_s, SYNCHRONIZE, needed), *kernels]
        self.size = 1 + len(calls) + len(kernels)

    def _launched(self, lag_s: float) -> dict[int, float]:
        return {self.launched[-1]: lag_s} if self.launched else {}

    def _full(self, kernels: int) -> dict[int, float]:
        """The dependency of a call on the kernel that must end for its own to find a place."""
        ended = len(self.launched) + min(0, kernels - self.pace.depth)
        return {self.launched[ended - 1]: 0.0} if kernels and ended > 0 else {}

    def last(self, run: Timeline) -> tuple[Timeline, float]:
        """The last step as a run of its own, and the seconds from the end of the one before."""
        if self.pace.steps == 1:
            return run, run.end_s
        ends_s: list[dict[str, float]] = [{} for _ in range(self.pace.steps)]
        for span in run.spans:
            ends_s[span.members[0] // self.size][span.lane] = span.end_s
        step_s = max(end_s - ends_s[-2][lane] for lane, end_s in ends_s[-1].items())
        first = self.size * (self.pace.steps - 1)
        spans = [span for span in run.spans if span.members[0] >= first]
        begin_s = min(span.begin_s for span in spans)
        return Timeline(tuple(self._moved(span, first, begin_s) for span in spans)), step_s

    def _moved(self, span: LaneSpan, tasks: int, by_s: float) -> LaneSpan:
        """The span as one of the first step: ``by_s`` earlier, at a position ``tasks`` before."""
        position = span.members[0] - tasks
        return LaneSpan(self.tasks[position], span.begin_s - by_s, span.end_s - by_s, (position,))
