"""A campaign: measure what the store lacks for some models, and keep every round as it comes.

Claims keys in the store, walks them in the worker, appends each walk's samples in one transaction,
and settles them. However it ends, what was sampled stays: the next campaign goes on from there.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace

from bricks.decompose.plan import Decomposition
from bricks.graph.model import Model
from bricks.measure.measurement import Failure
from bricks.measure.probes import PROBES, probe_walk
from bricks.measure.rounds import Samples, StopRule, sample_in_turn
from bricks.measure.sampler import DEFAULT_TIMEOUT_S, Sampler
from bricks.measure.supervisor import Supervisor
from bricks.measure.turn import timing_turn
from bricks.measure.walk import Walk, alone, single, walk_of
from bricks.store import Claim, Owner, Store
from bricks.system import ForeignLoad

# Part of a model's progress that loading it stands for.
_LOADING = 0.25

# Least seconds between two signs of life.
_RENEW_S = 60.0

BRICKS, WHOLE, OVERHEAD = "bricks", "whole model", "call overhead"


# Told what is being done, and which share of it is.
Progress = Callable[[str, float], None]


@dataclass(frozen=True, slots=True)
class Job:
    """A model to measure: its bricks, and with ``whole`` the model itself."""

    model: Model
    decomposition: Decomposition
    whole: bool


@dataclass(frozen=True, slots=True)
class Conditions:
    """How to measure: when to stop, how long a step may take, and the time there is for all."""

    rule: StopRule = field(default_factory=StopRule)
    timeout_s: float = DEFAULT_TIMEOUT_S
    budget_s: float | None = None
    exclusive: bool = True


@dataclass(frozen=True, slots=True)
class Task:
    """Walks to sample in turn for some claims; ``span`` is its part of all progress."""

    what: str
    walks: Mapping[str, Walk]
    claims: Sequence[Claim]
    rule: StopRule
    deadline: float | None
    span: tuple[float, float] = (0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a campaign did: keys newly measured by model digest, failures, and what is left.

    ``foreign_cores`` is how many cores other processes kept busy meanwhile; None if nothing was
    timed.
    """

    measured: Mapping[str, frozenset[str]]
    failures: tuple[Failure, ...]
    unfinished: frozenset[str]
    foreign_cores: float | None


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
        self._failures: list[Failure] = []
        self._unfinished: set[str] = set()
        self._renewed = time.monotonic()

    def run(self, jobs: Sequence[Job]) -> Outcome:
        """Measure what the store lacks for ``jobs``, one model after another."""
        foreign_cores = None
        keys = [key for job in jobs for key in _keys(job)]
        if jobs and self._lacking([*PROBES.values(), *keys]):
            exclusive = self._conditions.exclusive
            waiting = "waiting for another process that is measuring on this host"
            with timing_turn(lambda: self._progress(waiting, 0.0)) if exclusive else nullcontext():
                load = ForeignLoad(self._supervisor.processor_s)
                self._run(jobs)
                foreign_cores = load.cores() if exclusive else None
        measured = {digest: frozenset(keys) for digest, keys in self._measured.items()}
        unfinished = frozenset(self._unfinished)
        return Outcome(measured, tuple(self._failures), unfinished, foreign_cores)

    def _run(self, jobs: Sequence[Job]) -> None:
        budget_s = self._conditions.budget_s
        deadline = None if budget_s is None else time.monotonic() + budget_s
        for claims in self._claims(list(PROBES.values()), deadline, OVERHEAD, 0.0):
            with self._holding(claims):
                self._probe(claims, deadline)
        for number, job in enumerate(jobs):
            for claims in self._claims(_keys(job), deadline, job.model.name, number / len(jobs)):
                with self._holding(claims):
                    self._measure(job, claims, deadline, number, len(jobs))

    @contextmanager
    def _holding(self, claims: Sequence[Claim]) -> Iterator[None]:
        """Whatever happens meanwhile, what is not settled then is free again."""
        try:
            yield
        finally:
            self._store.release(self._target, sorted(claim.key for claim in claims), self._owner)

    def _claims(
        self, keys: Sequence[str], deadline: float | None, what: str, share: float
    ) -> Iterator[list[Claim]]:
        """Claims to settle, until all ``keys`` are settled, also by others, or time is up."""
        while lacking := self._lacking(keys):
            if deadline is not None and time.monotonic() >= deadline:
                self._unfinished |= lacking
                return
            claims = self._store.claim(self._target, sorted(lacking), self._owner)
            if claims:
                yield claims
            else:
                self._progress(f"{what}: another process measures {len(lacking)}", share)
                time.sleep(0.2)

    def _lacking(self, keys: Sequence[str]) -> set[str]:
        unique = list(dict.fromkeys(keys))
        return set(unique) - self._store.results(self._target, unique).keys()

    def _probe(self, claims: list[Claim], deadline: float | None) -> None:
        walks = {OVERHEAD: probe_walk([c.key for c in claims])}
        # Probes take microseconds: many rounds cost nothing.
        rule = replace(self._conditions.rule, min_rounds=30, max_rounds=60)
        self._sample(Task(OVERHEAD, walks, claims, rule, deadline))

    def _measure(
        self, job: Job, claims: list[Claim], deadline: float | None, number: int, of: int
    ) -> None:
        plan = job.decomposition.plan
        wanted = {claim.key for claim in claims}
        walks: dict[str, Walk] = {}
        if wanted - {plan.digest}:
            settled = self._store.results(self._target, plan.keys)
            walks[BRICKS] = walk_of(
                plan,
                job.decomposition.bricks,
                wanted,
                optimize=plan.granularity != "executed",
                avoid={k for k, r in settled.items() if isinstance(r, Failure)},
            )
        if plan.digest in wanted:
            inputs, outputs = len(plan.inputs), len(plan.outputs)
            skeleton = job.model.skeleton
            walks[WHOLE] = single(plan.digest, skeleton, inputs=inputs, outputs=outputs)
        span = (number / of, (number + 1) / of)
        task = Task(job.model.name, walks, claims, self._conditions.rule, deadline, span)
        self._measured[plan.digest] |= self._sample(task)

    def _sample(self, task: Task) -> set[str]:
        """Sample a task's walks in turn, keep every round, settle its claims; the keys finished."""
        sampler = Sampler(
            self._supervisor,
            task.walks,
            timeout_s=self._conditions.timeout_s,
            on_load=lambda share: self._sign_of_life(task, _LOADING * share),
            on_step=self._renew,
        )
        finished = self._rounds(sampler, task)
        claimed = {claim.key for claim in task.claims}
        for key in sorted(claimed & sampler.failures.keys()):
            self._store.fail(self._target, key, sampler.failures[key], self._owner)
            self._failures.append(Failure(key, sampler.failures[key]))
        if not finished:
            return set()
        done = claimed - sampler.failures.keys() - sampler.crowded.keys()
        self._store.finish(self._target, sorted(done), self._owner)
        for key in sorted(claimed & sampler.crowded.keys()):
            self._supervisor.reset()  # a runtime may keep memory that it needs no more
            done |= self._sample(_alone(task, key))
        return done

    def _rounds(self, sampler: Sampler, task: Task) -> bool:
        """Whether all rounds were taken before the time was up; every one is kept."""
        preparing = sampler.prepare()
        unbooked: dict[str, float] = {}  # what preparing cost, until it is part of a round
        for name, wall_s in preparing.items():
            unbooked |= _spread_out(wall_s, sampler, name, task)

        def keep(name: str, samples: Samples, wall_s: float) -> None:
            booked = _booked(samples, wall_s, {key: unbooked.pop(key, 0.0) for key in samples})
            self._store.append_rounds(self._target, booked, self._owner)

        return sample_in_turn(
            sampler,
            task.rule,
            rounds_before=_rounds_before(task),
            deadline=task.deadline,
            on_round=keep,
            on_progress=lambda share: self._show(task, _LOADING + (1 - _LOADING) * share),
        )

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


