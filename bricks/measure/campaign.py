"""A campaign: measures the keys that the store has no results for, and keeps every round at once.

It claims keys in the store, has the sampler walk them, appends each walk's samples in one
transaction, and marks the claims as done or failed. However it ends, all samples stay: the next
campaign goes on from there. It must not know how the worker runs a walk, nor how latencies are
added up.
"""

from __future__ import annotations

import logging
import math
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from itertools import accumulate

from bricks.measure.conditions import Conditions
from bricks.measure.importance import Importance, Needs
from bricks.measure.jobs import Batch, Job, batches, needs_of, spread_out
from bricks.measure.overhead_walk import probe_walk
from bricks.measure.protocol.walking import TimeReference
from bricks.measure.round_buffer import ChargedRound, RoundBuffer, preparation_by_key
from bricks.measure.rounds import Goal, sample_in_turn
from bricks.measure.sampler import Sampler
from bricks.measure.state_panel import RULE as PANEL_RULE
from bricks.measure.state_panel import (
    learn_states,
    panel,
    panel_keys,
    panel_walk,
    several_states,
    size_facts,
)
from bricks.measure.supervisor import Supervisor
from bricks.measure.task import Task
from bricks.measure.timing_lock import WAITING, timing_lock
from bricks.measure.walk import Walk, along, single, walk_of
from bricks.measure.walk_samples import WalkSamples
from bricks.samples.call_overhead import PROBES, probes_of
from bricks.samples.machine_state import same_state
from bricks.samples.measurement import (
    ENOUGH,
    UNSURE_SHARE,
    Failure,
    Measurement,
    common_state,
    round_spread,
)
from bricks.samples.sampling import Sampling
from bricks.samples.state_correction import StateCorrection
from bricks.samples.state_model import StateModel
from bricks.store import Claim, Owner, Store
from bricks.system import ForeignLoad

__all__ = ["Campaign", "CampaignResult", "Conditions", "Progress"]

_logger = logging.getLogger(__name__)

# Loading's share of a task's progress.
_LOADING = 0.25

# How often stale bricks of a batch are measured again, at most.
_MAX_REPEATS = 2

# How often bricks of which too little is sure are measured again, at most.
_MAX_RETRIES = 3

# The share of a model's latency that corrections between machine states may leave open, at most.
_MAX_OPEN = 0.2

# The panel is measured if there are so many seconds left of a budget: it takes about one.
_PANEL_S = 10.0

# Claims expire: the seconds after which they are renewed.
_RENEW_S = 60.0

# How often the claims of other processes are polled.
_POLL_S = 0.2

# Names of walks, as progress shows them.
BRICKS, WHOLE, OVERHEAD, PANEL = "bricks", "whole model", "call overhead", "machine state"

# Receives the name of the work in progress, and the share that is done.
Progress = Callable[[str, float], None]


