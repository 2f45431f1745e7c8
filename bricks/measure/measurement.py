"""What measuring yields: raw samples, or a failure with its reason: two types, never both."""

from __future__ import annotations

from dataclasses import dataclass

# Bumped whenever samples taken before and after a change must not be mixed.
PROTOCOL = 1


@dataclass(frozen=True, slots=True)
class Measurement:
    """Raw latencies in seconds of something on a target, one tuple per round, warm-ups left out.

    ``wall_s`` is all the time spent on it: creating its session, warming up, sampling.
    """

    key: str
    rounds: tuple[tuple[float, ...], ...]
    wall_s: float

    @property
    def samples(self) -> tuple[float, ...]:
        """All samples, in the order they were taken."""
        return tuple(s for r in self.rounds for s in r)


@dataclass(frozen=True, slots=True)
class Failure:
    """Something that could not be measured on a target, and why, in one line."""

    key: str
    reason: str
