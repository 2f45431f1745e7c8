"""Campaigns of a workspace: measure for some models all missing bricks, or the worthwhile ones.

Here to connect options with measuring: the number of bricks loaded at once, and whether an effort
or a budget leaves some to be predicted. Must not know how results are used.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from threading import Thread
from typing import TYPE_CHECKING

from bricks import backends
from bricks.errors import BricksError
from bricks.measure.campaign import Campaign
from bricks.measure.conditions import Conditions, StopRule
from bricks.measure.jobs import ModelJob, needs_of
from bricks.samples.call_overhead import ALL_PROBES
from bricks.sources import read

if TYPE_CHECKING:
    from bricks.measure.campaign_result import CampaignResult, Progress
    from bricks.session.estimator import Estimators
    from bricks.session.plans import Plans
    from bricks.session.resources import Resources

_logger = logging.getLogger(__name__)

# Number of bricks measured in interleaved rounds under a time budget: the budget may be spent
# before many are loaded.
_FEW_BRICKS = 100

# How long a new host is watched after measuring, at most; within this, networks of the zoo are run
# along with their bricks, unless it is too short for one of them.
_WATCH_S, SHORT_S = 10.0, 1.0

# These networks are of four kinds: convolutions of all sizes, attention, hundreds of small nodes,
# and depthwise convolutions.
REFERENCE_NETWORKS = ("squeezenet", "bert_mini", "shufflenet", "gluon_mobilenet025")

# Where bricks are predicted, one in so many models is run, at most this many.
_ONE_IN, _MOST_RUN = 5, 8

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
        resources = self._resources
        if not effort.complete and resources.earns_intervals(resources.target):
            jobs = with_runs(jobs, len(resources.whole_runs()))
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
        again: bool | None = None,
    ) -> CampaignResult:
        """Measure all missing bricks of ``jobs``, as far as ``budget_s`` seconds last.

        Each is sampled until ``rule`` is met, and known ones ``again``; by default as the
        conditions say.
        """
        started = time.monotonic()
        self._plans.save_target()
        if self._resources.options.retry:
            keys = {key for job in jobs for key in job.keys}
            target = self._resources.target
            self._resources.store.measurements.forget_failures(
                target.key, sorted(keys | set(ALL_PROBES))
            )
        with self._resources.memory_for(jobs):  # which may start the worker
            if budget_s is not None:
                budget_s = max(0.0, budget_s - (time.monotonic() - started))
            conditions = replace(self._resources.conditions, budget_s=budget_s)
            if budget_s is not None:
                most_bricks = min(conditions.max_bricks, _FEW_BRICKS)
                conditions = replace(conditions, max_bricks=most_bricks)
            if rule is not None:
                conditions = replace(conditions, rule=rule)
            if again is not None:
                conditions = replace(conditions, again=again)
            result = self._campaign(conditions, progress).run(jobs)
        seconds = time.monotonic() - started
        if result.measured and conditions.exclusive:
            left_s = _WATCH_S if budget_s is None else budget_s - seconds
            watched_s = min(seconds, _WATCH_S, left_s)
            ends_s = time.monotonic() + watched_s
            if watched_s > SHORT_S and self._resources.earns_intervals(self._resources.target):
                self._run_networks(ends_s, conditions)
            # Further copies run the first model while the host is watched.
            self._campaign(conditions, None).watch(jobs[0], ends_s - time.monotonic())
        self._estimators.note_measured(result.remeasured)
        return result

    def _run_networks(self, ends_s: float, conditions: Conditions) -> None:
        """Run reference networks until about ``ends_s``, if this host has run too few models."""
        resources = self._resources
        if backends.offer(resources.runtime.backend).counterparts is not None:
            return  # its models are programs
        known = len(resources.whole_runs())
        for name in REFERENCE_NETWORKS[known:]:
            left_s = ends_s - time.monotonic()
            if left_s <= 0:
                return
            if conditions.budget_s is not None:
                conditions = replace(conditions, budget_s=left_s)
            resources.progress(f"running {name} along with its bricks", 1.0)
            try:
                model = read(name, resources.read_options())
                job = ModelJob(model, self._plans.decompose(model), whole=True)
                with resources.memory_for([job]):
                    self._campaign(conditions, lambda what, share: None).run([job])
            except BricksError as error:
                _logger.info("%s was not run: %s", name, error)

    def _campaign(self, conditions: Conditions, progress: Progress | None) -> Campaign:
        resources = self._resources
        shown = resources.progress if progress is None else progress
        return Campaign(
            resources.store, resources.supervisor, resources.target.key, conditions, shown,
            resources.further_copies,
        )  # fmt: skip


def with_runs(jobs: Sequence[ModelJob], known: int) -> list[ModelJob]:
    """``jobs``, some of which run their whole models too, where ``known`` were run before.

    What they show corrects predictions. Small models are run: a run takes as long as all bricks.
    """
    wanted = min(_MOST_RUN - known, len(jobs) // _ONE_IN)
    if wanted <= 0 or any(job.whole for job in jobs):
        return list(jobs)
    needs = needs_of(jobs)
    work = {
        digest: sum(abs(n) * need.works[key] for key, n in need.counts.items())
        for digest, need in needs.items()
    }
    small = sorted(work, key=lambda digest: work[digest])[: max(wanted, len(work) // 2)]
    chosen = set(sorted(small)[:wanted])  # by digest: at random, and the same again
    return [replace(job, whole=job.model.digest in chosen) for job in jobs]
