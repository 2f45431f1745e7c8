"""A model's step on host and device, from what an estimate knows of its bricks.

Must not know how measurements came about.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bricks.compose.device.launching import DeviceRun, device_run
from bricks.compose.occurrences import HOST, occurrence_tasks

if TYPE_CHECKING:
    from bricks.compose.basis import Basis
    from bricks.compose.latencies import BrickLatencies


@dataclass(frozen=True, slots=True)
class DeviceStep:
    """A run of a plan; ``excess_s`` is that of its tasks on the host (``OccurrenceTasks``)."""

    run: DeviceRun
    excess_s: float


def device_step(basis: Basis, known: BrickLatencies) -> DeviceStep:
    """Compose the step of ``basis`` from the host's latencies and the kernels in ``known``.

    A brick without a latency takes no time, nor does launching.
    """
    plan = basis.plan
    net_s = dict.fromkeys(plan.keys, 0.0) | known.net_s
    on_host = occurrence_tasks(plan, net_s, [HOST] * len(plan.occurrences))
    kernels = [
        known.kernels.get(occurrence.brick, ()) if occurrence.repeats is None else ()
        for occurrence in plan.occurrences
    ]
    host_s = [task.work_s for task in on_host.tasks]
    return DeviceStep(device_run(plan, host_s, kernels), on_host.excess_s)
