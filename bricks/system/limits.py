"""Resource limits of this process: processors by affinity and quota, memory by limit.

A container sees the whole host in ``/proc`` but gets a share of it; threads and memory beyond that
share only slow a measurement down. Handles both versions of control groups; must not know what the
processor is. Every function that reads limits takes the root of the file system, so that tests can
provide one.

Under a quota below one processor a thread runs until its budget is spent, and stops: the kernel
gives a control group ``share`` · ``period_s`` seconds of a processor in each period (CFS bandwidth
control, Turner et al., 2010).
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

# Version 1 writes "no limit" as the largest multiple of a page that fits 63 bits.
_UNLIMITED = 1 << 60

# The kernel's default period, for systems whose period was not recorded.
PERIOD_S = 0.1


@dataclass(frozen=True, slots=True)
class MemoryLimit:
    """A control group's memory limit, and how much of it can't be reclaimed now, in bytes."""

    limit_bytes: int
    used_bytes: int


def logical_cpus() -> tuple[int, ...]:
    """Numbers of the logical processors that this process may run on, in ascending order."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def cpu_quota(root: Path = Path("/")) -> float | None:
    """The quota of the tightest control group, in processors; None without a limit."""
    tightest = _tightest(root)
    return None if tightest is None else tightest[0]


def cpu_period_s(root: Path = Path("/")) -> float | None:
    """The seconds after which the budget of :func:`cpu_quota` is renewed; None without a limit."""
    tightest = _tightest(root)
    return None if tightest is None else tightest[1]


def is_throttled(root: Path = Path("/")) -> bool:
    """Whether a quota below one processor stops this process in each period."""
    quota = cpu_quota(root)
    return quota is not None and quota < 1


def throttled_s(root: Path = Path("/")) -> float:
    """Seconds for which quotas have stopped the control groups of this process; 0.0 without any.

    Each processor on which a group was stopped counts.
    """
    unified = [_statistic(folder / "cpu.stat", "throttled_usec") for folder in _groups(root, "")]
    first = [_statistic(folder / "cpu.stat", "throttled_time") for folder in _groups(root, "cpu")]
    return max([*(of * 1e-6 for of in unified), *(of * 1e-9 for of in first)], default=0.0)


def _statistic(file: Path, name: str) -> int:
    """The number called ``name`` in a file of a control group; 0 without it."""
    for line in (read_text(file) or "").splitlines():
        key, _, number = line.partition(" ")
        if key == name and number.isdigit():
            return int(number)
    return 0


def _tightest(root: Path) -> tuple[float, float] | None:
    """The least quota in processors, and its period in seconds."""
    quotas = [_quota_v2(folder) for folder in _groups(root, "")]
    quotas += [_quota_v1(folder) for folder in _groups(root, "cpu")]
    return min((quota for quota in quotas if quota is not None), default=None)


