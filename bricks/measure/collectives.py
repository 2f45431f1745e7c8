"""Measures collectives on ranks, round by round: pieces as bricks are, in the same loop.

Must not know where the ranks run.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

from bricks.measure.loop import Loop
from bricks.measure.progress import Progress
from bricks.measure.protocol.ranks import CollectiveTimes, TimeCollective
from bricks.measure.ranks import Ranks
from bricks.measure.rounds import StopRule
from bricks.measure.timing_lock import WAITING, timing_lock
from bricks.measure.turns import ChargedRound
from bricks.network.collective import BESIDE, BROADCAST, Aspect, Collective
from bricks.network.times import round_time
from bricks.samples.measurement import Failure, Measurement, Round
from bricks.samples.statistics import median, pooled_deviation
from bricks.store import Claim, Store

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


@dataclass(frozen=True, slots=True)
class CollectivesMeasured:
    """What was measured: new keys, keys that were known, sizes that would take too long.

    ``again`` are those of the known keys that have further rounds.
    """

    new: tuple[str, ...]
    known: tuple[str, ...]
    left_out: tuple[str, ...]
    again: tuple[str, ...] = ()


class _Collective:
    """A collective that is being sampled; one request times all its ``aspects``, each with a key.

    ``chosen`` are the keys whose rounds are kept, and ``before`` the rounds of an interrupted run
    by key. ``smaller`` are other collectives that tell whether this one would take too long.
    """

    def __init__(self, of: Collective, timer: _Timer, *, computing: bool) -> None:
        self.of, self.computing = of, computing
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
        return [replace(self.of, aspect=aspect).key for aspect in self.aspects]

    def go_on(self, chosen: Collection[str], claims: Mapping[str, Claim]) -> None:
        """Keep rounds of ``chosen`` keys; rounds of an interrupted run count, which claims have."""
        self._chosen = frozenset(self.keys).intersection(chosen)
        self._sampled = {key for key in self.keys if key in claims and claims[key].rounds}
        first = claims.get(self.keys[0])
        taken = () if first is None else first.rounds
        self.times = [round_time(self.aspects[0], r) for r in taken]

    def sample(self) -> dict[str, ChargedRound]:
        """Take a round, unless it would take too long."""
        if not self.times and self._timer.too_long(self):
            self.left_out = True
            return {}
        taken = self._timer.time(self)
        first = self.aspects[0]
        self.times.append(round_time(first, taken[first][0]))
        self.rounds += 1
        keys = dict(zip(self.aspects, self.keys, strict=True))
        self._sampled.update(keys[aspect] for aspect in taken)
        return {keys[a]: charged for a, charged in taken.items() if keys[a] in self._chosen}

    def judge(self, deviation: float) -> None:
        """Note whether it is known well enough, or was tried often enough."""
        met = self._rule.met(self.times, self._share, deviation)
        self._enough = met or self._rule.given_up(len(self.times), self._share)

    @property
    def active(self) -> bool:
        """Whether it is still sampled."""
        return not (self._enough or self.left_out)

    @property
    def known(self) -> set[str]:
        """Its keys, where it is known well enough."""
        return self._sampled if self._enough else set()

    @property
    def failures(self) -> dict[str, str]:
        """The aspects of which it is too short to show anything."""
        found = set(self.keys) - self._sampled if self._enough else set[str]()
        return dict.fromkeys(found, "it is too short for a unit of computation beside it")

    @property
    def share(self) -> float:
        """The share that is done, between 0 and 1."""
        return min(1.0, len(self.times) / self._rule.max_rounds_for(self._share))

    @property
    def min_rounds(self) -> int:
        """How many rounds it takes at least."""
        return self._rule.min_rounds_for(self._share)

    @property
    def seconds(self) -> float | None:
        """How long it takes, as far as is known."""
        return median(self.times) if self.times else None

    @property
    def passes(self) -> int:
        """How many samples a round has."""
        if self.seconds is None:
            return RULE.passes
        return max(1, min(_MAX_PASSES, int(_ROUND_S / self.seconds)))

    @property
    def _rule(self) -> StopRule:
        return COMPUTING_RULE if self.computing else RULE

    @property
    def _share(self) -> float:
        return 1.0 if self.seconds is None else min(1.0, _WHOLE_SHARE_S / self.seconds)


class _Timer:
    """Times collectives on ranks, and knows of ``every`` one that is being sampled."""

    def __init__(self, ranks: Ranks, progress: Progress, timeout_s: float) -> None:
        self.every: list[_Collective] = []
        self._ranks, self._progress, self._timeout_s = ranks, progress, timeout_s

    def time(self, each: _Collective) -> dict[Aspect, ChargedRound]:
        """A round of each aspect that it shows."""
        done = sum(not other.active for other in self.every)
        self._progress(each.of.title, done / len(self.every))
        started = time.perf_counter()
        before_s = self._ranks.reference_s(self._timeout_s)
        request = TimeCollective(each.of.operation, each.of.num_bytes, each.passes, each.computing)
        answers = self._ranks.ask(request, timeout_s=self._timeout_s)
        after_s = self._ranks.reference_s(self._timeout_s)
        samples = _joined(each, answers)
        wall_s = (time.perf_counter() - started) / len(samples)
        return {a: (Round(s, before_s, None, after_s), wall_s) for a, s in samples.items()}

    def too_long(self, each: _Collective) -> bool:
        """Whether a smaller size shows that this one would take too long."""
        smaller = [
            other
            for other in self.every
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


class _CollectiveSampling:
    """Collectives in turn, in order of size: small ones tell which would take too long."""

    def __init__(self, every: Sequence[_Collective]) -> None:
        self.every = every

    def note(self, rounds: Mapping[str, ChargedRound]) -> None:
        """Nothing: collectives themselves note their times."""

    def judge(self, left: Sequence[_Collective]) -> None:
        """Stop sampling what is known well enough, by how much rounds of all vary."""
        deviation = pooled_deviation([each.times for each in left if each.times])
        for each in left:
            if each.times:
                each.judge(deviation)

    def show(self, share: float) -> None:
        """Nothing: each collective is announced before it is timed."""


class CollectiveCampaign:
    """One run of measuring collectives on one target.

    ``progress`` gets what is being done and the share that is done.
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
        self._timer = _Timer(ranks, progress, timeout_s)
        self._loop = Loop(store, target_key)

    def run(
        self, wanted: Sequence[Collective], *, computing: bool, again: bool = False
    ) -> CollectivesMeasured:
        """Measure what is not known of ``wanted``; with ``computing``, beside computing too.

        With ``again``, what is measured already gets further rounds, as many as if it were new.
        Raises :class:`~bricks.errors.WorkerError` if a rank fails; all rounds until then are kept.
        """
        self._store.refuse_damage()
        kinds = (False, True) if computing else (False,)
        every = [
            _Collective(of, self._timer, computing=kind)
            for of in sorted(set(wanted))
            for kind in kinds
        ]
        keys = [key for each in every for key in each.keys]
        missing = self._loop.missing(keys)
        claims = self._loop.claim(missing)
        known = self._measured(set(keys) - missing) if again else set[str]()
        mine = _chosen(every, claims, missing, known)
        with self._loop.holding(claims), self._alone(mine):
            if mine:
                self._sample(mine, claims)
        claimed = {claim.key for claim in claims}
        left_out = {key for each in mine if each.left_out for key in each.keys}
        remeasured = known.intersection(key for each in mine for key in each.keys)
        return CollectivesMeasured(
            tuple(sorted(claimed - self._loop.missing(claimed) - left_out)),
            tuple(sorted(set(keys) - missing)),
            tuple(sorted(left_out)),
            tuple(sorted(remeasured - left_out)),
        )

    def _measured(self, settled: set[str]) -> set[str]:
        """Those of ``settled`` keys that have not failed."""
        failed = self._store.measurements.failures(self._target, sorted(settled))
        return settled - {failure.key for failure in failed}

    def _alone(self, mine: Sequence[_Collective]) -> AbstractContextManager[None]:
        if not (self._exclusive and mine):
            return nullcontext()
        return timing_lock(lambda: self._progress(WAITING, 0.0))

    def _sample(self, mine: list[_Collective], claims: Sequence[Claim]) -> None:
        self._ranks.join()
        self._timer.every = mine
        self._loop.sample(_CollectiveSampling(mine), claims, at_once=True)


def _chosen(
    every: Sequence[_Collective], claims: Sequence[Claim], missing: set[str], again: set[str]
) -> list[_Collective]:
    """The collectives to sample: those that lack nothing which another run measures.

    And those of which everything is known, where ``again`` has keys of theirs.
    """
    claimed = {claim.key: claim for claim in claims}
    mine = [
        each
        for each in every
        if missing.intersection(each.keys) <= claimed.keys()
        and (missing.intersection(each.keys) or again.intersection(each.keys))
    ]
    for each in mine:
        each.go_on(claimed.keys() | again, claimed)
    return mine


def _joined(
    each: _Collective, answers: Sequence[CollectiveTimes]
) -> dict[Aspect, tuple[float, ...]]:
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
