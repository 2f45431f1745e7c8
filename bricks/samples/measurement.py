"""What measuring yields: raw samples, or a failure with its reason: two types, never both."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from bricks.samples.machine_state import SAME_STATE_FACTOR, dominant_state, same_state, states
from bricks.samples.statistics import median

# Bumped whenever samples taken before and after a change must not be mixed.
PROTOCOL = 3

# Threads that waited for longer than this share of a round were disturbed: it is about the error
# that an estimate should have.
DISTURBED_SHARE = 0.02

# Fewer rounds than this are too few to draw conclusions from, where there are others.
_MIN = 2


@dataclass(frozen=True, slots=True)
class Round:
    """One round's raw latencies in seconds, warm-ups left out, and the conditions they met.

    ``reference_s`` and ``reference_end_s`` are the latency of the reference workload just before
    and just after. ``waited_share`` says for how much of the round the worker's threads waited for
    a processor, or a hypervisor stole it. Each is None where it is not known.
    """

    samples: tuple[float, ...]
    reference_s: float | None = None
    waited_share: float | None = None
    reference_end_s: float | None = None

    @property
    def disturbed(self) -> bool:
        """Whether others kept the worker from running, or the machine changed meanwhile."""
        waited = self.waited_share is not None and self.waited_share > DISTURBED_SHARE
        return waited or not same_state(self.reference_s, self.reference_end_s)

    @property
    def latency_s(self) -> float:
        """The median of its samples, without those that something else must have held up.

        Those are further from the fastest than the machine is within one state. With few samples,
        as a round has, one of them would be half of what the round says.
        """
        max_s = SAME_STATE_FACTOR * min(self.samples)
        return median([s for s in self.samples if s <= max_s])

    @property
    def state_s(self) -> float | None:
        """The machine's state in this round, as its reference shows it."""
        if self.reference_s is None or self.reference_end_s is None:
            return self.reference_s
        return (self.reference_s + self.reference_end_s) / 2


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
    def quiet_rounds(self) -> tuple[Round, ...]:
        """The undisturbed rounds, or all if those are too few."""
        quiet = tuple(r for r in self.rounds if not r.disturbed)
        return quiet if len(quiet) >= min(_MIN, len(self.rounds)) else self.rounds

    @property
    def state_s(self) -> float | None:
        """The state of the machine in which most of it was taken."""
        return dominant_state(r.state_s for r in self.quiet_rounds)

    def used_rounds(self, state_s: float | None = None) -> tuple[Round, ...]:
        """The rounds to draw conclusions from: those of one state, where they are enough.

        That state is ``state_s``, or else the one in which most of them were taken.
        """
        near = self._near(state_s)
        return near if self._enough(near) else self._near(self.state_s)

    def known_in(self, state_s: float | None) -> bool:
        """Whether there are enough rounds of a state."""
        return self._enough(self._near(state_s))

    def latency_s(self, state_s: float | None = None) -> float:
        """The median over the rounds that are used: samples of a round are not independent."""
        return median([r.latency_s for r in self.used_rounds(state_s)])

    def _near(self, state_s: float | None) -> tuple[Round, ...]:
        wanted_s = self.state_s if state_s is None else state_s
        return tuple(r for r in self.quiet_rounds if same_state(r.state_s, wanted_s))

    def _enough(self, rounds: tuple[Round, ...]) -> bool:
        return len(rounds) >= min(_MIN, len(self.quiet_rounds))


def common_state(
    anchors: Iterable[Measurement], parts: Mapping[str, Measurement], counts: Mapping[str, int]
) -> float | None:
    """That state in which ``anchors`` are known, and most of the latency of ``parts`` is.

    ``counts`` tells how often each part counts, also against the others where negative. Of equals,
    the state with the most rounds.
    """
    anchors = list(anchors)
    every = states(r.state_s for anchor in anchors for r in anchor.quiet_rounds)
    found = [s for s in every if any(anchor.known_in(s) for anchor in anchors)] or every
    if len(found) == 1:
        return found[0]
    weights = {key: abs(counts.get(key, 1)) * part.latency_s() for key, part in parts.items()}

    def known_s(state_s: float | None) -> float:
        return sum(weights[key] for key, part in parts.items() if part.known_in(state_s))

    return max(found, key=known_s)


@dataclass(frozen=True, slots=True)
class Failure:
    """Something that could not be measured on a target, and why, in one line."""

    key: str
    reason: str
