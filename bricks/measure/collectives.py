"""Measures collectives on ranks, round by round, and keeps every round at once.

As with bricks of models: keys are claimed in the store, what is claimed is sampled in turn until it
is known well enough, and however this ends, all rounds stay. Must not know where the ranks run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field

from bricks.measure.protocol.ranks import CollectiveTimes, TimeCollective
from bricks.measure.ranks import Ranks
from bricks.measure.rounds import StopRule
from bricks.measure.timing_lock import WAITING, timing_lock
from bricks.network.collective import BESIDE, BROADCAST, Aspect, Collective
from bricks.network.times import round_time
from bricks.samples.measurement import Failure, Measurement, Round
from bricks.samples.statistics import median, pooled_deviation
from bricks.store import Owner, Store

# What a collective must be known to: rounds of short ones vary by several percent. Beside computing
# they vary more, since threads wait for the core in turns of milliseconds.
RULE = StopRule(precision=0.03, min_rounds=8, max_rounds=24, passes=2)
COMPUTING_RULE = StopRule(precision=0.06, min_rounds=8, max_rounds=16, passes=2)

# Samples of one round take about so long together, but are no more than so many.
_ROUND_S, _MAX_PASSES = 0.05, 16

# A collective that takes longer gets fewer rounds: its noise is averaged within it.
_WHOLE_SHARE_S = 0.25

# A size is left out where one this much smaller takes so long already that it would exceed this.
MAX_COLLECTIVE_S = 10.0

_TIMEOUT_S = 120.0

# Keeps rounds of several collectives in one transaction: writing would disturb what is timed.
_KEEP_S = 0.25


@dataclass(frozen=True, slots=True)
class CollectivesMeasured:
    """What was measured: new keys, keys that were known, sizes that would take too long.

    ``again`` are those of the known keys that have further rounds.
    """

    new: tuple[str, ...]
    known: tuple[str, ...]
    left_out: tuple[str, ...]
    again: tuple[str, ...] = ()


@dataclass(slots=True)
class _Sampled:
    """A collective that is being sampled; ``aspects`` are timed by one request."""

    of: Collective
    computing: bool
    times: list[float] = field(default_factory=list)
    rounds: int = 0

    @property
    def aspects(self) -> tuple[Aspect, ...]:
        return BESIDE if self.computing else (Aspect.ALONE,)

    @property
    def keys(self) -> list[str]:
        of = self.of
        return [
            Collective(of.operation, of.num_bytes, of.ranks, aspect).key for aspect in self.aspects
        ]

    @property
    def seconds(self) -> float | None:
        return median(self.times) if self.times else None

    def enough(self, deviation: float) -> bool:
        """Whether it is known well enough, or was tried often enough."""
        rule = COMPUTING_RULE if self.computing else RULE
        met = rule.met(self.times, self.share, deviation)
        return met or rule.given_up(self.rounds, self.share)

    @property
    def passes(self) -> int:
        if self.seconds is None:
            return RULE.passes
        return max(1, min(_MAX_PASSES, int(_ROUND_S / self.seconds)))

    @property
    def share(self) -> float:
        return 1.0 if self.seconds is None else min(1.0, _WHOLE_SHARE_S / self.seconds)


class CollectiveCampaign:
    """One run of measuring collectives on one target.

    ``progress`` gets what is being done and the share that is done.
    """

    def __init__(
        self,
        store: Store,
        ranks: Ranks,
        target_key: str,
        progress: Callable[[str, float], None],
        *,
        exclusive: bool = True,
        timeout_s: float = _TIMEOUT_S,
    ) -> None:
        self._store, self._ranks, self._target = store, ranks, target_key
        self._progress, self._exclusive = progress, exclusive
        self._timeout_s = timeout_s
        self._owner = Owner.current()
        self._kept_s = 0.0
        self._unkept: dict[str, list[tuple[Round, float]]] = {}
        self._again: frozenset[str] = frozenset()

    def run(
        self, wanted: Sequence[Collective], *, computing: bool, again: bool = False
    ) -> CollectivesMeasured:
        """Measure what is not known of ``wanted``; with ``computing``, beside computing too.

        With ``again``, what is measured already gets further rounds, as many as if it were new.
        Raises :class:`~bricks.errors.WorkerError` if a rank fails; all rounds until then are kept.
        """
        self._store.refuse_damage()
        kinds = (False, True) if computing else (False,)
        every = [_Sampled(of, kind) for of in sorted(set(wanted)) for kind in kinds]
        keys = [key for each in every for key in each.keys]
        settled = self._store.measurements.settled(self._target, keys)
        open_ = [each for each in every if any(key not in settled for key in each.keys)]
        missing = [key for each in open_ for key in each.keys if key not in settled]
        claims = self._store.claims.claim(self._target, missing, self._owner) if missing else []
        claimed = {claim.key: claim for claim in claims}
        mine = [each for each in open_ if all(k in claimed or k in settled for k in each.keys)]
        if again:
            mine += [each for each in every if each not in open_]
            failed = {
                failure.key for failure in self._store.measurements.failures(self._target, keys)
            }
            known = settled - failed
            self._again = frozenset(key for each in mine for key in each.keys if key in known)
        for each in mine:  # rounds of an interrupted run count
            claim = claimed.get(each.keys[0])
            taken = () if claim is None else claim.rounds
            each.times = [round_time(each.aspects[0], r) for r in taken]
            each.rounds = len(taken)
        left_out: list[str] = []
        try:
            lock = timing_lock(lambda: self._progress(WAITING, 0.0))
            with lock if self._exclusive and mine else nullcontext():
                if mine:
                    left_out = self._sample(mine, claimed.keys())
        finally:
            self._keep()
            self._store.claims.release(self._target, sorted(claimed), self._owner)
        done = self._store.measurements.settled(self._target, sorted(claimed)) - set(left_out)
        return CollectivesMeasured(
            tuple(sorted(done)),
            tuple(sorted(settled)),
            tuple(sorted(left_out)),
            tuple(sorted(self._again.difference(left_out))),
        )

    def _sample(self, mine: Sequence[_Sampled], claimed: object) -> list[str]:
        """Sample until all are known well enough; the keys of those that would take too long."""
        self._ranks.join()
        left_out: list[str] = []
        active, total = list(mine), len(mine)
        while active:
            for each in list(active):
                if self._too_long(each, mine):
                    active.remove(each)
                    left_out += each.keys
                    continue
                of = each.of
                self._progress(of.title, 1 - len(active) / total)
                self._round(each)
            deviation = pooled_deviation([each.times for each in active])
            for each in list(active):
                if each.enough(deviation):
                    active.remove(each)
                    self._settle(each)
        return left_out

    def _round(self, each: _Sampled) -> None:
        started = time.perf_counter()
        before_s = self._reference()
        request = TimeCollective(each.of.operation, each.of.num_bytes, each.passes, each.computing)
        answers = self._ranks.ask(request, timeout_s=self._timeout_s)
        after_s = self._reference()
        samples = _joined(each, answers)
        first = each.aspects[0]
        each.times.append(round_time(first, Round(samples[first])))
        each.rounds += 1
        wall_s = (time.perf_counter() - started) / len(samples)
        for key, aspect in zip(each.keys, each.aspects, strict=True):
            if aspect in samples:
                taken = Round(samples[aspect], before_s, None, after_s)
                self._unkept.setdefault(key, []).append((taken, wall_s))
        if time.monotonic() - self._kept_s > _KEEP_S:
            self._keep()

    def _reference(self) -> float | None:
        """The machine state, as the first rank's host shows it."""
        return self._ranks.reference_s(self._timeout_s)

    def _keep(self) -> None:
        """Write the rounds that were taken; of a key one in each transaction."""
        while self._unkept:
            walk = {key: rounds.pop(0) for key, rounds in self._unkept.items()}
            self._unkept = {key: rounds for key, rounds in self._unkept.items() if rounds}
            settled = self._store.measurements.settled(self._target, sorted(walk))
            new = {key: walk[key] for key in sorted(walk.keys() - settled)}
            self._store.claims.append_rounds(self._target, new, self._owner)
            more = {key: walk[key] for key in sorted(settled & self._again)}
            self._store.measurements.supplement(self._target, more)
        self._kept_s = time.monotonic()

    def _settle(self, each: _Sampled) -> None:
        self._keep()
        settled = self._store.measurements.settled(self._target, each.keys)
        for key, aspect in zip(each.keys, each.aspects, strict=True):
            if key in settled:
                continue
            if aspect in (Aspect.UNIT_BEFORE, Aspect.UNIT_DURING) and not self._has_rounds(key):
                reason = "it is too short for a unit of computation beside it"
                self._store.claims.fail(self._target, key, reason, self._owner)
                continue
            self._store.claims.finish(self._target, [key], self._owner)

    def _has_rounds(self, key: str) -> bool:
        [claim] = self._store.claims.claim(self._target, [key], self._owner)
        return bool(claim.rounds)

    @staticmethod
    def _too_long(each: _Sampled, every: Sequence[_Sampled]) -> bool:
        """Whether a smaller size shows that this one would take too long."""
        if each.rounds:
            return False
        smaller = [
            other
            for other in every
            if other.seconds is not None
            and other.computing == each.computing
            and other.of.operation == each.of.operation
            and other.of.num_bytes < each.of.num_bytes
        ]
        if not smaller:
            return False
        largest = max(smaller, key=lambda other: other.of.num_bytes)
        growth = each.of.num_bytes / largest.of.num_bytes
        return (largest.seconds or 0.0) * growth > MAX_COLLECTIVE_S


