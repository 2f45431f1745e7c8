"""Conditions of sampling: load of other processes, noisy rounds, bricks that were sampled again.

Results of campaigns, benches and fleets report them in this one type. Must not know what is
measured.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """Conditions of sampling; results that report them inherit from this type.

    ``foreign_cores`` is how many cores other processes kept busy during the measurement, which
    makes latencies too high; None if nothing was timed. ``disturbed_rounds`` counts those of the
    ``rounds`` in which other processes delayed the worker;
    ``throttled_rounds`` those in which the clock of a device was lowered.
    ``remeasured`` are the keys of bricks that had been measured before. ``eviction_short`` is
    whether memory was too small to evict weights from the caches as far as in their models.
    ``separate`` are the keys of bricks that ran in calls of their own, because the runtime could
    not run them in one call with their neighbours.
    """

    foreign_cores: float | None = None
    rounds: int = 0
    disturbed_rounds: int = 0
    throttled_rounds: int = 0
    remeasured: frozenset[str] = frozenset()
    eviction_short: bool = False
    separate: frozenset[str] = frozenset()

    @property
    def remeasured_bricks(self) -> int:
        """The number of bricks that were measured again."""
        return len(self.remeasured)

    @property
    def sampling_fields(self) -> dict[str, Any]:
        """The fields of this type, to construct another result with."""
        return {field.name: getattr(self, field.name) for field in fields(Sampling)}


def combined(parts: Iterable[Sampling]) -> Sampling:
    """Several samplings merged: the highest load, the sums, the unions."""
    every = list(parts)
    loads = [part.foreign_cores for part in every if part.foreign_cores is not None]
    return Sampling(
        foreign_cores=max(loads, default=None),
        rounds=sum(part.rounds for part in every),
        disturbed_rounds=sum(part.disturbed_rounds for part in every),
        throttled_rounds=sum(part.throttled_rounds for part in every),
        remeasured=frozenset[str]().union(*(part.remeasured for part in every)),
        eviction_short=any(part.eviction_short for part in every),
        separate=frozenset[str]().union(*(part.separate for part in every)),
    )
