"""The loop of measuring: claims keys, samples them in turn, and stores every round at once.

Bricks, whole models, probes and collectives share it. However it ends, all rounds are stored: the
next run continues with them. A few rounds are stored together, since a transaction costs
milliseconds. Within half a minute, a machine's speed drifts by more than the acceptable error of
estimates; pieces that are sampled in turn have the same drift. It must not know what a key stands
for, nor how rounds are sampled.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from typing import Protocol, TypeVar

from bricks.measure.conditions import NEVER, Deadline
from bricks.samples.measurement import Round
from bricks.store import Claim, Owner, Store

_logger = logging.getLogger(__name__)

# Claims expire: the seconds after which they are renewed.
_RENEW_S = 60.0

# How often the claims of other processes are polled.
_POLL_S = 0.2

# Seconds for which a round is buffered at most, as long as more rounds come.
_MAX_AGE_S = 0.25
# Rounds that are stored at once, at most: all are lost if the disk is full.
_MAX_AT_ONCE = 10


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


# A round, and the wall time in seconds that it is charged with.
ChargedRound = tuple[Round, float]


class SampledPieces(Protocol):
    """Pieces that one request samples together: those of a walk, or of a collective.

    Each has a key, under which its rounds are kept.
    """

    @property
    def rounds(self) -> int:
        """The number of rounds so far."""

    @property
    def min_rounds(self) -> int:
        """The least number of rounds, by present knowledge."""

    @property
    def active(self) -> bool:
        """Whether a key runs that is not known well enough."""

    @property
    def known(self) -> Collection[str]:
        """The keys that are known well enough."""

    @property
    def failures(self) -> Mapping[str, str]:
        """Keys that cannot be measured, with the reasons."""

    @property
    def share(self) -> float:
        """The share that is done, between 0 and 1."""

    def sample(self) -> Mapping[str, ChargedRound]:
        """Sample a round of each active key; none where no key runs."""


Sampled = TypeVar("Sampled", bound=SampledPieces)


class PieceSampling(Protocol[Sampled]):
    """A way to sample pieces in turn, until a deadline or until all are known well enough."""

    @property
    def every(self) -> Sequence[Sampled]:
        """All pieces, in the order of the first turn."""

    def note(self, rounds: Mapping[str, ChargedRound]) -> None:
        """Receive a round of each of some keys, before it is stored."""

    def judge(self, left: Sequence[Sampled]) -> None:
        """Decide after a turn which of the pieces that are ``left`` are known well enough."""

    def show(self, share: float) -> None:
        """Receive the share that is done after a turn, between 0 and 1."""


Keep = Callable[[Mapping[str, ChargedRound]], None]


def in_turn(
    sampling: PieceSampling[Sampled],
    keep: Keep,
    *,
    deadline: Deadline = NEVER,
    after_turn: Callable[[], None] = lambda: None,
) -> None:
    """Sample pieces in turn, until ``deadline``; ``keep`` receives each round.

    Pieces that are known well enough are left out from the next turn on. The rounds of pieces that
    need few are spread over as much time as those of others.
    """
    left, turn, late = list(sampling.every), 0, False
    while left and not late:
        turn += 1
        most_rounds = max(pieces.min_rounds for pieces in left)
        for pieces in left:
            if late := deadline.passed:
                break
            if pieces.rounds * most_rounds >= turn * pieces.min_rounds and turn <= most_rounds:
                continue
            rounds = pieces.sample()
            if rounds:
                sampling.note(rounds)
                keep(rounds)
        sampling.judge(left)
        left = [pieces for pieces in reversed(left) if pieces.active]
        sampling.show(min((pieces.share for pieces in left), default=1.0))
        after_turn()


class RoundBuffer:
    """Rounds that are not stored yet; ``keep`` receives rounds by key."""

    def __init__(self, keep: Callable[[Mapping[str, ChargedRound]], None]) -> None:
        self._keep = keep
        self._rounds: list[Mapping[str, ChargedRound]] = []
        self._kept_at = time.monotonic()

    def add(self, rounds: Mapping[str, ChargedRound]) -> None:
        """Add a round of each of some keys."""
        self._rounds.append(rounds)
        if time.monotonic() - self._kept_at >= _MAX_AGE_S:
            self.flush()

    def flush(self) -> None:
        """Store all rounds."""
        for rounds in coalesced(self._rounds):
            self._keep(rounds)
        self._rounds.clear()
        self._kept_at = time.monotonic()


def coalesced(walks: Iterable[Mapping[str, ChargedRound]]) -> Iterator[dict[str, ChargedRound]]:
    """``walks`` in order, merged where no two of them have a round of the same key."""
    merged: dict[str, ChargedRound] = {}
    for walk in walks:
        if merged.keys() & walk.keys() or len(merged) >= _MAX_AT_ONCE:
            yield merged
            merged = {}
        merged.update(walk)
    if merged:
        yield merged