def memory_limits(root: Path = Path("/")) -> list[MemoryLimit]:
    """The memory limits that apply to this process, one per control group with a limit."""
    limits = [
        _memory(folder, "memory.max", "memory.current", "inactive_file")
        for folder in _groups(root, "")
    ]
    limits += [
        _memory(folder, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        for folder in _groups(root, "memory")
    ]
    return [limit for limit in limits if limit is not None]


def read_text(path: Path) -> str | None:
    """The text of a small file without surrounding blanks; None if it can't be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def read_int(path: Path) -> int | None:
    """The whole number that a small file holds; None if it can't be read or isn't one."""
    text = read_text(path)
    try:
        return None if text is None else int(text)
    except ValueError:
        return None


def _groups(root: Path, controller: str) -> Iterator[Path]:
    """Folders of the control groups this process is in, innermost first, up to the mount.

    ``controller`` is that of a version 1 hierarchy, or empty for the unified one (version 2). In a
    container the listed path often belongs to the host and doesn't exist; the mount still does.
    """
    for line in (read_text(root / "proc/self/cgroup") or "").splitlines():
        fields = line.split(":", 2)
        if len(fields) != 3 or controller not in fields[1].split(","):
            continue
        mount = root / "sys/fs/cgroup" / controller
        group = PurePosixPath(fields[2].lstrip("/"))
        for part in (group, *group.parents):
            if ".." not in part.parts:
                yield mount / part


def _quota_v2(folder: Path) -> tuple[float, float] | None:
    numbers = (read_text(folder / "cpu.max") or "").split()
    if len(numbers) != 2 or not all(map(str.isdigit, numbers)) or not int(numbers[1]):
        return None
    return int(numbers[0]) / int(numbers[1]), int(numbers[1]) / 1e6


def _quota_v1(folder: Path) -> tuple[float, float] | None:
    quota = read_int(folder / "cpu.cfs_quota_us")
    period = read_int(folder / "cpu.cfs_period_us")
    return (quota / period, period / 1e6) if quota and period and quota > 0 else None


def _memory(folder: Path, limit: str, usage: str, reclaimable: str) -> MemoryLimit | None:
    limit_bytes = read_int(folder / limit)
    if limit_bytes is None or limit_bytes >= _UNLIMITED:
        return None
    # The page cache counts as usage, but can be reclaimed.
    used = (read_int(folder / usage) or 0) - _statistic(folder / "memory.stat", reclaimable)
    return MemoryLimit(limit_bytes, max(used, 0))


@dataclass(frozen=True, slots=True)
class LoopedRuns:
    """Runs in a loop without pauses: the median and 99th percentile of latencies in seconds."""

    p50_s: float
    p99_s: float
    runs_per_s: float


@dataclass(frozen=True, slots=True)
class Quota:
    """A ``share`` below 1 of one processor, renewed every ``period_s`` seconds.

    A run of ``work_s`` seconds takes these as long as the budget lasts. Runs in a loop begin
    anywhere in the budget.
    """

    share: float
    period_s: float = PERIOD_S

    @property
    def budget_s(self) -> float:
        """Seconds of work in each period."""
        return self.share * self.period_s

    @property
    def stop_s(self) -> float:
        """Seconds from the end of a budget until the next period, in a loop."""
        return self.period_s - self.budget_s

    def mean_s(self, work_s: float) -> float:
        """The mean latency of runs in a loop without pauses; its inverse is their throughput."""
        return work_s / self.share

    def loop(self, work_s: float) -> LoopedRuns:
        """Runs of ``work_s`` seconds of work in a loop without pauses."""
        p50_s, p99_s = (self.percentile_s(work_s, percent) for percent in (50, 99))
        return LoopedRuns(p50_s, p99_s, 1 / self.mean_s(work_s))

    def percentile_s(self, work_s: float, percent: float) -> float:
        """A percentile of the latencies of runs in a loop without pauses."""
        budgets = work_s / self.budget_s
        stops = math.floor(budgets)
        more = percent / 100 > 1 - (budgets - stops)  # that share of runs stops once more
        return work_s + (stops + more) * self.stop_s


class ThrottledClock:
    """The time at which work ends on one thread under a ``quota``; periods begin at 0."""

    __slots__ = ("_period", "_quota", "_used_s")

    def __init__(self, quota: Quota) -> None:
        self._quota, self._period, self._used_s = quota, 0, 0.0

    def end_s(self, begin_s: float, work_s: float) -> float:
        """The end of ``work_s`` seconds of work that begins at ``begin_s``, in ascending order."""
        quota = self._quota
        period = max(self._period, math.floor(begin_s / quota.period_s))
        if period > self._period:
            self._period, self._used_s = period, 0.0
        now_s = begin_s
        while True:
            next_s = (self._period + 1) * quota.period_s
            runs_s = max(0.0, min(quota.budget_s - self._used_s, next_s - now_s))
            if work_s <= runs_s:
                self._used_s += work_s
                return now_s + work_s
            work_s -= runs_s
            # Whole budgets are skipped at once; the last one is not, since work may end with it.
            skipped = max(0, math.ceil(work_s / quota.budget_s) - 1)
            work_s -= skipped * quota.budget_s
            self._period += 1 + skipped
            self._used_s = 0.0
            now_s = self._period * quota.period_s
