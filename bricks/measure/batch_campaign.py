"""Measures the missing keys of a batch.

Uncertain bricks are then measured again, a few times. It must not know how a task is
sampled, nor other batches.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bricks.measure.importance import Importance, ModelNeeds
from bricks.measure.rounds import NoShares, SamplingGoal
from bricks.measure.sampling_task import WHOLE, SamplingTask, walks_of
from bricks.samples.measurement import UNSURE_SHARE, Failure, Measurement, round_spread

if TYPE_CHECKING:
    from bricks.measure.conditions import Conditions
    from bricks.measure.deadline import Deadline
    from bricks.measure.jobs import Batch
    from bricks.measure.task_sampler import TaskSampler
    from bricks.store import Claim, Store

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
        new = self._measure_missing(patient=patient)
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

    def _measure_missing(self, *, patient: bool) -> set[str]:
        """Measure keys that can be claimed; returns these."""
        new: set[str] = set()
        tasks, batch = self._parts.tasks, self._batch
        begin = self._span[0]
        for claims in tasks.claims(
            batch.name, batch.keys, self._parts.deadline, begin, patient=patient
        ):
            with tasks.loop.holding(claims):
                self._measure(claims, set())
                new |= {claim.key for claim in claims}
        return new

    def _label(self, keys: Collection[str]) -> str:
        """What progress shows while ``keys`` are measured."""
        count = len(set(keys) & set(self._plan_keys))
        if not count:
            return f"measuring {self._batch.name}"
        return f"measuring {count} brick{'' if count == 1 else 's'} of {self._batch.name}"

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
        rule = parts.conditions.rule
        done = parts.tasks.sample(
            SamplingTask(
                self._label(keys), walks, claims, rule, parts.deadline, goals, self._span,
                copied=batch.jobs[0],
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
