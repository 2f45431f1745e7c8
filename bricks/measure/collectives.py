"""Measures missing collectives on ranks: samples them in turn, each until it is known well enough.

Must not know where the ranks run.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from bricks.measure.conditions import StopRule
from bricks.measure.loop import ChargedRound, Loop
from bricks.measure.protocol.training import TimeCollective
from bricks.measure.timing_lock import timing_lock
from bricks.network.collective import BESIDE, BROADCAST, Aspect, Collective
from bricks.network.times import round_time
from bricks.samples.measurement import Failure, Measurement, Round
from bricks.samples.statistics import median, pooled_deviation
from bricks.system.host_conditions import mean_conditions

if TYPE_CHECKING:
    from bricks.backends.ranks import CollectiveTimes
    from bricks.measure.campaign_result import Progress
    from bricks.measure.ranks import Ranks
    from bricks.store import Claim, Store

_TIMEOUT_S = 120.0

# The precision of a collective: rounds of short ones vary by several percent. While ranks compute,
# they vary more, since threads wait for the core in time slices of milliseconds.
RULE = StopRule(precision=0.03, min_rounds=8, max_rounds=24, passes=2)
COMPUTING_RULE = StopRule(precision=0.06, min_rounds=8, max_rounds=16, passes=2)

# Seconds of all samples of a round, about, and the most samples of a round.
_ROUND_S, _MAX_PASSES = 0.05, 16

# A collective that takes longer gets fewer rounds: its noise is averaged within it.
_WHOLE_SHARE_S = 0.25

# A size is left out if times of smaller sizes show that it would take longer, in seconds.
MAX_COLLECTIVE_S = 10.0


@dataclass(frozen=True, slots=True)
class CollectivesMeasured:
    """Keys by outcome: ``new``, ``known`` before, ``left_out`` since they would take too long.

    Known keys in ``again`` have further rounds.
    """

    new: tuple[str, ...]
    known: tuple[str, ...]
    left_out: tuple[str, ...]
    again: tuple[str, ...] = ()


class CollectiveCampaign:
    """One run of measuring collectives on one target.

    ``progress`` receives the collective that is timed, and the share that is done.
    """

    def __init__(
        self,
        store: Store,
        ranks: Ranks,
        target_key: str,
        progress: Progress,
        *,
        exclusive: bool = True,
        timeout_s: float = _TIMEOUT_S,
    ) -> None:
        self._store, self._ranks, self._target = store, ranks, target_key
        self._progress, self._exclusive = progress, exclusive
        self._timer = CollectiveTimer(ranks, progress, timeout_s)
        self._loop = Loop(store, target_key)

    def run(
        self, collectives: Sequence[Collective], *, computing: bool, again: bool = False
    ) -> CollectivesMeasured:
        """Measure unknown ``collectives``; with ``computing``, also while ranks compute.

        With ``again``, known ones get further rounds, as many as if they were new. Raises
        :class:`~bricks.errors.WorkerError` if a rank fails; all rounds until then are kept.
        """
        self._store.refuse_damage()
        kinds = (False, True) if computing else (False,)
        every = [
            SampledCollective(collective, self._timer, computing=kind)
            for collective in sorted(set(collectives))
            for kind in kinds
        ]
        keys = [key for sampled in every for key in sampled.keys]
        missing = self._loop.missing(keys)
        claims = self._loop.claim(missing)
        known = set[str]()
        if again:
            settled = set(keys) - missing
            failed = self._store.measurements.failures(self._target, sorted(settled))
            known = settled - {failure.key for failure in failed}
        chosen = _chosen(every, claims, missing, known)
        with self._loop.holding(claims), ExitStack() as exclusive:
            if chosen:
                if self._exclusive:
                    show = self._progress
                    exclusive.enter_context(timing_lock(lambda message: show(message, 0.0)))
                self._ranks.join()
                self._timer.every = chosen
                self._loop.sample(CollectiveSampling(chosen), claims, at_once=True)
        claimed = {claim.key for claim in claims}
        left_out = {key for sampled in chosen if sampled.left_out for key in sampled.keys}
        remeasured = known.intersection(key for sampled in chosen for key in sampled.keys)
        return CollectivesMeasured(
            tuple(sorted(claimed - self._loop.missing(claimed) - left_out)),
            tuple(sorted(set(keys) - missing)),
            tuple(sorted(left_out)),
            tuple(sorted(remeasured - left_out)),
        )


def _chosen(
    every: Sequence[SampledCollective], claims: Sequence[Claim], missing: set[str], again: set[str]
) -> list[SampledCollective]:
    """The collectives to sample: those whose missing keys are all claimed.

    Collectives without missing keys are sampled if ``again`` has one of their keys.
    """
    claimed = {claim.key: claim for claim in claims}
    chosen = [
        sampled
        for sampled in every
        if missing.intersection(sampled.keys) <= claimed.keys()
        and (missing.intersection(sampled.keys) or again.intersection(sampled.keys))
    ]
    for sampled in chosen:
        sampled.go_on(claimed.keys() | again, claimed)
    return chosen


def known_collectives(store: Store, target_key: str) -> dict[str, Measurement]:
    """All collectives that are measured on a target, by their keys."""
    keys = [key for key in store.measurements.costs(target_key) if Collective.of(key) is not None]
    results = store.measurements.results(target_key, keys)
    return {key: m for key, m in results.items() if not isinstance(m, Failure)}


class SampledCollective:
    """A collective that is being sampled; one request times all its ``aspects``, a key for each.

    With ``computing``, aspects are those while ranks compute, else the collective by itself.
    ``left_out`` is whether it would take too long.
    """

    def __init__(self, collective: Collective, timer: CollectiveTimer, *, computing: bool) -> None:
        self.collective, self.computing = collective, computing
        self.aspects = BESIDE if computing else (Aspect.ALONE,)
        self.rounds = 0
        self.times: list[float] = []
        self.left_out = False
        self._timer = timer
        self._enough = False
        self._chosen: frozenset[str] = frozenset()
        self._sampled: set[str] = set()  # keys that have rounds

    @property
    def keys(self) -> list[str]:
        """The key of each aspect."""
        return [replace(self.collective, aspect=aspect).key for aspect in self.aspects]

    def go_on(self, chosen: Collection[str], claims: Mapping[str, Claim]) -> None:
        """Sample ``chosen`` keys; rounds of an interrupted run, which ``claims`` have, count."""
        self._chosen = frozenset(self.keys).intersection(chosen)
        self._sampled = {key for key in self.keys if key in claims and claims[key].rounds}
        first = claims.get(self.keys[0])
        rounds = () if first is None else first.rounds
        self.times = [round_time(self.aspects[0], r) for r in rounds]

    def sample(self) -> dict[str, ChargedRound]:
        """Take a round, unless it would take too long."""
        if not self.times and self._timer.too_long(self):
            self.left_out = True
            return {}
        charged = self._timer.time(self)
        first = self.aspects[0]
        self.times.append(round_time(first, charged[first][0]))
        self.rounds += 1
        keys = dict(zip(self.aspects, self.keys, strict=True))
        self._sampled.update(keys[aspect] for aspect in charged)
        return {keys[a]: one for a, one in charged.items() if keys[a] in self._chosen}

    def judge(self, deviation: float) -> None:
        """Decide whether it is known well enough, or has enough rounds."""
        known = self._rule.met(self.times, self._share, deviation)
        self._enough = known or self._rule.given_up(len(self.times), self._share)

    @property
    def active(self) -> bool:
        """Whether it is still sampled."""
        return not (self._enough or self.left_out)

    @property
    def known(self) -> set[str]:
        """Its keys, once it is known well enough."""
        return self._sampled if self._enough else set()

    @property
    def failures(self) -> dict[str, str]:
        """Keys of aspects without samples, because the collective is too short."""
        missing = set(self.keys) - self._sampled if self._enough else set[str]()
        return dict.fromkeys(missing, "it is too short for a unit of computation beside it")

    @property
    def share(self) -> float:
        """The share that is done, between 0 and 1."""
        return min(1.0, len(self.times) / self._rule.max_rounds_for(self._share))

    @property
    def min_rounds(self) -> int:
        """The least number of rounds."""
        return self._rule.min_rounds_for(self._share)

    @property
    def seconds(self) -> float | None:
        """Its median time in seconds; None before the first round."""
        return median(self.times) if self.times else None

    @property
    def passes(self) -> int:
        """The number of samples of a round."""
        if self.seconds is None:
            return RULE.passes
        return max(1, min(_MAX_PASSES, int(_ROUND_S / self.seconds)))

    @property
    def _rule(self) -> StopRule:
        return COMPUTING_RULE if self.computing else RULE

    @property
    def _share(self) -> float:
        return 1.0 if self.seconds is None else min(1.0, _WHOLE_SHARE_S / self.seconds)


class CollectiveTimer:
    """Times collectives on ranks; ``every`` has all collectives that are being sampled."""

    def __init__(self, ranks: Ranks, progress: Progress, timeout_s: float) -> None:
        self.every: list[SampledCollective] = []
        self._ranks, self._progress, self._timeout_s = ranks, progress, timeout_s

    def time(self, sampled: SampledCollective) -> dict[Aspect, ChargedRound]:
        """A round of each aspect that has samples."""
        done = sum(not other.active for other in self.every)
        self._progress(sampled.collective.title, done / len(self.every))
        started = time.perf_counter()
        before = self._ranks.host_conditions(self._timeout_s)
        request = TimeCollective(
            sampled.collective.operation,
            sampled.collective.num_bytes,
            sampled.passes,
            sampled.computing,
        )
        answers = self._ranks.ask(request, timeout_s=self._timeout_s)
        host = mean_conditions([before, self._ranks.host_conditions(self._timeout_s)])
        samples = _merged(sampled, answers)
        wall_s = (time.perf_counter() - started) / len(samples)
        return {a: (Round(s, host), wall_s) for a, s in samples.items()}

    def too_long(self, sampled: SampledCollective) -> bool:
        """Whether a smaller size shows that this one would take too long."""
        smaller = [
            other
            for other in self.every
            if other.seconds is not None
            and other.computing == sampled.computing
            and other.collective.operation == sampled.collective.operation
            and other.collective.num_bytes < sampled.collective.num_bytes
        ]
        if not smaller:
            return False
        largest = max(smaller, key=lambda other: other.collective.num_bytes)
        growth = sampled.collective.num_bytes / largest.collective.num_bytes
        return (largest.seconds or 0.0) * growth > MAX_COLLECTIVE_S


class CollectiveSampling:
    """Collectives in turn, in order of size: times of small ones show which would take too long."""

    def __init__(self, every: Sequence[SampledCollective]) -> None:
        self.every = every

    def note(self, rounds: Mapping[str, ChargedRound]) -> None:
        """Nothing: collectives record their own times."""

    def judge(self, left: Sequence[SampledCollective]) -> None:
        """Stop sampling collectives that are known well enough, by the deviation of all rounds."""
        deviation = pooled_deviation([sampled.times for sampled in left if sampled.times])
        for sampled in left:
            if sampled.times:
                sampled.judge(deviation)

    def show(self, share: float) -> None:
        """Nothing: each collective is announced before it is timed."""


def _merged(
    sampled: SampledCollective, answers: Sequence[CollectiveTimes]
) -> dict[Aspect, tuple[float, ...]]:
    """Merge the samples of all ranks, in seconds by aspect.

    Ranks do not begin at the same time: the rank that begins last has the shortest time, which is
    that of the operation. In a broadcast the first rank has sent before others have received:
    there the longest time counts.
    """
    ends = max if sampled.collective.operation == BROADCAST else min
    passes = zip(*(answer.samples for answer in answers), strict=True)
    samples = {sampled.aspects[0]: tuple(ends(times) for times in passes)}
    if not sampled.computing:
        return samples
    for aspect, units in (
        (Aspect.UNIT_BEFORE, [answer.before_s for answer in answers]),
        (Aspect.UNIT_DURING, [answer.during_s for answer in answers]),
    ):
        known = ([s for s in times if s is not None] for times in zip(*units, strict=True))
        # Means over ranks, where all of them have a time.
        means_s = tuple(sum(times) / len(times) for times in known if len(times) == len(units))
        if means_s:
            samples[aspect] = means_s
    return samples
