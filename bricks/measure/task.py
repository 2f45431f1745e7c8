"""A task: walks that are sampled in turn, and the claims in the store that they are sampled for.

It must not know how walks are run, nor where their rounds are kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from bricks.measure.rounds import Goal, StopRule
from bricks.measure.walk import Walk, alone
from bricks.store import Claim


@dataclass(frozen=True, slots=True)
class Task:
    """Walks by name, and the claims that they complete.

    ``what`` names the task in messages. ``deadline`` is a time of the monotonic clock in seconds;
    None: there is none. ``goals`` are of walks, by name. ``span`` is where in the progress of the
    whole campaign the task begins and ends, between 0 and 1.
    """

    what: str
    walks: Mapping[str, Walk]
    claims: Sequence[Claim]
    rule: StopRule
    deadline: float | None
    goals: Mapping[str, Goal] = field(default_factory=dict)
    span: tuple[float, float] = (0.0, 0.0)

    @property
    def claimed(self) -> set[str]:
        """Keys that are claimed; other keys that are timed beside them are measured again."""
        return {claim.key for claim in self.claims}

    def share_of_all(self, share: float) -> float:
        """The progress of the whole campaign when this ``share`` of the task is done."""
        begin, end = self.span
        return begin + (end - begin) * share

    def alone(self, key: str) -> Task:
        """The part of the task that is about ``key``, with nothing else loaded."""
        walks = {
            name: alone(walk, key)
            for name, walk in self.walks.items()
            if any(step.key == key and step.timed for step in walk.steps)
        }
        claims = [claim for claim in self.claims if claim.key == key]
        return replace(self, walks=walks, claims=claims, span=(self.span[1], self.span[1]))
