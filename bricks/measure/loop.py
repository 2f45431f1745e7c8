"""The loop of measuring: claims keys, samples them in turn, and stores every round at once.

Bricks, whole models, probes and collectives share it. However it ends, all rounds are stored: the
next run continues with them. It must not know what a key stands for, nor how rounds are sampled.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager

from bricks.measure.deadline import NEVER, Deadline
from bricks.measure.round_buffer import RoundBuffer
from bricks.measure.turns import ChargedRound, PieceSampling, Sampled, in_turn
from bricks.store import Claim, Owner, Store

_logger = logging.getLogger(__name__)

# Claims expire: the seconds after which they are renewed.
_RENEW_S = 60.0

# How often the claims of other processes are polled.
_POLL_S = 0.2


class Loop:
    """One run of measuring on one target; see :meth:`sample`.

    ``owner`` holds its claims, and ``unfinished`` are the keys for which there was no time.
    """

    def __init__(self, store: Store, target_key: str) -> None:
        self._store = store
        self._target = target_key
        self.owner = Owner.current()
        self._renewed = time.monotonic()
        self.unfinished: set[str] = set()

    def missing(self, keys: Collection[str]) -> set[str]:
        """The keys in ``keys`` without a result."""
        unique = list(dict.fromkeys(keys))
        return set(unique) - self._store.measurements.settled(self._target, unique)

    def claims(
        self,
        keys: Collection[str],
        deadline: Deadline = NEVER,
        *,
        waiting: Callable[[Sequence[str]], None] | None = None,
    ) -> Iterator[list[Claim]]:
        """Claims to complete, until all ``keys`` have results, or the time is up.

        While other processes own the claims to all remaining keys, ``waiting`` is called again and
        again with the names of these processes; without it, the keys are left to them.
        """
        while missing := self.missing(keys):
            if deadline.passed:
                self.unfinished |= missing
                return
            if claims := self.claim(missing):
                yield claims
            elif waiting is None:
                return
            else:
                waiting(self._store.claims.owners(self._target, sorted(missing)))
                time.sleep(_POLL_S)

    def claim(self, keys: Collection[str]) -> list[Claim]:
        """Claims to keys in ``keys`` without results that no other process has claimed."""
        return self._store.claims.claim(self._target, sorted(keys), self.owner) if keys else []

    @contextmanager
    def holding(self, claims: Sequence[Claim]) -> Iterator[None]:
        """Release uncompleted ``claims`` when the block ends, for whatever reason."""
        try:
            yield
        finally:
            keys = sorted(claim.key for claim in claims)
            self._store.claims.release(self._target, keys, self.owner)

    def sample(
        self,
        sampling: PieceSampling[Sampled],
        claims: Sequence[Claim],
        *,
        deadline: Deadline = NEVER,
        at_once: bool = False,
    ) -> set[str]:
        """Sample in turn, store every round, and complete claims; the claimed keys that are done.

        Rounds of keys without a claim supplement earlier measurements. Claims are completed when
        sampling ends, or with ``at_once`` after the turn in which they are known well enough: that
        takes a transaction, which disturbs the next timing unless the timed work is long.
        """
        owned = _OwnedClaims(self._store, self._target, self.owner, {claim.key for claim in claims})
        buffer = RoundBuffer(owned.keep)

        def complete() -> None:
            if owned.completes(sampling):
                buffer.flush()
                owned.complete(sampling)

        try:
            after_turn = complete if at_once else lambda: None
            in_turn(sampling, buffer.add, deadline=deadline, after_turn=after_turn)
        finally:
            buffer.flush()
        complete()
        return owned.done

    def renew(self) -> None:
        """Renew the claims, unless they were renewed recently."""
        if time.monotonic() - self._renewed >= _RENEW_S:
            self._renewed = time.monotonic()
            self._store.claims.renew(self._target, self.owner)


class _OwnedClaims:
    """Claims of an owner to ``claimed`` keys of a target, until they are completed."""

    def __init__(self, store: Store, target_key: str, owner: Owner, claimed: Set[str]) -> None:
        self._store, self._target, self._owner = store, target_key, owner
        self._claimed = claimed
        self._failed: set[str] = set()
        self.done: set[str] = set()

    def keep(self, rounds: Mapping[str, ChargedRound]) -> None:
        """Store rounds of claimed keys, and of keys that are measured again."""
        new = {key: charged for key, charged in rounds.items() if key in self._claimed}
        if new:
            self._store.claims.append_rounds(self._target, new, self._owner)
        again = {key: charged for key, charged in rounds.items() if key not in new}
        if again:
            self._store.measurements.supplement(self._target, again)

    def completes(self, sampling: PieceSampling[Sampled]) -> bool:
        """Whether there is a claim to complete."""
        return bool(self._failures(sampling) or self._known(sampling))

    def complete(self, sampling: PieceSampling[Sampled]) -> None:
        """Complete claims to keys that failed or are known well enough."""
        for key, reason in sorted(self._failures(sampling).items()):
            self._store.claims.fail(self._target, key, reason, self._owner)
            self._failed.add(key)
            _logger.info("%s failed: %s", key, reason)
        if known := self._known(sampling):
            self._store.claims.finish(self._target, sorted(known), self._owner)
            self.done |= known

    def _failures(self, sampling: PieceSampling[Sampled]) -> dict[str, str]:
        every = (pair for pieces in sampling.every for pair in pieces.failures.items())
        return {k: why for k, why in every if k in self._claimed and k not in self._failed}

    def _known(self, sampling: PieceSampling[Sampled]) -> set[str]:
        known = {key for pieces in sampling.every for key in pieces.known}
        return (known & self._claimed) - self.done
