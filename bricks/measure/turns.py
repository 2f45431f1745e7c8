"""Samples pieces that are compared in turn, until all of them are known well enough.

Within half a minute, a machine's speed drifts by more than the acceptable error of estimates;
pieces that are sampled in turn have the same drift. It must not know what a piece is, nor of the
store: the caller receives each round as it is sampled.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol, TypeVar

from bricks.measure.deadline import NEVER, Deadline
from bricks.samples.measurement import Round

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
        late = _turn(sampling, left, turn, deadline, keep)
        sampling.judge(left)
        left = [pieces for pieces in reversed(left) if pieces.active]
        sampling.show(min((pieces.share for pieces in left), default=1.0))
        after_turn()


def _turn(
    sampling: PieceSampling[Sampled],
    left: Sequence[Sampled],
    turn: int,
    deadline: Deadline,
    keep: Keep,
) -> bool:
    """Sample the pieces whose turn it is; whether the deadline has passed meanwhile."""
    most_rounds = max(pieces.min_rounds for pieces in left)
    for pieces in left:
        if deadline.passed:
            return True
        if pieces.rounds * most_rounds >= turn * pieces.min_rounds and turn <= most_rounds:
            continue
        rounds = pieces.sample()
        if rounds:
            sampling.note(rounds)
            keep(rounds)
    return False
