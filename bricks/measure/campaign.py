"""A campaign: measures keys without stored results, and stores every round at once.

Batches of models are completed one after the other, and keys that other processes measure come
last. However a campaign ends, all samples are stored: the next one continues with them. It must not
know how the worker runs a walk, nor how latencies are added up.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

from bricks.errors import WorkerError
from bricks.measure.campaign_result import CampaignResult, Progress, Tally
from bricks.measure.conditions import Conditions, Deadline, NoShares, SamplingGoal
from bricks.measure.jobs import (
    Batch,
    Importance,
    ModelJob,
    ModelNeeds,
    batches,
    needs_of,
    spread_out,
)
from bricks.measure.loop import Loop
from bricks.measure.protocol.walking import TimeKernels
from bricks.measure.sampling_task import (
    OVERHEAD,
    WHOLE,
    SamplingTask,
    probe_walk,
    probes_for,
    walks_of,
)
from bricks.measure.task_sampler import TaskSampler
from bricks.measure.timing_lock import timing_lock
from bricks.samples.call_overhead import PROBES
from bricks.samples.measurement import UNSURE_SHARE, Failure, Measurement, round_spread
from bricks.system import ForeignLoad

if TYPE_CHECKING:
    from bricks.measure.further_copies import FurtherCopies
    from bricks.measure.supervisor import Supervisor
    from bricks.store import Claim, Store

_logger = logging.getLogger(__name__)

# A host that was watched for so many seconds is known.
_KNOWN_S = 60


class Campaign:
    """One run of measuring on one target."""

    def __init__(
        self,
        store: Store,
        supervisor: Supervisor,
        target_key: str,
        conditions: Conditions,
        progress: Progress,
        copies: FurtherCopies,
    ) -> None:
        self._store, self._target = store, target_key
        self._supervisor, self._copies = supervisor, copies
        self._conditions = conditions
        self._progress = progress
        self._loop = Loop(store, target_key)
        self._tally = Tally()
        self._tasks = TaskSampler(
            supervisor, self._loop, self._tally, progress, conditions.timeout_s, copies
        )

    def run(self, jobs: Sequence[ModelJob]) -> CampaignResult:
        """Measure the keys of ``jobs`` without stored results, many models at once."""
        keys = [*probes_for(jobs, self._conditions), *(key for job in jobs for key in job.keys)]
        missing = self._loop.missing(keys)
        _logger.info("measurements wanted: %d, lacking: %d", len(set(keys)), len(missing))
        again = set[str]()
        if self._conditions.again:
            again |= _measured(self._store.measurements.results(self._target, keys)).keys()
        foreign_cores = None
        if jobs and (missing or again):
            self._store.refuse_damage()  # results that cannot be read would be measured twice
            exclusive = self._conditions.exclusive
            lock = timing_lock(lambda message: self._progress(message, 0.0))
            with lock if exclusive else nullcontext():
                load = ForeignLoad(
                    lambda: self._supervisor.processor_s() + self._copies.processor_s()
                )
                self._run(jobs, missing | again)
                foreign_cores = load.cores() if exclusive else None
        return self._tally.result(self._loop.unfinished, foreign_cores)

    def watch(self, job: ModelJob, seconds: float) -> None:
        """Watch the conditions of the host for some seconds, unless it is known well.

        Further copies run the model of ``job`` meanwhile.
        """
        known_s = len(self._store.measurements.watched(self._target))
        if seconds <= 0 or known_s >= _KNOWN_S:
            return
        self._progress("watching the speed of this host", 1.0)
        request, timeout_s = TimeKernels(seconds), self._conditions.timeout_s
        lock = timing_lock(lambda message: self._progress(message, 0.0))
        try:
            with lock, self._copies.running(job, timeout_s=timeout_s):
                every = self._supervisor.ask_afresh(request, timeout_s=timeout_s)
        except WorkerError as error:
            _logger.info("the host could not be watched: %s", error)
            return
        self._store.measurements.watch(self._target, every)

    def _run(self, jobs: Sequence[ModelJob], missing: Collection[str]) -> None:
        parts = CampaignParts(
            self._store, self._target, self._conditions,
            Deadline.after(self._conditions.budget_s), needs_of(jobs), self._tasks,
        )  # fmt: skip
        keys = probes_for(jobs, self._conditions)
        rule, calls = self._conditions.rule, set(PROBES.values())
        # Calls take microseconds: many rounds cost nothing. A phase of a step takes milliseconds.
        often = replace(rule, min_rounds=30, max_rounds=60)
        seldom = replace(rule, min_rounds=12, max_rounds=24)
        for chosen, keys_of in (
            (often, [key for key in keys if key in calls]),
            (seldom, [key for key in keys if key not in calls]),
        ):
            copied = jobs[0]
            for claims in self._tasks.claims(OVERHEAD, keys_of, parts.deadline, 0.0, patient=True):
                with self._loop.holding(claims):
                    walks = {OVERHEAD: probe_walk([claim.key for claim in claims])}
                    task = SamplingTask(
                        OVERHEAD, walks, claims, chosen, parts.deadline, copied=copied
                    )
                    self._tasks.sample(task)
        jobs = spread_out(jobs, missing, parts.needs)
        # Further copies run one model at a time: its bricks are measured while they do.
        most_bricks = 1 if self._copies else self._conditions.max_bricks
        all_batches = list(batches(jobs, missing, most_bricks, self._conditions.max_weight_bytes))
        # Each is as long in the progress of all as it has missing keys.
        ends = list(accumulate(sum(key in missing for key in batch.keys) for batch in all_batches))
        campaigns = [
            BatchCampaign(parts, batch, (begin / ends[-1], end / ends[-1]))
            for batch, (begin, end) in zip(all_batches, pairwise([0, *ends]), strict=True)
        ]
        # At first, keys that other processes are measuring are left out: so all share the work.
        left = [campaign for campaign in campaigns if campaign.complete(patient=False)]
        for campaign in left:
            campaign.complete(patient=True)


Results = Mapping[str, Measurement | Failure]


@dataclass(frozen=True, slots=True)
class CampaignParts:
    """Store, conditions and tasks that all batches of a campaign share."""

    store: Store
    target_key: str
    conditions: Conditions
    deadline: Deadline
    needs: Mapping[str, ModelNeeds]
    tasks: TaskSampler

    def results(self, keys: Sequence[str]) -> Results:
        """The stored results of ``keys``."""
        return self.store.measurements.results(self.target_key, keys)

    def known(self, keys: Sequence[str]) -> dict[str, Measurement]:
        """The measurements among the stored results of ``keys``."""
        return _measured(self.results(keys))


class BatchCampaign:
    """Measures a batch; ``span`` is where it begins and ends in the progress of the campaign."""

    def __init__(self, parts: CampaignParts, batch: Batch, span: tuple[float, float]) -> None:
        self._parts, self._batch, self._span = parts, batch, span
        self._plan_keys = [key for job in batch.jobs for key in job.decomposition.plan.keys]

    def complete(self, *, patient: bool) -> bool:
        """Measure missing keys.

        Keys that other processes are measuring are waited for if ``patient``, and left to these
        processes otherwise. Returns whether some keys were left.
        """
        new: set[str] = set()
        tasks, batch = self._parts.tasks, self._batch
        begin = self._span[0]
        for claims in tasks.claims(
            batch.name, batch.keys, self._parts.deadline, begin, patient=patient
        ):
            with tasks.loop.holding(claims):
                self._measure(claims, set())
                new |= {claim.key for claim in claims}
        loop = self._parts.tasks.loop
        left = bool(loop.missing(self._batch.keys) - loop.unfinished)
        if self._parts.conditions.again and not left:
            self._measure([], set(self._parts.known(self._batch.keys)) - new)
        for _ in range(self._parts.conditions.rule.retries if new else 0):
            unsure = _uncertain(self._batch, self._parts.known(self._plan_keys)) & new
            if not unsure or self._parts.deadline.passed:
                break
            self._measure([], unsure)
        return left

    def _measure(self, claims: Sequence[Claim], again: set[str]) -> None:
        """Measure the claimed keys, and measure keys in ``again`` again.

        Each of these gets as many rounds as a whole model does, former ones included, and some new
        ones in any case.
        """
        parts, batch = self._parts, self._batch
        results = parts.results(self._plan_keys)
        keys = {claim.key for claim in claims} | again
        assigned = batch.assigned(keys, parts.needs)
        failed = {key for key, result in results.items() if isinstance(result, Failure)}
        whole = next((j for j in batch.jobs if j.whole_key in keys or (j.whole and again)), None)
        walks = walks_of(batch, whole, assigned, failed, parts.conditions)
        goal = self._goal(claims, _measured(results), again, whole=WHOLE in walks)
        seldom = SamplingGoal(shares=NoShares())
        goals = {
            name: goal if walk.displaced_bytes is None else seldom for name, walk in walks.items()
        }
        rule, count = parts.conditions.rule, len(keys & set(self._plan_keys))
        bricks = f"{count} brick{'' if count == 1 else 's'} of " if count else ""
        done = parts.tasks.sample(
            SamplingTask(
                f"measuring {bricks}{batch.name}", walks, claims, rule, parts.deadline, goals,
                self._span, copied=batch.jobs[0],
            )
        )  # fmt: skip
        measured = parts.tasks.tally.measured
        for job, keys_of_job in assigned:
            measured[job.model.digest] |= done & keys_of_job
        for job in batch.jobs:
            measured[job.model.digest] |= done & {job.whole_key}

    def _goal(
        self,
        claims: Sequence[Claim],
        known: Mapping[str, Measurement],
        again: set[str],
        *,
        whole: bool,
    ) -> SamplingGoal:
        before = {claim.key: claim.rounds for claim in claims}
        if again:
            before |= {key: m.rounds for key, m in known.items() if key in again}
            return SamplingGoal(before, None, self._parts.conditions.rule.min_rounds)
        if whole:  # sampled as often as the model, bricks have the same drift
            return SamplingGoal(before)
        known_s = {key: m.latency_s for key, m in known.items()}
        return SamplingGoal(before, Importance(self._parts.needs, known_s))


def _measured(results: Results) -> dict[str, Measurement]:
    return {key: result for key, result in results.items() if isinstance(result, Measurement)}


def _uncertain(batch: Batch, known: Mapping[str, Measurement]) -> set[str]:
    """Bricks whose samples are so noisy that a model's latency is too uncertain."""
    keys: set[str] = set()
    for job in batch.jobs:
        counts = job.decomposition.plan.counts
        spreads = {key: round_spread(known[key]) for key in counts if key in known}
        total_s = sum(abs(counts[key]) * latency.value for key, latency in spreads.items())
        parts = (counts[key] * one.value * one.relative for key, one in spreads.items())
        if math.hypot(*parts) > UNSURE_SHARE * total_s:
            keys |= {key for key, one in spreads.items() if one.relative > UNSURE_SHARE}
    return keys
