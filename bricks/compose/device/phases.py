"""The phases of a step on a host and its device: when the calls and kernels of each have ended.

Must not know how a step is composed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bricks.compose.estimate import PhaseShare

if TYPE_CHECKING:
    from bricks.compose.lanes import Timeline
    from bricks.decompose.plan import Plan
    from bricks.units.sample import Kernel


def phases_of(
    plan: Plan, run: Timeline, kernels: Sequence[Sequence[Kernel]]
) -> tuple[PhaseShare, ...]:
    """The seconds of each phase of a recorded program in ``run``; empty for other plans.

    ``kernels`` are those of each occurrence. A phase ends once its calls have returned and its
    kernels have ended, and the next one begins; what follows the last belongs to it.
    """
    ends_s = _ends_s(plan, run, kernels)
    phases = [phase for _, phase in plan.memory.overheads]
    shares, position, begin_s = list[PhaseShare](), 0, 0.0
    for phase in phases:
        position += phase.occurrences
        last = phase is phases[-1]
        end_s = run.end_s if last else max([begin_s, *ends_s[:position]])
        shares.append(PhaseShare(phase.name, phase.calls, end_s - begin_s, 0.0))
        begin_s = end_s
    return tuple(shares)


def _ends_s(plan: Plan, run: Timeline, kernels: Sequence[Sequence[Kernel]]) -> list[float]:
    """When each occurrence has returned, and its kernels have ended."""
    spans, ends_s = run.by_task, list[float]()
    kernel = len(plan.occurrences) + 1  # after the calls and the wait for the device
    for position, own in enumerate(kernels):
        tasks = [position, *range(kernel, kernel + len(own))]
        ends_s.append(max(spans[task].end_s for task in tasks))
        kernel += len(own)
    return ends_s
