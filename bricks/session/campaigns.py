"""Campaigns of a bench: measure for some models all missing bricks, or the worthwhile ones.

Here to connect a bench's options with measuring: the number of bricks loaded at once, the memory
limit, and whether an effort or a budget leaves some to be predicted. Must not know how results are
used.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

from bricks.measure.campaign import Campaign, CampaignResult, Conditions, Progress
from bricks.measure.conditions import LEAST_S
from bricks.measure.jobs import Job, memory_bytes
from bricks.measure.rounds import StopRule
from bricks.measure.supervisor import Supervisor
from bricks.predict.effort import Effort
from bricks.samples.call_overhead import ALL_PROBES
from bricks.session.latency_model import LatencyModel
from bricks.session.options import Options
from bricks.session.plans import Plans
from bricks.store import Store
from bricks.system import Target

# Number of bricks measured in interleaved rounds under a time budget: the budget may be spent
# before many are loaded.
_FEW_BRICKS = 100


class Campaigns:
    """Campaigns on ``target``; ``latency_model`` gives its latency model.

    ``measured`` is called with the bricks that have new rounds, after all that is measured.

    ``bounded_memory`` is whether the runtime holds no more memory than the loaded bricks need.
    """

    def __init__(
        self,
        store: Store,
        supervisor: Supervisor,
        plans: Plans,
        target: Target,
        options: Options,
        *,
        effort: Effort,
        conditions: Conditions,
        bounded_memory: bool,
        latency_model: Callable[[], LatencyModel],
        measured: Callable[[Collection[str]], None],
        progress: Progress,
    ) -> None:
        self._store = store
        self._supervisor = supervisor
        self._plans = plans
        self._target = target
        self._options = options
        self._effort = effort
        self._conditions = conditions
        self._bounded_memory = bounded_memory
        self._latency_model = latency_model
        self._measured = measured
        self._progress = progress

    def measure(self, jobs: Sequence[Job]) -> CampaignResult:
        """Measure for ``jobs`` all missing bricks, or as many as the effort needs."""
        budget_s = self._budget_s()
        whole = any(job.whole for job in jobs)
        unplanned = self._effort.complete and (whole or budget_s is None)
        if unplanned or not self._missing(jobs):
            return self.measure_all(jobs, budget_s)
        # Here: measuring everything needs no planning, and should not import it.
        from bricks.session.adaptive import AdaptiveMeasurement

        adaptive = AdaptiveMeasurement(
            jobs, self._latency_model(), self._effort, budget_s, self._progress
        )
        if adaptive.untried:
            self._supervisor.awaken()  # while the first stage is planned
        return adaptive.run(self.measure_all)

    def _missing(self, jobs: Sequence[Job]) -> set[str]:
        """The bricks of ``jobs`` among which an effort or a budget has to choose."""
        bricks = {key for job in jobs for key in job.bricks}
        return bricks - self._store.settled(self._target.key, sorted(bricks))

    def _budget_s(self) -> float | None:
        """What is left of the budget, in seconds, but always enough for a round; None: no limit."""
        budget_s, began_s = self._conditions.budget_s, self._conditions.budget_began_s
        if budget_s is None or began_s is None:
            return budget_s
        return max(min(budget_s, LEAST_S), budget_s - (time.monotonic() - began_s))

    def measure_all(
        self,
        jobs: Sequence[Job],
        budget_s: float | None,
        progress: Progress | None = None,
        *,
        rule: StopRule | None = None,
    ) -> CampaignResult:
        """Measure all missing bricks of ``jobs``, as far as ``budget_s`` seconds last.

        Each is sampled until ``rule`` is met, by default that of the conditions.
        """
        self._plans.save_target()
        if self._options.retry:
            keys = {key for job in jobs for key in job.keys}
            self._store.forget_failures(self._target.key, sorted(keys | set(ALL_PROBES)))
        conditions = replace(
            self._conditions,
            budget_s=budget_s,
            rule=self._conditions.rule if rule is None else rule,
        )
        if budget_s is not None:
            conditions = replace(conditions, max_bricks=min(conditions.max_bricks, _FEW_BRICKS))
        campaign = Campaign(
            self._store,
            self._supervisor,
            self._target.key,
            conditions,
            self._progress if progress is None else progress,
        )
        with self.memory_for(jobs):
            result = campaign.run(jobs)
        self._measured(result.remeasured)
        return result

    def memory_for(self, jobs: Sequence[Job]) -> AbstractContextManager[None]:
        """The memory limit for measuring ``jobs``."""
        if self._options.memory_bytes is not None or not self._bounded_memory:
            return nullcontext()
        return self._supervisor.memory_limited(
            memory_bytes(jobs, self._conditions.max_weight_bytes)
        )
