"""What a campaign reports: its progress, and its result.

Must not know how keys were measured, nor who shows any of it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from bricks.samples.measurement import Failure, Round, Sampling


@dataclass(frozen=True, slots=True)
class CampaignResult(Sampling):
    """The result of a campaign.

    ``measured`` has the newly measured keys, by model digest. ``unfinished`` are the keys for which
    the budget was too short.
    """

    measured: Mapping[str, frozenset[str]]
    failures: tuple[Failure, ...]
    unfinished: frozenset[str]


@dataclass(slots=True)
class Tally:
    """The result of a campaign that is still running; see :class:`CampaignResult`."""

    measured: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    failures: list[Failure] = field(default_factory=list)
    rounds: int = 0
    disturbed_rounds: int = 0
    throttled_rounds: int = 0
    remeasured: set[str] = field(default_factory=set)
    eviction_short: bool = False
    separate: set[str] = field(default_factory=set)

    def add_round(self, rounds: Iterable[Round]) -> None:
        """Count the ``rounds`` of one walk."""
        every = list(rounds)
        self.rounds += 1
        self.disturbed_rounds += any(one.disturbed for one in every)
        self.throttled_rounds += any(one.throttled for one in every)

    def result(self, unfinished: Collection[str], foreign_cores: float | None) -> CampaignResult:
        """The result, now that the campaign has ended."""
        return CampaignResult(
            {digest: frozenset(keys) for digest, keys in self.measured.items()},
            tuple(self.failures),
            frozenset(unfinished),
            foreign_cores=foreign_cores,
            rounds=self.rounds,
            disturbed_rounds=self.disturbed_rounds,
            throttled_rounds=self.throttled_rounds,
            remeasured=frozenset(self.remeasured),
            eviction_short=self.eviction_short,
            separate=frozenset(self.separate),
        )


# Receives the name of the work in progress, and the share that is done, between 0 and 1.
Progress = Callable[[str, float], None]


class Wait(str):
    """A name of work in progress that is a wait for ``others``: processes, for people.

    It may last, so it is worth a line also where no progress is shown.
    """

    others: str

    def __new__(cls, others: str, why: str) -> Wait:
        """``waiting for`` the processes ``others``, and ``why``."""
        made = super().__new__(cls, f"waiting for {others}{why}")
        made.others = others
        return made