def _joined(each: _Sampled, answers: Sequence[CollectiveTimes]) -> dict[Aspect, tuple[float, ...]]:
    """The samples of a round from those of all ranks, in seconds.

    Ranks begin a little apart, and the one that begins last sees how long the operation takes. In a
    broadcast the first has sent before others have received: there it is the one that ends last.
    """
    ends = max if each.of.operation == BROADCAST else min
    passes = zip(*(answer.samples for answer in answers), strict=True)
    found = {each.aspects[0]: tuple(ends(times) for times in passes)}
    if not each.computing:
        return found
    for aspect, units in (
        (Aspect.UNIT_BEFORE, [answer.before_s for answer in answers]),
        (Aspect.UNIT_DURING, [answer.during_s for answer in answers]),
    ):
        told = [
            mean_s for times in zip(*units, strict=True) if (mean_s := _mean_s(times)) is not None
        ]
        if told:
            found[aspect] = tuple(told)
    return found


def _mean_s(times: Sequence[float | None]) -> float | None:
    """The mean over ranks; None where one of them has no time."""
    known = [seconds for seconds in times if seconds is not None]
    return sum(known) / len(known) if len(known) == len(times) else None


def known_collectives(store: Store, target_key: str) -> dict[str, Measurement]:
    """All collectives that are measured on a target, by their keys."""
    keys = [key for key in store.measurements.costs(target_key) if Collective.of(key) is not None]
    results = store.measurements.results(target_key, keys)
    return {key: m for key, m in results.items() if not isinstance(m, Failure)}
