"""A campaign: measure what the store lacks for some models, and keep every round as it comes.

Claims keys in the store, walks them in the worker, appends each walk's samples in one transaction,
and settles them. However it ends, what was sampled stays: the next campaign goes on from there.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace

from bricks._version import renamed_fields
from bricks.measure.importance import Importance, Needs
from bricks.measure.jobs import (
    MAX_BRICKS,
    MAX_WEIGHT_BYTES,
    Batch,
    Job,
    batches,
    needs_of,
    spread_out,
)
from bricks.measure.overhead_walk import probe_walk
from bricks.measure.rounds import Goal, StopRule, sample_in_turn
from bricks.measure.sampler import DEFAULT_TIMEOUT_S, Sampler, WalkSamples
from bricks.measure.supervisor import Supervisor
from bricks.measure.timing_lock import WAITING, timing_lock
from bricks.measure.walk import Walk, alone, along, single, walk_of
from bricks.samples.call_overhead import PROBES
from bricks.samples.measurement import Failure, Measurement, Round, common_state
from bricks.samples.sampling import Sampling
from bricks.samples.state_correction import StateCorrection
from bricks.store import Claim, Owner, Store
from bricks.system import ForeignLoad

_logger = logging.getLogger(__name__)

# Part of a model's progress that loading it stands for.
_LOADING = 0.25

# How often a model whose bricks are known in different states of the machine is gone over again.
_MAX_VISITS = 2

# Seconds after which rounds are put into the store: each time costs some milliseconds.
_KEEP_S = 0.25
# Rounds that are enough to put in at once: where the disk is full, all of these are lost.
_ENOUGH_TOGETHER = 10

# Least seconds between two signs of life.
_RENEW_S = 60.0

# Seconds after which it is looked again at what others measure.
_LOOK_AGAIN_S = 0.2

BRICKS, WHOLE, OVERHEAD = "bricks", "whole model", "call overhead"


# Told what is being done, and which share of it is.
Progress = Callable[[str, float], None]


@renamed_fields(
    most_ballast_bytes="max_eviction_bytes",
    most_bricks="max_bricks",
    most_weight_bytes="max_weight_bytes",
)
@dataclass(frozen=True, slots=True)
class Conditions:
    """How to measure: when to stop, how long a step may take, and the time there is for all.

    ``max_eviction_bytes`` is the most that is read in place of weights that a walk lacks: more than
    the caches hold is in vain. ``max_bricks`` of ``max_weight_bytes`` are measured side by side:
    the more of them, the longer is the time over which the rounds of each are spread; fewer bytes
    where memory is scarce. What is known in another state of the machine is measured again where
    some model may be off by more than ``leeway`` through it, relative to its latency. None: half of
    the rule's precision, or what goes with an effort (``options.conditions_of``).
    """

    rule: StopRule = field(default_factory=StopRule)
    timeout_s: float = DEFAULT_TIMEOUT_S
    budget_s: float | None = None
    exclusive: bool = True
    max_eviction_bytes: int = 1 << 28
    max_bricks: int = MAX_BRICKS
    max_weight_bytes: int = MAX_WEIGHT_BYTES
    leeway: float | None = None


@dataclass(frozen=True, slots=True)
class Task:
    """Walks to sample in turn for some claims; ``span`` is its part of all progress."""

    what: str
    walks: Mapping[str, Walk]
    claims: Sequence[Claim]
    rule: StopRule
    deadline: float | None
    goals: Mapping[str, Goal] = field(default_factory=dict)
    span: tuple[float, float] = (0.0, 0.0)

    @property
    def claimed(self) -> set[str]:
        """Keys that are claimed; what is timed beside them is measured again."""
        return {claim.key for claim in self.claims}


@dataclass(frozen=True, slots=True)
class CampaignResult(Sampling):
    """What a campaign did: keys newly measured by model digest, failures, and what is left."""

    measured: Mapping[str, frozenset[str]]
    failures: tuple[Failure, ...]
    unfinished: frozenset[str]


class Campaign:
    """One run of measuring on one target."""

    def __init__(
        self,
        store: Store,
        supervisor: Supervisor,
        target_key: str,
        conditions: Conditions,
        progress: Progress,
    ) -> None:
        self._store = store
        self._supervisor = supervisor
        self._target = target_key
        self._conditions = conditions
        self._progress = progress
        self._owner = Owner.current()
        self._measured: dict[str, set[str]] = defaultdict(set)
        self._again: set[str] = set()
        self._failures: list[Failure] = []
        self._unfinished: set[str] = set()
        self._needs: Mapping[str, Needs] = {}
        self._rounds_taken = self._disturbed = 0
        self._eviction_short = False
        self._renewed = time.monotonic()

    def run(self, jobs: Sequence[Job]) -> CampaignResult:
        """Measure what the store lacks for ``jobs``, as many models at once as fit."""
        foreign_cores = None
        wanted = [*PROBES.values(), *(key for job in jobs for key in job.keys)]
        missing = self._lacking(wanted)
        _logger.info("measurements wanted: %d, lacking: %d", len(set(wanted)), len(missing))
        if jobs and missing:
            self._store.refuse_damage()  # what cannot be found would be measured twice
            exclusive = self._conditions.exclusive
            self._needs = needs_of(jobs)
            with timing_lock(lambda: self._progress(WAITING, 0.0)) if exclusive else nullcontext():
                load = ForeignLoad(self._supervisor.processor_s)
                self._run(jobs, missing)
                foreign_cores = load.cores() if exclusive else None
        measured = {digest: frozenset(keys) for digest, keys in self._measured.items()}
        unfinished = frozenset(self._unfinished)
        return CampaignResult(
            measured,
            tuple(self._failures),
            unfinished,
            foreign_cores=foreign_cores,
            rounds=self._rounds_taken,
            disturbed_rounds=self._disturbed,
            remeasured=frozenset(self._again),
            eviction_short=self._eviction_short,
        )

    def _run(self, jobs: Sequence[Job], missing: Collection[str]) -> None:
        budget_s = self._conditions.budget_s
        deadline = None if budget_s is None else time.monotonic() + budget_s
        for claims in self._claims(list(PROBES.values()), deadline):
            if not claims:
                self._wait_for_others(OVERHEAD, 0.0)
                continue
            with self._holding(claims):
                self._probe(claims, deadline)
        jobs = spread_out(jobs, missing, self._needs)
        limits = self._conditions.max_bricks, self._conditions.max_weight_bytes
        parts = list(batches(jobs, missing, *limits))
        sizes = [sum(key in missing for key in batch.keys) for batch in parts]
        spans = [
            (sum(sizes[:number]) / sum(sizes), sum(sizes[: number + 1]) / sum(sizes))
            for number in range(len(parts))
        ]
        # What others are measuring now is passed by at first: so the work is shared with them.
        pairs = list(zip(parts, spans, strict=True))
        left = [each for each in pairs if self._settle(*each, deadline, patient=False)]
        for batch, span in left:
            self._settle(batch, span, deadline, patient=True)

    def _settle(
        self, batch: Batch, span: tuple[float, float], deadline: float | None, *, patient: bool
    ) -> bool:
        """Measure what the store lacks of a batch, all of it in one state of the machine.

        What others are measuring is waited for, if ``patient``, and else left to them; whether
        some of it was.
        """
        new: set[str] = set()
        left = False
        for claims in self._claims(batch.keys, deadline):
            if not claims and not patient:
                left = True
                break
            if not claims:
                self._wait_for_others(batch.name, span[0])
                continue
            with self._holding(claims):
                stale = self._stale(batch, self._state_now())
                self._measure(batch, claims, stale, deadline, span)
                new |= {claim.key for claim in claims}
        for _ in range(_MAX_VISITS if new else 0):
            stale = self._stale(batch, self._state_of(batch, new))
            if not stale or (deadline is not None and time.monotonic() >= deadline):
                break
            self._measure(batch, [], stale, deadline, span)
        return left

    @contextmanager
    def _holding(self, claims: Sequence[Claim]) -> Iterator[None]:
        """Whatever happens meanwhile, what is not settled then is free again."""
        try:
            yield
        finally:
            self._store.release(self._target, sorted(claim.key for claim in claims), self._owner)

    def _claims(self, keys: Sequence[str], deadline: float | None) -> Iterator[list[Claim]]:
        """Claims to settle, until all ``keys`` are settled, also by others, or time is up.

        None, again and again, while others hold all that is left.
        """
        while missing := self._lacking(keys):
            if deadline is not None and time.monotonic() >= deadline:
                self._unfinished |= missing
                return
            yield self._store.claim(self._target, sorted(missing), self._owner)

    def _wait_for_others(self, what: str, share: float) -> None:
        self._progress(f"{what}: another process measures the rest", share)
        time.sleep(_LOOK_AGAIN_S)

    def _lacking(self, keys: Sequence[str]) -> set[str]:
        unique = list(dict.fromkeys(keys))
        return set(unique) - self._store.results(self._target, unique).keys()

    def _state_now(self) -> float:
        answer = self._supervisor.ask_afresh("reference", timeout_s=self._conditions.timeout_s)
        reference_s: float = answer["reference_s"]
        return reference_s

    def _state_of(self, batch: Batch, new: Collection[str]) -> float | None:
        """The state that a batch's bricks should be known in: that of what is ``new``.

        With the model itself run too, it is the state of that.
        """
        counts = {k: n for job in batch.jobs for k, n in job.decomposition.plan.counts.items()}
        wholes = [job.whole_key for job in batch.jobs if job.whole]
        known = self._known([*counts, *wholes])
        anchors = [key for key in wholes if key in known] or sorted(new)
        parts = {key: known[key] for key in counts if key in known}
        return common_state((known[key] for key in anchors if key in known), parts, counts)

    def _stale(self, batch: Batch, state_s: float | None) -> set[str]:
        """Bricks that were measured, but not in this state of the machine, where that matters."""
        known = self._known([key for job in batch.jobs for key in job.decomposition.plan.keys])
        if all(m.known_in(state_s) for m in known.values()):
            return set()
        correction = StateCorrection(known.values(), state_s)
        shares = Importance(self._needs, {}).of({key: m.latency_s() for key, m in known.items()})
        leeway = self._conditions.leeway
        most = self._conditions.rule.precision / 2 if leeway is None else leeway
        return {
            key
            for key, measurement in known.items()
            if not measurement.known_in(state_s)
            and shares[key] * correction.factor(measurement).relative_uncertainty > most
        }

    def _known(self, keys: Sequence[str]) -> dict[str, Measurement]:
        results = self._store.results(self._target, keys)
        return {key: m for key, m in results.items() if isinstance(m, Measurement)}

    def _probe(self, claims: list[Claim], deadline: float | None) -> None:
        walks = {OVERHEAD: probe_walk([c.key for c in claims])}
        # Probes take microseconds: many rounds cost nothing.
        rule = replace(self._conditions.rule, min_rounds=30, max_rounds=60)
        self._sample(Task(OVERHEAD, walks, claims, rule, deadline))

    def _measure(
        self,
        batch: Batch,
        claims: list[Claim],
        again: set[str],
        deadline: float | None,
        span: tuple[float, float],
    ) -> None:
        """Measure what is claimed, and ``again`` what was measured in another state."""
        wanted = {claim.key for claim in claims} | again
        plans = [job.decomposition.plan for job in batch.jobs]
        settled = self._store.results(self._target, [key for plan in plans for key in plan.keys])
        walks: dict[str, Walk] = {}
        # The model first: loading it takes the most memory, while there is still most of it.
        # Where bricks are measured again, so is the model: both in turn.
        for job in batch.jobs:
            if job.whole_key in wanted or (job.whole and again):
                walks[WHOLE] = _whole(job)
        hosted = batch.hosted(wanted, self._needs)
        avoid = {k for k, r in settled.items() if isinstance(r, Failure)}
        for job, mine in hosted:
            walks[f"{BRICKS} of {job.model.digest}"] = self._walk(job, mine, avoid)
        known_s = {
            key: result.latency_s()
            for key, result in settled.items()
            if isinstance(result, Measurement) and key not in again
        }
        rounds = {claim.key: claim.rounds for claim in claims}
        # Beside the model itself, bricks are sampled as often as it: so all meet the same drift.
        shares = None if WHOLE in walks else Importance(self._needs, known_s)
        goals = {name: Goal(rounds, shares) for name in walks}
        task = Task(batch.name, walks, claims, self._conditions.rule, deadline, goals, span)
        done = self._sample(task)
        for job, mine in hosted:
            self._measured[job.model.digest] |= done & mine
        for job in batch.jobs:
            self._measured[job.model.digest] |= done & {job.whole_key}

    def _walk(self, job: Job, wanted: Collection[str], avoid: Collection[str]) -> Walk:
        return walk_of(
            job.decomposition,
            wanted,
            optimize=job.decomposition.plan.granularity != "executed",
            avoid=avoid,
            max_eviction_bytes=self._conditions.max_eviction_bytes,
        )

    def _sample(self, task: Task) -> set[str]:
        """Sample a task's walks in turn, keep every round, settle its claims; the keys finished."""
        sampler = Sampler(
            self._supervisor,
            task.walks,
            timeout_s=self._conditions.timeout_s,
            on_load=lambda share: self._sign_of_life(task, _LOADING * share),
            on_step=self._renew,
        )
        _logger.info(
            "%s: to be measured: %d, walks: %d", task.what, len(task.claims), len(task.walks)
        )
        before = self._rounds_taken
        known = self._rounds(sampler, task)
        _logger.info("%s: rounds taken: %d", task.what, self._rounds_taken - before)
        self._eviction_short |= sampler.eviction_short
        claimed = task.claimed
        for key in sorted(claimed & sampler.failures.keys()):
            self._store.fail(self._target, key, sampler.failures[key], self._owner)
            self._failures.append(Failure(key, sampler.failures[key]))
            _logger.info("%s failed: %s", key, sampler.failures[key])
        done = claimed & known - sampler.failures.keys() - sampler.crowded.keys()
        self._store.finish(self._target, sorted(done), self._owner)
        for key in sorted(claimed & sampler.crowded.keys()):
            self._supervisor.reset()  # a runtime may keep memory that it needs no more
            done |= self._sample(_alone(task, key))
        return done

    def _rounds(self, sampler: Sampler, task: Task) -> set[str]:
        """The keys that are known well enough before the time is up; every round is kept."""
        preparing = sampler.prepare()
        unbooked: dict[str, float] = {}  # what preparing cost, until it is part of a round
        for name, wall_s in preparing.items():
            unbooked |= span_of_walks(wall_s, sampler, name)

        unkept: list[Mapping[str, tuple[Round, float]]] = []
        kept_at = time.monotonic()

        def keep() -> None:
            nonlocal kept_at
            for booked in coalesced(unkept):
                self._keep(task, booked)
            unkept.clear()
            kept_at = time.monotonic()

        def book(name: str, taken: WalkSamples, wall_s: float) -> None:
            prepare_s = {key: unbooked.pop(key, 0.0) for key in taken.samples}
            booked = _booked(taken, wall_s, prepare_s)
            self._rounds_taken += 1
            self._disturbed += any(taken_round.disturbed for taken_round, _ in booked.values())
            unkept.append(booked)
            if time.monotonic() - kept_at >= _KEEP_S:
                keep()

        try:
            return sample_in_turn(
                sampler,
                task.rule,
                goals=task.goals,
                deadline=task.deadline,
                on_round=book,
                on_progress=lambda share: self._show(task, _LOADING + (1 - _LOADING) * share),
            )
        finally:
            keep()

    def _keep(self, task: Task, booked: Mapping[str, tuple[Round, float]]) -> None:
        """Put a round into the store: to what is claimed, or to what is measured again."""
        new = {key: book for key, book in booked.items() if key in task.claimed}
        if new:
            self._store.append_rounds(self._target, new, self._owner)
        again = {key: book for key, book in booked.items() if key not in new}
        if again:
            self._store.supplement(self._target, again)
            wholes = {walk.steps[0].key for name, walk in task.walks.items() if name == WHOLE}
            self._again |= again.keys() - wholes

    def _show(self, task: Task, share: float) -> None:
        begin, end = task.span
        self._progress(task.what, begin + (end - begin) * share)

    def _sign_of_life(self, task: Task, share: float) -> None:
        self._show(task, share)
        self._renew()

    def _renew(self) -> None:
        if time.monotonic() - self._renewed >= _RENEW_S:
            self._renewed = time.monotonic()
            self._store.renew(self._target, self._owner)