def _spread_out(wall_s: float, sampler: Sampler, name: str, task: Task) -> dict[str, float]:
    """The seconds that preparing a walk took, by the claimed keys that they were spent for.

    Loading a key is its own; what leads in, placing and rehearsing are for all alike.
    """
    claimed = {claim.key for claim in task.claims}
    keys = {step.key for step in sampler.steps(name) if step.timed} & claimed
    own_s = {key: sampler.load_s.get(key, 0.0) for key in keys}
    return {key: own_s[key] + max(0.0, wall_s - sum(own_s.values())) / len(keys) for key in keys}


def _booked(
    samples: Samples, wall_s: float, prepare_s: Mapping[str, float]
) -> dict[str, tuple[tuple[float, ...], float]]:
    """Samples with the wall time that each key has to answer for."""
    total = sum(map(sum, samples.values())) or 1.0
    return {
        key: (taken, wall_s * sum(taken) / total + prepare_s.get(key, 0.0))
        for key, taken in samples.items()
    }


def _keys(job: Job) -> list[str]:
    plan = job.decomposition.plan
    return [*plan.keys, plan.digest] if job.whole else list(plan.keys)


def _rounds_before(task: Task) -> dict[str, int]:
    """Rounds that all claimed keys of a walk have from an interrupted run."""
    rounds = {claim.key: len(claim.rounds) for claim in task.claims}
    return {
        name: min((rounds[s.key] for s in walk.steps if s.timed and s.key in rounds), default=0)
        for name, walk in task.walks.items()
    }
