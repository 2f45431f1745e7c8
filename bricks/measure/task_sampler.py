"""Samples tasks (walks and the claims that they complete) in the worker.

Walks are sampled in turn, each until all its keys are known well enough. Keys that run out of
memory or crash the worker are tried once more with no other key loaded. It must not know which
walks are worthwhile.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from bricks.measure.campaign_result import Progress, Tally, Wait
from bricks.measure.conditions import WHOLE_LATENCIES, Deadline, SamplingGoal, StopRule
from bricks.measure.sampler import Sampler, WalkSamples
from bricks.samples.measurement import Failure, Round
from bricks.samples.statistics import median, pooled_deviation

if TYPE_CHECKING:
    from bricks.measure.further_copies import FurtherCopies
    from bricks.measure.loop import ChargedRound, Loop
    from bricks.measure.sampling_task import SamplingTask
    from bricks.measure.supervisor import Supervisor
    from bricks.store import Claim

_logger = logging.getLogger(__name__)

# Loading's share of a task's progress.
_LOADING = 0.25


class TaskSampler:
    """Samples the tasks of one campaign: ``loop`` completes claims, ``tally`` counts results.

    A step that takes longer than ``timeout_s`` seconds fails. Further ``copies`` of a task's model
    run while it is sampled.
    """

    def __init__(
        self,
        supervisor: Supervisor,
        loop: Loop,
        tally: Tally,
        progress: Progress,
        timeout_s: float,
        copies: FurtherCopies,
    ) -> None:
        self.loop, self.tally, self.progress = loop, tally, progress
        self._supervisor, self._timeout_s = supervisor, timeout_s
        self._copies = copies

    def claims(
        self, what: str, keys: Collection[str], deadline: Deadline, share: float, *, patient: bool
    ) -> Iterator[list[Claim]]:
        """Claims to ``keys``: see :meth:`Loop.claims`, which waits for others if ``patient``."""

        def waiting(owners: Sequence[str]) -> None:
            others = " and ".join(owners) or "another process"
            self.progress(Wait(others, f": the rest of {what}"), share)

        return self.loop.claims(keys, deadline, waiting=waiting if patient else None)

    def sample(self, task: SamplingTask) -> set[str]:
        """Sample a task's walks, store every round, complete claims; returns the finished keys."""
        _logger.info(
            "%s: to be measured: %d, walks: %d", task.what, len(task.claims), len(task.walks)
        )
        before = self.tally.rounds
        sampler = Sampler(
            self._supervisor,
            task.walks,
            timeout_s=self._timeout_s,
            on_load=lambda share: self._loaded(task, share),
            on_step=self.loop.renew,
        )
        sampler.prepare()
        sampling = WalkSampling(
            sampler,
            task.rule,
            task.goals,
            on_round=partial(self._note, task),
            on_turn=lambda share: self._show(task, _LOADING + (1 - _LOADING) * share),
        )
        with self._copies.running(task.copied, timeout_s=self._timeout_s):
            done = self.loop.sample(sampling, task.claims, deadline=task.deadline)
        _logger.info("%s: rounds taken: %d", task.what, self.tally.rounds - before)
        self.tally.eviction_short |= sampler.eviction_short
        self.tally.separate |= sampler.separate
        failures = sampler.failed_keys.failures
        failed = sorted(task.claimed & failures.keys())
        self.tally.failures += [Failure(key, failures[key]) for key in failed]
        for key in sorted(task.claimed & sampler.failed_keys.suspects.keys()):
            self._supervisor.reset()  # a runtime may keep memory that it needs no more
            done |= self.sample(task.isolated(key))
        return done

    def _loaded(self, task: SamplingTask, share: float) -> None:
        self._show(task, _LOADING * share)
        self.loop.renew()

    def _note(self, task: SamplingTask, rounds: Mapping[str, Round]) -> None:
        self._copies.check()  # else this round was sampled with fewer copies
        self.tally.add_round(rounds.values())
        self.tally.remeasured |= (rounds.keys() - task.claimed) & task.bricks

    def _show(self, task: SamplingTask, share: float) -> None:
        self.progress(task.what, task.share_of_all(share))


class WalkSampling:
    """The walks of a sampler in turn, each until ``rule`` is met for its goal.

    ``on_round`` receives the rounds of a walk by key; ``on_turn`` the share that is done.
    """

    def __init__(
        self,
        sampler: Sampler,
        rule: StopRule,
        goals: Mapping[str, SamplingGoal],
        *,
        on_round: Callable[[Mapping[str, Round]], None] = lambda rounds: None,
        on_turn: Callable[[float], None] = lambda share: None,
    ) -> None:
        preparation_s = sampler.preparation_s
        self.every = [
            WalkPieces(sampler, name, rule, goals.get(name, WHOLE_LATENCIES), preparation_s)
            for name in sampler.names
        ]
        self._on_round, self._on_turn = on_round, on_turn

    def note(self, rounds: Mapping[str, ChargedRound]) -> None:
        """Pass on the rounds of a walk."""
        self._on_round({key: one for key, (one, _) in rounds.items()})

    def judge(self, left: Sequence[WalkPieces]) -> None:
        """Stop sampling keys that are known well enough."""
        for pieces in left:
            pieces.update_active()

    def show(self, share: float) -> None:
        """Pass on the share that is done."""
        self._on_turn(share)