@dataclass(frozen=True, slots=True)
class CampaignResult(Sampling):
    """The result of a campaign.

    ``measured`` holds the keys that are newly measured, by model digest. ``unfinished`` are keys
    for which the budget was too short.
    """

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
        self._probes: list[str] = []
        self._failures: list[Failure] = []
        self._unfinished: set[str] = set()
        self._needs: Mapping[str, Needs] = {}
        self._rounds_taken = self._disturbed = 0
        self._eviction_short = False
        self._apart: set[str] = set()
        self._references: dict[float, int] | None = None  # rounds by reference, on this target
        self._state_s: float | None = None  # of the last steady round
        self._panel_states: list[float] = []  # those in which the panel is known
        self._states: StateModel | None = None
        self._renewed = time.monotonic()

    def run(self, jobs: Sequence[Job]) -> CampaignResult:
        """Measure what the store has no results of for ``jobs``, many models at once."""
        foreign_cores = None
        self._probes = _probes(jobs)
        wanted = [*self._probes, *(key for job in jobs for key in job.keys)]
        missing = self._missing(wanted)
        _logger.info("measurements wanted: %d, lacking: %d", len(set(wanted)), len(missing))
        again = self._known(wanted).keys() if self._conditions.again else set[str]()
        if jobs and (missing or again):
            self._store.refuse_damage()  # results that cannot be read would be measured twice
            exclusive = self._conditions.exclusive
            self._needs = needs_of(jobs)
            with timing_lock(lambda: self._progress(WAITING, 0.0)) if exclusive else nullcontext():
                load = ForeignLoad(self._supervisor.processor_s)
                self._run(jobs, missing | again)
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
            apart=frozenset(self._apart),
        )

    def _run(self, jobs: Sequence[Job], missing: Collection[str]) -> None:
        budget_s = self._conditions.budget_s
        deadline = None if budget_s is None else time.monotonic() + budget_s
        for claims in self._claims(self._probes, deadline):
            if not claims:
                self._wait_for_others(OVERHEAD, 0.0)
                continue
            with self._releasing(claims):
                self._probe(claims, deadline)
        jobs = spread_out(jobs, missing, self._needs)
        limits = self._conditions.max_bricks, self._conditions.max_weight_bytes
        parts = list(batches(jobs, missing, *limits))
        sizes = [sum(key in missing for key in batch.keys) for batch in parts]
        spans = [
            (sum(sizes[:number]) / sum(sizes), sum(sizes[: number + 1]) / sum(sizes))
            for number in range(len(parts))
        ]
        # At first, keys that other processes are measuring are left out: so all share the work.
        pairs = list(zip(parts, spans, strict=True))
        left = [each for each in pairs if self._complete(*each, deadline, patient=False)]
        for batch, span in left:
            self._complete(batch, span, deadline, patient=True)

    def _complete(
        self, batch: Batch, span: tuple[float, float], deadline: float | None, *, patient: bool
    ) -> bool:
        """Measure what is missing of a batch, so that all of it is known in one machine state.

        Keys that other processes are measuring are waited for if ``patient``, and left to them
        otherwise. Whether some were left to them.
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
            with self._releasing(claims):
                stale = self._stale(batch, self._state_now())
                self._measure(batch, claims, stale, deadline, span)
                new |= {claim.key for claim in claims}
        if self._conditions.again and not left:
            known = set(self._known(batch.keys)) - new
            self._measure(batch, [], known, deadline, span, more=True)
        for _ in range(_MAX_REPEATS if new else 0):
            stale = self._stale(batch, self._state_of(batch, new))
            if not stale or (deadline is not None and time.monotonic() >= deadline):
                break
            self._measure(batch, [], stale, deadline, span)
        for _ in range(_MAX_RETRIES if new else 0):
            unsure = self._unsure(batch) & new
            if not unsure or (deadline is not None and time.monotonic() >= deadline):
                break
            self._measure(batch, [], unsure, deadline, span, more=True)
        self._measure_panel(deadline, span)
        return left

    @contextmanager
    def _releasing(self, claims: Sequence[Claim]) -> Iterator[None]:
        """Release those of ``claims`` that are not completed, however this ends."""
        try:
            yield
        finally:
            self._store.claims.release(
                self._target, sorted(claim.key for claim in claims), self._owner
            )

    def _claims(self, keys: Sequence[str], deadline: float | None) -> Iterator[list[Claim]]:
        """Claims to complete, until all ``keys`` have results, or the time is up.

        An empty list, again and again, while other processes hold the claims to all that is left.
        """
        while missing := self._missing(keys):
            if deadline is not None and time.monotonic() >= deadline:
                self._unfinished |= missing
                return
            yield self._store.claims.claim(self._target, sorted(missing), self._owner)

    def _wait_for_others(self, what: str, share: float) -> None:
        self._progress(f"{what}: another process measures the rest", share)
        time.sleep(_POLL_S)

    def _missing(self, keys: Sequence[str]) -> set[str]:
        unique = list(dict.fromkeys(keys))
        return set(unique) - self._store.measurements.settled(self._target, unique)

    def _state_now(self) -> float:
        return self._supervisor.ask_afresh(TimeReference(), timeout_s=self._conditions.timeout_s)

    def _state_of(self, batch: Batch, new: Collection[str]) -> float | None:
        """The state that a batch's bricks should be known in.

        It is the state of the whole model where that is run too, and else that of the ``new`` keys.
        """
        counts = {k: n for job in batch.jobs for k, n in job.decomposition.plan.counts.items()}
        wholes = [job.whole_key for job in batch.jobs if job.whole]
        known = self._known([*counts, *wholes])
        anchors = [key for key in wholes if key in known] or sorted(new)
        parts = {key: known[key] for key in counts if key in known}
        return common_state((known[key] for key in anchors if key in known), parts, counts)

    def _stale(self, batch: Batch, state_s: float | None) -> set[str]:
        """Bricks that were measured in another state, which makes a latency too uncertain."""
        known = self._known([key for job in batch.jobs for key in job.decomposition.plan.keys])
        if all(m.known_in(state_s) for m in known.values()):
            return set()
        correction = StateCorrection(known.values(), state_s, self._learned(batch, known))
        shares = Importance(self._needs, {}).of({key: m.latency_s() for key, m in known.items()})
        leeway = self._conditions.leeway
        max_share = self._conditions.rule.precision / 2 if leeway is None else leeway
        open_by = {
            key: correction.factor(measurement).relative_uncertainty
            for key, measurement in known.items()
            if not measurement.known_in(state_s)
        }
        stale = {key for key, open_share in open_by.items() if shares[key] * open_share > max_share}
        for job in batch.jobs:
            stale |= self._too_many(
                job, known, {k: s for k, s in open_by.items() if k not in stale}
            )
        return stale

    def _unsure(self, batch: Batch) -> set[str]:
        """Bricks that leave too much of a model open, because the host was disturbed meanwhile."""
        found: set[str] = set()
        for job in batch.jobs:
            counts = job.decomposition.plan.counts
            known = {key: round_spread(m) for key, m in self._known([*counts]).items()}
            total_s = sum(abs(counts[key]) * each.value for key, each in known.items())
            parts = (counts[key] * each.value * each.relative for key, each in known.items())
            if math.hypot(*parts) > UNSURE_SHARE * total_s:
                found |= {key for key, each in known.items() if each.relative > UNSURE_SHARE}
        return found

    @staticmethod
    def _too_many(
        job: Job, known: Mapping[str, Measurement], open_by: Mapping[str, float]
    ) -> set[str]:
        """Bricks of another state, each of little weight, that leave too much of a model open.

        All but those that may be wrong in common, the least uncertain ones.
        """
        counts = job.decomposition.plan.counts
        parts_s = {
            key: abs(n) * known[key].latency_s() for key, n in counts.items() if key in known
        }
        left = sorted((parts_s[k] * open_by[k], k) for k in parts_s.keys() & open_by.keys())
        allowed_s = _MAX_OPEN * sum(parts_s.values())
        kept = list(accumulate(part_s for part_s, _ in left))
        return {key for total_s, (_, key) in zip(kept, left, strict=True) if total_s > allowed_s}

    def _learned(self, batch: Batch, known: Collection[str]) -> StateModel:
        """How latencies change between states, with the facts of a batch's bricks."""
        if self._states is None:
            self._states = learn_states(self._store, self._target)
        bricks = {k: b for job in batch.jobs for k, b in job.decomposition.bricks.items()}
        return self._states.with_facts(size_facts({k: bricks[k] for k in known if k in bricks}))

    def _measure_panel(self, deadline: float | None, span: tuple[float, float]) -> None:
        """Measure the panel in the state that the machine is in now, unless it was before.

        Not on a machine of one state: the first state's panel is measured when it comes back. So
        most machines never measure one, and those of two states within minutes.
        """
        state_s = self._state_s
        if state_s is None or any(same_state(state_s, each) for each in self._panel_states):
            return
        if deadline is not None and deadline - time.monotonic() < _PANEL_S:
            return
        if self._references is None:
            self._references = self._store.measurements.reference_counts(self._target)
        if not several_states(self._references, state_s):
            return
        self._panel_states.append(state_s)
        results = self._store.measurements.results(self._target, panel_keys())
        failed = {key for key, result in results.items() if isinstance(result, Failure)}
        known = {key: m for key, m in results.items() if isinstance(m, Measurement)}
        if len(results) == len(panel_keys()) and all(m.known_in(state_s) for m in known.values()):
            return
        self._store.plans.save_bricks(panel())
        missing = sorted(set(panel_keys()) - results.keys())
        claims = self._store.claims.claim(self._target, missing, self._owner) if missing else []
        others = set(missing) - {claim.key for claim in claims}  # of other processes
        with self._releasing(claims):
            walks = {PANEL: panel_walk(avoid=failed | others)}
            self._sample(Task(PANEL, walks, claims, PANEL_RULE, deadline, span=(span[1], span[1])))
        # No model needs the panel: it is no failure if this runtime cannot run some of it.
        self._failures = [each for each in self._failures if each.key not in panel_keys()]
        self._states = None

    def _known(self, keys: Sequence[str]) -> dict[str, Measurement]:
        results = self._store.measurements.results(self._target, keys)
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
        *,
        more: bool = False,
    ) -> None:
        """Measure the claimed keys, and once more those in ``again``, known in another state.

        With ``more``, these are rather known too little: each gets as many rounds as a whole model
        does, its former ones among them, and some new ones in any case.
        """
        wanted = {claim.key for claim in claims} | again
        plans = [job.decomposition.plan for job in batch.jobs]
        results = self._store.measurements.results(
            self._target, [key for plan in plans for key in plan.keys]
        )
        walks: dict[str, Walk] = {}
        # The model first: loading it takes the most memory, of which there is most at first. Where
        # bricks are measured again, so is the model, in turn with them.
        for job in batch.jobs:
            if job.whole_key in wanted or (job.whole and again):
                walks[WHOLE] = _whole(job)
        assigned = batch.assigned(wanted, self._needs)
        avoid = {k for k, r in results.items() if isinstance(r, Failure)}
        for job, mine in assigned:
            walks[f"{BRICKS} of {job.model.digest}"] = self._walk(job, mine, avoid)
        if walks:  # What a call costs changes from minute to minute, so it is sampled in turn too.
            walks[OVERHEAD] = probe_walk(_probes(batch.jobs))
        known_s = {
            key: result.latency_s()
            for key, result in results.items()
            if isinstance(result, Measurement) and key not in again
        }
        rounds = {claim.key: claim.rounds for claim in claims}
        # Beside the whole model, bricks are sampled as often as it: so all meet the same drift.
        shares = None if WHOLE in walks else Importance(self._needs, known_s)
        # So many that a brick which was known in another state is known in this one.
        least = self._conditions.rule.min_rounds if more else ENOUGH if again else 1
        if more:
            shares = None
            rounds |= {
                key: result.rounds
                for key, result in results.items()
                if isinstance(result, Measurement) and key in again
            }
        goals = {name: Goal(rounds, shares, least) for name in walks}
        task = Task(batch.name, walks, claims, self._conditions.rule, deadline, goals, span)
        done = self._sample(task)
        for job, mine in assigned:
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
        """Sample a task's walks, keep every round, complete its claims; the keys that are done."""
        sampler = Sampler(
            self._supervisor,
            task.walks,
            timeout_s=self._conditions.timeout_s,
            on_load=lambda share: self._show_and_renew(task, _LOADING * share),
            on_step=self._renew,
        )
        _logger.info(
            "%s: to be measured: %d, walks: %d", task.what, len(task.claims), len(task.walks)
        )
        before = self._rounds_taken
        known = self._rounds(sampler, task)
        _logger.info("%s: rounds taken: %d", task.what, self._rounds_taken - before)
        self._eviction_short |= sampler.eviction_short
        self._apart |= sampler.apart
        claimed = task.claimed
        for key in sorted(claimed & sampler.failures.keys()):
            self._store.claims.fail(self._target, key, sampler.failures[key], self._owner)
            self._failures.append(Failure(key, sampler.failures[key]))
            _logger.info("%s failed: %s", key, sampler.failures[key])
        done = claimed & known - sampler.failures.keys() - sampler.out_of_memory.keys()
        self._store.claims.finish(self._target, sorted(done), self._owner)
        for key in sorted(claimed & sampler.out_of_memory.keys()):
            self._supervisor.reset()  # a runtime may keep memory that it needs no more
            done |= self._sample(task.alone(key))
        return done

    def _rounds(self, sampler: Sampler, task: Task) -> set[str]:
        """Take and keep rounds; the keys that are known well enough before the time is up."""
        preparation_s: dict[str, float] = {}
        for name, wall_s in sampler.prepare().items():
            preparation_s |= preparation_by_key(wall_s, sampler, name)
        buffer = RoundBuffer(lambda rounds: self._keep(task, rounds), preparation_s)

        def add(name: str, taken: WalkSamples, wall_s: float) -> None:
            self._rounds_taken += 1
            self._note_state(taken)
            self._disturbed += any(found.disturbed for found in taken.rounds().values())
            buffer.add(taken, wall_s)

        try:
            return sample_in_turn(
                sampler,
                task.rule,
                goals=task.goals,
                deadline=task.deadline,
                on_round=add,
                on_progress=lambda share: self._show(task, _LOADING + (1 - _LOADING) * share),
            )
        finally:
            buffer.flush()

    def _note_state(self, taken: WalkSamples) -> None:
        """Note the machine state of a round, if it was steady."""
        steady = [found for found in taken.rounds().values() if not found.disturbed]
        if steady and steady[0].state_s is not None:
            self._state_s = state_s = steady[0].state_s
            if self._references is not None:
                count = self._references.get(state_s, 0)
                self._references[state_s] = count + len(steady)

    def _keep(self, task: Task, rounds: Mapping[str, ChargedRound]) -> None:
        """Put rounds into the store, of claimed keys and of keys that are measured again."""
        new = {key: charged for key, charged in rounds.items() if key in task.claimed}
        if new:
            self._store.claims.append_rounds(self._target, new, self._owner)
        again = {key: charged for key, charged in rounds.items() if key not in new}
        if again:
            self._store.measurements.supplement(self._target, again)
            bricks = (walk for name, walk in task.walks.items() if name.startswith(BRICKS))
            self._again |= again.keys() & {step.key for walk in bricks for step in walk.steps}

    def _show(self, task: Task, share: float) -> None:
        self._progress(task.what, task.share_of_all(share))

    def _show_and_renew(self, task: Task, share: float) -> None:
        self._show(task, share)
        self._renew()

    def _renew(self) -> None:
        """Renew the claims, if the last time is long ago."""
        if time.monotonic() - self._renewed >= _RENEW_S:
            self._renewed = time.monotonic()
            self._store.claims.renew(self._target, self._owner)


def _probes(jobs: Iterable[Job]) -> list[str]:
    """The keys of the probes that estimates of the jobs' models need."""
    needed = [*PROBES.values(), *(k for job in jobs for k in probes_of(job.decomposition.plan))]
    return list(dict.fromkeys(needed))


def _whole(job: Job) -> Walk:
    plan = job.decomposition.plan
    inputs, outputs = len(plan.inputs), len(plan.outputs)
    model, folder = job.model.skeleton, str(job.model.folder)
    walk = single(job.whole_key, model, inputs=inputs, outputs=outputs, folder=folder)
    return along(walk, job.node_streams)
