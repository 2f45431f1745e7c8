"""Real steps of the program itself under DDP, over ranks on this host, to compare with predictions.

Must not know how steps are predicted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bricks.measure.distributed_steps import measure_steps
from bricks.session.local_networks import rank_locations_of
from bricks.sources import function_of
from bricks.studies.scaling.result import CheckedStep

if TYPE_CHECKING:
    from bricks.measure.rounds import StopRule
    from bricks.network.times import MeasuredNetwork
    from bricks.session.workspace import Workspace
    from bricks.studies.scaling.options import ScalingOptions


def real_step(
    workspace: Workspace,
    options: ScalingOptions,
    network: MeasuredNetwork,
    *,
    batch: int | None,
    computing_s: float,
    rule: StopRule,
) -> CheckedStep:
    """Run real steps on ``options.check`` ranks of ``network`` until ``rule`` is met.

    Each rank has one thread and ``batch`` samples (None: the program's own number). The ranks share
    this host, so unlike predicted ones they also share its memory and its last level of cache. A
    straggler is delayed in proportion to ``computing_s``, the seconds that a rank computes. Raises
    :class:`~bricks.errors.BricksError` if the network cannot be set up here, and if a rank fails.
    """
    assert options.check is not None
    step, ranks = options.step, options.check
    program = function_of(options.workload).request(batch)
    with rank_locations_of(network, ranks) as locations:
        times = measure_steps(
            program,
            locations,
            bucket_cap_mb=options.strategies.bucket_cap_mb,
            accumulation=step.accumulate,
            delays_s=[(step.straggler - 1) * computing_s],
            seed=workspace.options.seed,
            rule=rule,
            python=workspace.options.python,
            progress=workspace.progress,
        )
    return CheckedStep(ranks, times.synchronised.value, times.solo.value)
