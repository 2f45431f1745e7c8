"""A quota below one processor: a thread runs until its budget is spent, and stops.

The kernel gives a control group ``share`` · ``period_s`` seconds of a processor in each period
(CFS bandwidth control, Turner et al., 2010). Must not know what runs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

# The kernel's default period, for systems whose period was not recorded.
PERIOD_S = 0.1


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