class WalkPieces:
    """The keys that a walk times, with the latencies of their steady rounds.

    ``active_keys`` are still sampled; None: all keys. ``preparation_s`` has the seconds of loading
    and binding each key, which its first round is charged with.
    """

    def __init__(
        self,
        sampler: Sampler,
        name: str,
        rule: StopRule,
        goal: SamplingGoal = WHOLE_LATENCIES,
        preparation_s: dict[str, float] | None = None,
    ) -> None:
        self.rounds = 0
        self.min_rounds = 1
        self.active_keys: set[str] | None = None
        self._sampler, self._name = sampler, name
        self._preparation_s = {} if preparation_s is None else preparation_s
        self._runs = True  # whether any of its steps runs
        self._goal = goal
        self._rule = rule
        self._taken: Counter[str] = Counter()
        self._steady: dict[str, list[float]] = {}  # latencies in seconds
        self._before = {key: [r for r in of if not r.disturbed] for key, of in goal.before.items()}

    def sample(self) -> dict[str, ChargedRound]:
        """Sample a round of each active key."""
        started = time.perf_counter()
        samples = self._sampler.walk(self._name, self._rule.passes, self.active_keys)
        wall_s = time.perf_counter() - started
        self.add(samples)
        return _charged(samples, wall_s, self._preparation_s)

    @property
    def active(self) -> bool:
        """Whether a step runs whose key is not known well enough."""
        return self._runs and (self.active_keys is None or bool(self.active_keys))

    @property
    def known(self) -> set[str]:
        """Keys that are known well enough, and have not failed since."""
        if self.active_keys is None:
            return set()
        failed = (
            self._sampler.failed_keys.failures.keys() | self._sampler.failed_keys.suspects.keys()
        )
        return self._steady.keys() - self.active_keys - failed

    @property
    def failures(self) -> Mapping[str, str]:
        """Keys of all walks of the sampler that cannot be measured, with the reasons."""
        return self._sampler.failed_keys.failures

    @property
    def share(self) -> float:
        """The share that is done, between 0 and 1."""
        known = 0.0
        if self.active_keys is not None:
            known = 1 - len(self.active_keys) / max(1, len(self._steady))
        return max(known, min(1.0, self.rounds / self._rule.max_rounds))

    def add(self, samples: WalkSamples) -> None:
        """Add a round of each sampled key."""
        self.rounds += 1
        rounds = samples.rounds()
        self._runs = bool(rounds)
        self._taken.update(rounds.keys())
        for key, taken_round in rounds.items():
            if key not in self._steady:
                before = self._before.get(key, ())
                self._steady[key] = [r.latency_s for r in before]
            if not taken_round.disturbed:
                self._steady[key].append(taken_round.latency_s)

    def update_active(self) -> None:
        """Stop sampling the keys that are known well enough."""
        known = {key: values for key, values in self._steady.items() if values}
        deviation = pooled_deviation(known.values())
        share_of = self._shares()
        self.active_keys = {
            key
            for key, share in share_of.items()
            if not self._rule.given_up(self._taken[key], share)
            and (
                self._taken[key] < self._goal.least
                or key not in known
                or not self._rule.met(known[key], share, deviation)
            )
        }
        self.min_rounds = max(
            map(self._rule.min_rounds_for, share_of.values()), default=self.min_rounds
        )

    def _shares(self) -> dict[str, float]:
        """The share of each key in a model's latency; 0 if it has no steady round yet."""
        if self._goal.shares is None:
            return dict.fromkeys(self._steady, 1.0)
        latencies_s = {key: median(of_key) for key, of_key in self._steady.items() if of_key}
        shares = self._goal.shares.of(latencies_s)
        return {key: shares.get(key, 1.0 if key in latencies_s else 0.0) for key in self._steady}


def _charged(
    samples: WalkSamples, wall_s: float, preparation_s: dict[str, float]
) -> dict[str, ChargedRound]:
    """The rounds of a walk of ``wall_s`` seconds, each charged with a share of ``wall_s``.

    The first round of a key is also charged with the seconds that preparing it took.
    """
    rounds = samples.rounds()
    sampled_s = sum(sum(one.host_s) for one in rounds.values()) or 1.0
    return {
        key: (one, wall_s * sum(one.host_s) / sampled_s + preparation_s.pop(key, 0.0))
        for key, one in rounds.items()
    }
