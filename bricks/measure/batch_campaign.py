"""Measures the missing keys of a batch, so that all its bricks are known in one machine state.

Stale and uncertain bricks are then measured again, a few times. It must not know how a task is
sampled, nor other batches.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bricks.measure.importance import Importance, ModelNeeds
from bricks.measure.remeasuring import open_shares, stale, state_of, uncertain
from bricks.measure.rounds import NoShares, SamplingGoal
from bricks.measure.sampling_task import WHOLE, SamplingTask, walks_of
from bricks.samples.measurement import ENOUGH, Failure, Measurement

if TYPE_CHECKING:
    from bricks.measure.conditions import Conditions
    from bricks.measure.deadline import Deadline
    from bricks.measure.jobs import Batch
    from bricks.measure.task_sampler import TaskSampler
    from bricks.store import Claim, Store

# How often stale bricks of a batch are measured again, at most.
_MAX_REPEATS = 2

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
        """Measure missing keys, so that all of the batch is known in one machine state.

        Keys that other processes are measuring are waited for if ``patient``, and left to these
        processes otherwise. Returns whether some keys were left.
        """
        new = self._measure_missing(patient=patient)
        loop = self._parts.tasks.loop
        left = bool(loop.missing(self._batch.keys) - loop.unfinished)
        if self._parts.conditions.again and not left:
            self._measure([], set(self._parts.known(self._batch.keys)) - new, more=True)
        if new:
            self._repeat(_MAX_REPEATS, lambda: self._stale(self._state_of(new)), more=False)
            retries = self._parts.conditions.rule.retries
            self._repeat(retries, lambda: self._uncertain() & new, more=True)
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
                self._measure(claims, self._stale(tasks.state_now()))
                new |= {claim.key for claim in claims}
        return new

    def _label(self, keys: Collection[str]) -> str:
        """What progress shows while ``keys`` are measured."""
        count = len(set(keys) & set(self._plan_keys))
        if not count:
            return f"measuring {self._batch.name}"
        return f"measuring {count} brick{'' if count == 1 else 's'} of {self._batch.name}"

    def _repeat(self, most: int, open_keys: Callable[[], set[str]], *, more: bool) -> None:
        """Measure ``open_keys`` again, at most ``most`` times, until there are none."""
        for _ in range(most):
            keys = open_keys()
            if not keys or self._parts.deadline.passed:
                return
            self._measure([], keys, more=more)

    def _state_of(self, new: Collection[str]) -> float | None:
        wholes = [job.whole_key for job in self._batch.jobs if job.whole]
        return state_of(self._batch, self._parts.known([*self._plan_keys, *wholes]), new)

    def _stale(self, state_s: float | None) -> set[str]:
        """Bricks that were measured in another state, and make a model's latency too uncertain."""
        parts = self._parts
        known = parts.known(self._plan_keys)
        bricks = {k: b for job in self._batch.jobs for k, b in job.decomposition.bricks.items()}
        open_by = open_shares(
            known,
            state_s,
            lambda: parts.tasks.states.model({k: bricks[k] for k in known if k in bricks}),
        )
        leeway = parts.conditions.leeway
        max_share = parts.conditions.rule.precision / 2 if leeway is None else leeway
        return stale(self._batch, known, open_by, parts.needs, max_share) if open_by else set()

    def _uncertain(self) -> set[str]:
        return uncertain(self._batch, self._parts.known(self._plan_keys))

    def _measure(self, claims: Sequence[Claim], again: set[str], *, more: bool = False) -> None:
        """Measure the claimed keys, and measure keys in ``again``, known in another state, again.

        With ``more``, keys in ``again`` have too few rounds: each gets as many rounds as a whole
        model does, former ones included, and some new ones in any case.
        """
        parts, batch = self._parts, self._batch
        results = parts.results(self._plan_keys)
        keys = {claim.key for claim in claims} | again
        assigned = batch.assigned(keys, parts.needs)
        failed = {key for key, result in results.items() if isinstance(result, Failure)}
        whole = next((j for j in batch.jobs if j.whole_key in keys or (j.whole and again)), None)
        walks = walks_of(batch, whole, assigned, failed, parts.conditions)
        goal = self._goal(claims, _measured(results), again, whole=WHOLE in walks, more=more)
        seldom = SamplingGoal(shares=NoShares())
        goals = {
            name: goal if walk.displaced_bytes is None else seldom for name, walk in walks.items()
        }
        rule = parts.conditions.rule
        done = parts.tasks.sample(
            SamplingTask(self._label(keys), walks, claims, rule, parts.deadline, goals, self._span)
        )
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
        more: bool,
    ) -> SamplingGoal:
        before = {claim.key: claim.rounds for claim in claims}
        if more:
            before |= {key: m.rounds for key, m in known.items() if key in again}
            return SamplingGoal(before, None, self._parts.conditions.rule.min_rounds)
        # Enough rounds that a brick known in another state becomes known in this one.
        least = ENOUGH if again else 1
        if whole:  # sampled as often as the model, bricks have the same drift
            return SamplingGoal(before, None, least)
        known_s = {key: m.latency_s() for key, m in known.items() if key not in again}
        return SamplingGoal(before, Importance(self._parts.needs, known_s), least)


def _measured(results: Results) -> dict[str, Measurement]:
    return {key: result for key, result in results.items() if isinstance(result, Measurement)}
