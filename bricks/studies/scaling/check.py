"""Real steps beside predicted ones: the program itself under DDP, over ranks on this host.

The ranks are joined as those of the network that was measured. Must not know how steps are
predicted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bricks.measure.distributed_steps import RULE, measure_steps
from bricks.measure.rounds import StopRule
from bricks.network.times import MeasuredNetwork
from bricks.session.local_networks import places_of
from bricks.sources import function_of
from bricks.studies.scaling.result import CheckedStep


@dataclass(frozen=True, slots=True)
class RealSteps:
    """Runs real steps of ``workload`` on ranks that ``network`` joins.

    Each rank has one thread. The ranks share this host, so unlike predicted ones they also share
    its memory and its last level of cache. ``straggler`` is how much slower the first rank is.
    """

    workload: str
    network: MeasuredNetwork
    bucket_cap_mb: float | None = None
    accumulate: int = 1
    straggler: float = 1.0
    seed: int = 0
    progress: Callable[[str, float], None] = lambda what, share: None
    rule: StopRule = RULE

    def __call__(self, ranks: int, batch: int | None, lone_s: float) -> CheckedStep:
        """Steps on ``ranks`` ranks, each with ``batch`` samples (None: the program's own number).

        ``lone_s`` is what a rank computes in a step, in seconds. Raises
        :class:`~bricks.errors.BricksError` if the network cannot be set up here, and if a rank
        fails.
        """
        program = function_of(self.workload).request(batch)
        with places_of(self.network, ranks) as places:
            found = measure_steps(
                program,
                places,
                bucket_cap_mb=self.bucket_cap_mb,
                accumulation=self.accumulate,
                delays_s=[(self.straggler - 1) * lone_s],
                seed=self.seed,
                rule=self.rule,
                progress=self.progress,
            )
        return CheckedStep(ranks, found.synchronised.value, found.solo.value)
