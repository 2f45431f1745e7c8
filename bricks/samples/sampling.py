"""How sampling went: what disturbed it, and what had to be sampled again.

What a campaign, a bench and a fleet each say of their measuring, in one type. Must not know what
was measured.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How sampling went; results that report it are of this type too.

    ``foreign_cores`` is how many cores other processes kept busy meanwhile, which makes latencies
    too high; None if nothing was timed. ``disturbed_rounds`` of the ``rounds`` taken are those in
    which the worker itself was kept from running, or the machine changed. ``remeasured`` are the
    keys of bricks that had been measured before, but in another state of the machine.
    ``eviction_short``: memory was too scarce to make weights as cold as in their models.
    """

    foreign_cores: float | None = None
    rounds: int = 0
    disturbed_rounds: int = 0
    remeasured: frozenset[str] = frozenset()
    eviction_short: bool = False

    @property
    def remeasured_bricks(self) -> int:
        """How many bricks were measured again."""
        return len(self.remeasured)

    @property
    def sampling_fields(self) -> dict[str, Any]:
        """The fields of this type alone, to hand them on to another result."""
        return {field.name: getattr(self, field.name) for field in fields(Sampling)}


def combined(parts: Iterable[Sampling]) -> Sampling:
    """Several samplings as if they had been one: the heaviest load, the sums, the unions."""
    every = list(parts)
    loads = [part.foreign_cores for part in every if part.foreign_cores is not None]
    return Sampling(
        foreign_cores=max(loads, default=None),
        rounds=sum(part.rounds for part in every),
        disturbed_rounds=sum(part.disturbed_rounds for part in every),
        remeasured=frozenset[str]().union(*(part.remeasured for part in every)),
        eviction_short=any(part.eviction_short for part in every),
    )
