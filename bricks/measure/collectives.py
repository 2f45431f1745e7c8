"""Measures collectives on ranks: which of them are missing, and what came of it.

Must not know where the ranks run.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from bricks.measure.collective_sampling import (
    CollectiveSampling,
    CollectiveTimer,
    SampledCollective,
)
from bricks.measure.loop import Loop
from bricks.measure.progress import Progress
from bricks.measure.ranks import Ranks
from bricks.measure.timing_lock import WAITING, timing_lock
from bricks.network.collective import Collective
from bricks.samples.measurement import Failure, Measurement
from bricks.store import Claim, Store

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
        self._timer = CollectiveTimer(ranks, progress, timeout_s)
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
            SampledCollective(of, self._timer, computing=kind)
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

    def _alone(self, mine: Sequence[SampledCollective]) -> AbstractContextManager[None]:
        if not (self._exclusive and mine):
            return nullcontext()
        return timing_lock(lambda: self._progress(WAITING, 0.0))

    def _sample(self, mine: list[SampledCollective], claims: Sequence[Claim]) -> None:
        self._ranks.join()
        self._timer.every = mine
        self._loop.sample(CollectiveSampling(mine), claims, at_once=True)


def _chosen(
    every: Sequence[SampledCollective], claims: Sequence[Claim], missing: set[str], again: set[str]
) -> list[SampledCollective]:
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


def known_collectives(store: Store, target_key: str) -> dict[str, Measurement]:
    """All collectives that are measured on a target, by their keys."""
    keys = [key for key in store.measurements.costs(target_key) if Collective.of(key) is not None]
    results = store.measurements.results(target_key, keys)
    return {key: m for key, m in results.items() if not isinstance(m, Failure)}