def _alone(task: Task, key: str) -> Task:
    """The part of a task that is about one key, with nothing else loaded."""
    walks = {
        name: alone(walk, key)
        for name, walk in task.walks.items()
        if any(step.key == key and step.timed for step in walk.steps)
    }
    claims = [claim for claim in task.claims if claim.key == key]
    return replace(task, walks=walks, claims=claims, span=(task.span[1], task.span[1]))


def span_of_walks(wall_s: float, sampler: Sampler, name: str) -> dict[str, float]:
    """The seconds that preparing a walk took, by the keys that they were spent for.

    Loading a key is its own; what leads in, placing and rehearsing are for all alike.
    """
    keys = {step.key for step in sampler.steps(name) if step.timed}
    own_s = {key: sampler.load_s.get(key, 0.0) for key in keys}
    return {key: own_s[key] + max(0.0, wall_s - sum(own_s.values())) / len(keys) for key in keys}


def coalesced(
    walks: Iterable[Mapping[str, tuple[Round, float]]],
) -> Iterator[dict[str, tuple[Round, float]]]:
    """``walks`` in order, some of them together, of which no two have a round of the same key."""
    found: dict[str, tuple[Round, float]] = {}
    for walk in walks:
        if found.keys() & walk.keys() or len(found) >= _ENOUGH_TOGETHER:
            yield found
            found = {}
        found.update(walk)
    if found:
        yield found


def _booked(
    taken: WalkSamples, wall_s: float, prepare_s: Mapping[str, float]
) -> dict[str, tuple[Round, float]]:
    """A round of each key, with the wall time that it has to answer for."""
    total = sum(map(sum, taken.samples.values())) or 1.0
    return {
        key: (of_key, wall_s * sum(of_key.samples) / total + prepare_s.get(key, 0.0))
        for key, of_key in taken.rounds().items()
    }


def _whole(job: Job) -> Walk:
    plan = job.decomposition.plan
    inputs, outputs = len(plan.inputs), len(plan.outputs)
    walk = single(job.whole_key, job.model.skeleton, inputs=inputs, outputs=outputs)
    return along(walk, job.streams)
