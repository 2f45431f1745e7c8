"""Campaigns of a workspace: measure for some models all missing bricks, or the worthwhile ones.

Here to connect options with measuring: the number of bricks loaded at once, and whether an effort
or a budget leaves some to be predicted. Must not know how results are used.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from threading import Thread
from typing import TYPE_CHECKING

from bricks.measure.campaign import Campaign
from bricks.measure.conditions import Conditions
from bricks.samples.call_overhead import ALL_PROBES

if TYPE_CHECKING:
    from bricks.measure.campaign_result import CampaignResult
    from bricks.measure.jobs import ModelJob
    from bricks.measure.progress import Progress
    from bricks.measure.rounds import StopRule
    from bricks.session.estimators import Estimators
    from bricks.session.plans import Plans
    from bricks.session.resources import Resources

# Number of bricks measured in interleaved rounds under a time budget: the budget may be spent
# before many are loaded.
_FEW_BRICKS = 100


# Within a shorter budget, too little is measured to learn from.
_IMPORTED_S = 5.0


def _import_learning() -> None:
    import scipy.linalg  # noqa: F401  # only to have it imported
    import sklearn.linear_model  # noqa: F401  # only to have it imported


class Campaigns:
    """Campaigns on the target of ``resources``; ``estimators`` are notified of new measurements."""

    def __init__(self, resources: Resources, plans: Plans, estimators: Estimators) -> None:
        self._resources = resources
        self._plans = plans
        self._estimators = estimators

    def measure(self, jobs: Sequence[ModelJob], *, rule: StopRule | None = None) -> CampaignResult:
        """Measure for ``jobs`` all missing bricks, or as many as the effort needs.

        Each is sampled until ``rule`` is met, by default the rule of the conditions.
        """
        budget_s, effort = self.budget_s(), self._resources.setup.effort
        whole = any(job.whole for job in jobs)
        unplanned = effort.complete and (whole or budget_s is None)
        if unplanned or not self._missing(jobs):
            return self.measure_all(jobs, budget_s, rule=rule)
        # Here: measuring everything needs no planning, and should not import it.
        from bricks.session.adaptive import AdaptiveMeasurement

        # What an answer learns with takes a second to import: within the budget, not after it.
        importing = Thread(target=_import_learning, daemon=True)
        if budget_s is not None and budget_s > _IMPORTED_S:
            importing.start()
        latencies = self._estimators.measured.latencies(self._resources.target)
        progress = self._resources.progress
        adaptive = AdaptiveMeasurement(jobs, latencies, effort, budget_s, progress)
        if adaptive.untried or budget_s is not None:
            self._resources.supervisor.start()  # while the first stage is planned

        def run(
            jobs: Sequence[ModelJob], budget_s: float | None, progress: Progress
        ) -> CampaignResult:
            if importing.is_alive():
                began = time.monotonic()
                importing.join()  # nothing else may run while bricks are timed
                if budget_s is not None:
                    budget_s = max(0.0, budget_s - (time.monotonic() - began))
            return self.measure_all(jobs, budget_s, progress, rule=rule)

        return adaptive.run(run)

    def _missing(self, jobs: Sequence[ModelJob]) -> set[str]:
        """The bricks of ``jobs`` among which an effort or a budget has to choose."""
        bricks = {key for job in jobs for key in job.bricks}
        store, target = self._resources.store, self._resources.target
        return bricks - store.measurements.settled(target.key, sorted(bricks))

    def budget_s(self) -> float | None:
        """The rest of the budget in seconds; None for no limit."""
        conditions = self._resources.conditions
        budget_s, began_s = conditions.budget_s, conditions.budget_began_s
        if budget_s is None or began_s is None:
            return budget_s
        return max(0.0, budget_s - (time.monotonic() - began_s))

    def measure_all(
        self,
        jobs: Sequence[ModelJob],
        budget_s: float | None,
        progress: Progress | None = None,
        *,
        rule: StopRule | None = None,
    ) -> CampaignResult:
        """Measure all missing bricks of ``jobs``, as far as ``budget_s`` seconds last.

        Each is sampled until ``rule`` is met, by default the rule of the conditions.
        """
        started = time.monotonic()
        self._plans.save_target()
        if self._resources.options.retry:
            self._forget_failures(jobs)
        with self._resources.memory_for(jobs):  # which may start the worker
            if budget_s is not None:
                budget_s = max(0.0, budget_s - (time.monotonic() - started))
            conditions = self._conditions(budget_s, rule)
            result = self._campaign(conditions, progress).run(jobs)
        self._estimators.note_measured(result.remeasured)
        return result

    def _forget_failures(self, jobs: Sequence[ModelJob]) -> None:
        keys = {key for job in jobs for key in job.keys}
        target = self._resources.target
        self._resources.store.measurements.forget_failures(
            target.key, sorted(keys | set(ALL_PROBES))
        )

    def _conditions(self, budget_s: float | None, rule: StopRule | None) -> Conditions:
        conditions = replace(self._resources.conditions, budget_s=budget_s)
        if rule is not None:
            conditions = replace(conditions, rule=rule)
        if budget_s is not None:
            conditions = replace(conditions, max_bricks=min(conditions.max_bricks, _FEW_BRICKS))
        return conditions

    def _campaign(self, conditions: Conditions, progress: Progress | None) -> Campaign:
        resources = self._resources
        shown = resources.progress if progress is None else progress
        return Campaign(
            resources.store, resources.supervisor, resources.target.key, conditions, shown,
            resources.further_copies,
        )  # fmt: skip
