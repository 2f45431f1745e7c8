"""Measures missing collectives on ranks.

Must not know where the ranks run.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bricks.measure.collective_sampling import (
    CollectiveSampling,
    CollectiveTimer,
    SampledCollective,
)
from bricks.measure.loop import Loop
from bricks.measure.timing_lock import timing_lock
from bricks.network.collective import Collective
from bricks.samples.measurement import Failure, Measurement

if TYPE_CHECKING:
    from bricks.measure.progress import Progress
    from bricks.measure.ranks import Ranks
    from bricks.store import Claim, Store

_TIMEOUT_S = 120.0


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
        known = self._measured(set(keys) - missing) if again else set[str]()
        chosen = _chosen(every, claims, missing, known)
        with self._loop.holding(claims), self._exclusive_timing(chosen):
            if chosen:
                self._sample(chosen, claims)
        claimed = {claim.key for claim in claims}
        left_out = {key for sampled in chosen if sampled.left_out for key in sampled.keys}
        remeasured = known.intersection(key for sampled in chosen for key in sampled.keys)
        return CollectivesMeasured(
            tuple(sorted(claimed - self._loop.missing(claimed) - left_out)),
            tuple(sorted(set(keys) - missing)),
            tuple(sorted(left_out)),
            tuple(sorted(remeasured - left_out)),
        )

    def _measured(self, settled: set[str]) -> set[str]:
        """Keys in ``settled`` that have not failed."""
        failed = self._store.measurements.failures(self._target, sorted(settled))
        return settled - {failure.key for failure in failed}

    def _exclusive_timing(
        self, chosen: Sequence[SampledCollective]
    ) -> AbstractContextManager[None]:
        if not (self._exclusive and chosen):
            return nullcontext()
        return timing_lock(lambda message: self._progress(message, 0.0))

    def _sample(self, chosen: list[SampledCollective], claims: Sequence[Claim]) -> None:
        self._ranks.join()
        self._timer.every = chosen
        self._loop.sample(CollectiveSampling(chosen), claims, at_once=True)


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
