"""Buffers rounds, so that several are stored in one transaction, which costs milliseconds.

It must not know where rounds are stored.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bricks.measure.turns import ChargedRound

# Seconds for which a round is buffered at most, as long as more rounds come.
_MAX_AGE_S = 0.25
# Rounds that are stored at once, at most: all are lost if the disk is full.
_MAX_AT_ONCE = 10


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
