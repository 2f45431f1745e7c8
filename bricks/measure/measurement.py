"""What measuring yields: raw samples, or a failure with its reason: two types, never both."""

from __future__ import annotations

from dataclasses import dataclass

# Bumped whenever samples taken before and after a change must not be mixed.
PROTOCOL = 2

# Threads that waited for longer than this share of a round were disturbed: it is about the error
# that an estimate should have.
DISTURBED_SHARE = 0.02

# Fewer undisturbed rounds than this are too few to leave the others out.
_LEAST_QUIET = 4


@dataclass(frozen=True, slots=True)
class Round:
    """One round's raw latencies in seconds, warm-ups left out, and the conditions they met.

    ``reference_s`` is the latency of the reference workload in this round. ``waited_share`` says
    for how much of the round the worker's threads waited for a processor, or a hypervisor stole
    it. Either is None where it is not known.
    """

    samples: tuple[float, ...]
    reference_s: float | None = None
    waited_share: float | None = None

    @property
    def disturbed(self) -> bool:
        """Whether others kept the worker from running for a notable part of the round."""
        return self.waited_share is not None and self.waited_share > DISTURBED_SHARE


@dataclass(frozen=True, slots=True)
class Measurement:
    """Raw latencies of something on a target, round by round.

    ``wall_s`` is all the time spent on it: creating its session, warming up, sampling.
    """

    key: str
    rounds: tuple[Round, ...]
    wall_s: float

    @property
    def samples(self) -> tuple[float, ...]:
        """All samples in seconds, in the order they were taken."""
        return tuple(s for r in self.rounds for s in r.samples)

    @property
    def used_rounds(self) -> tuple[Round, ...]:
        """The rounds to draw conclusions from: undisturbed ones, or all if those are too few."""
        quiet = tuple(r for r in self.rounds if not r.disturbed)
        return quiet if len(quiet) >= min(_LEAST_QUIET, len(self.rounds)) else self.rounds


@dataclass(frozen=True, slots=True)
class Failure:
    """Something that could not be measured on a target, and why, in one line."""

    key: str
    reason: str
