"""Buffers rounds, so that several are put into the store at once: each time costs milliseconds.

Each round is charged with the wall time that it took, and the first of a key with its share of
the time that loading and rehearsing took. It must not know where rounds are kept.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping

from bricks.measure.sampler import Sampler
from bricks.measure.walk_samples import WalkSamples
from bricks.samples.measurement import Round

# A round and the wall time in seconds that it is charged with.
ChargedRound = tuple[Round, float]

# Seconds for which a round is buffered at most, as long as more rounds come.
_MAX_AGE_S = 0.25
# Rounds that are put into the store at once, at most: where the disk is full, all are lost.
_MAX_AT_ONCE = 10


class RoundBuffer:
    """Rounds that are not kept yet.

    ``keep`` receives rounds by key. ``preparation_s`` maps keys to the seconds that preparing them
    took (see :func:`preparation_by_key`).
    """

    def __init__(
        self,
        keep: Callable[[Mapping[str, ChargedRound]], None],
        preparation_s: Mapping[str, float],
    ) -> None:
        self._keep = keep
        self._preparation_s = dict(preparation_s)
        self._walks: list[dict[str, ChargedRound]] = []
        self._kept_at = time.monotonic()

    def add(self, taken: WalkSamples, wall_s: float) -> None:
        """Add the round that a walk of ``wall_s`` seconds took of each of its keys."""
        rounds = taken.rounds()
        sampled_s = sum(sum(found.host_s) for found in rounds.values()) or 1.0
        self._walks.append(
            {
                key: (
                    found,
                    wall_s * sum(found.host_s) / sampled_s + self._preparation_s.pop(key, 0.0),
                )
                for key, found in rounds.items()
            }
        )
        if time.monotonic() - self._kept_at >= _MAX_AGE_S:
            self.flush()

    def flush(self) -> None:
        """Have all rounds kept."""
        for rounds in coalesced(self._walks):
            self._keep(rounds)
        self._walks.clear()
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


def preparation_by_key(wall_s: float, sampler: Sampler, name: str) -> dict[str, float]:
    """The seconds of ``wall_s``, which preparing a walk took, that each timed key is charged with.

    Each key is charged with its own loading. The lead-in, placing and rehearsing are divided
    equally.
    """
    keys = {step.key for step in sampler.steps(name) if step.timed}
    own_s = {key: sampler.load_s.get(key, 0.0) for key in keys}
    return {key: own_s[key] + max(0.0, wall_s - sum(own_s.values())) / len(keys) for key in keys}
