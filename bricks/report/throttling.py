"""What a quota below one processor makes of runs in a loop, for terminals."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bricks.report.tables import seconds

if TYPE_CHECKING:
    from bricks.system import Target
    from bricks.units.interval import Interval


def quota_remarks(model: str, latency_s: Interval, target: Target | None) -> list[str]:
    """A line on runs of ``model`` in a loop on ``target``; empty if no quota stops them."""
    quota = None if target is None else target.system.quota
    if quota is None or not latency_s.value:
        return []
    loop = quota.loop(latency_s.value)
    return [
        f"{model}: that is a run within the quota, {seconds(quota.budget_s)} of each"
        f" {seconds(quota.period_s)}. In a loop, runs stop when it is spent: half of them take at"
        f" most {seconds(loop.p50_s)}, 99 % at most {seconds(loop.p99_s)}, and"
        f" {loop.runs_per_s:.4g} are done a second."
    ]
