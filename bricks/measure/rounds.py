"""Rounds: everything that is compared is sampled in turn, until it is known well enough.

A machine's speed drifts by more within half a minute than the error that estimates should have;
what is sampled alternately, from the first round to the last, meets the same drift. Samples are
spent where they tell most: a brick stops when what it adds to the interval of the models that need
it is small. Knows nothing of the store: each round's samples are handed on as they come.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from bricks.measure.measurement import DISTURBED_SHARE
from bricks.measure.sampler import Sampler, Taken
from bricks.measure.statistics import Spread, median, spread

# Rounds between two looks at the precision, and how many of this run it needs to stand on.
_LOOK_EVERY = 4
_LEAST = 6


@dataclass(frozen=True, slots=True)
class StopRule:
    """When latencies are known well enough.

    ``precision`` is half the width of a model's interval, relative to its latency, that comes from
    the samples' spread; sampling stops there, but not before ``min_rounds`` and at ``max_rounds``
    in any case. Disturbed rounds do not count, but half as many again end it too. The interval is
    nominal: sampling that stops when it is narrow finds it narrower than it should be. So it is
    looked at only every few rounds. ``passes`` samples are taken in each round, after one warm-up.
    """

    precision: float = 0.01
    min_rounds: int = 8
    max_rounds: int = 24
    passes: int = 2

    @property
    def most_rounds(self) -> int:
        """Rounds after which sampling ends however disturbed they were."""
        return self.max_rounds + self.max_rounds // 2


@dataclass(frozen=True, slots=True)
class Goal:
    """What a walk's samples are for.

    ``rounds_before`` counts rounds already kept from an interrupted run. ``counts`` says by key how
    often its latency counts in the model, ``demands`` how often it does in the model that needs it
    most, once both are of one size; once where nothing is said. ``known_s`` is the part of the
    model's latency that was measured earlier.
    """

    rounds_before: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)
    demands: Mapping[str, float] = field(default_factory=dict)
    known_s: float = 0.0


class Progressing:
    """How far a walk's sampling is: medians of its undisturbed rounds, by key."""

    def __init__(self, name: str, goal: Goal) -> None:
        self.name = name
        self.rounds = self.quiet = goal.rounds_before
        self.runs = True
        self.content = False  # whether it is known well enough
        self.active: set[str] | None = None  # keys still sampled; None: all
        self._goal = goal
        self._medians: dict[str, list[float]] = {}

    @property
    def fresh(self) -> int:
        """Undisturbed rounds of this run."""
        return self.quiet - self._goal.rounds_before

    def advance(self, taken: Taken) -> None:
        """Take a round into account."""
        self.rounds += 1
        self.runs = bool(taken.samples)
        if taken.waited_share is not None and taken.waited_share > DISTURBED_SHARE:
            return
        self.quiet += 1
        for key, samples in taken.samples.items():
            self._medians.setdefault(key, []).append(median(samples))

    def look(self, precision: float) -> None:
        """Let those keys rest that add little to the interval, and see whether it is narrow."""
        known = {key: spread(values) for key, values in self._medians.items()}
        counts, demands = self._goal.counts, self._goal.demands
        total_s = self._goal.known_s + sum(counts.get(k, 1) * s.median_s for k, s in known.items())
        # Widths are added, not their squares: a machine's drift moves all bricks together.
        widths = {key: demands.get(key, 1.0) * _half_width_s(s) for key, s in known.items()}
        allowed_s = precision * total_s
        self.content = sum(widths.values()) <= allowed_s
        resting_s = 0.0
        for key in sorted(widths, key=lambda k: widths[k]):
            resting_s += widths[key]
            if resting_s > allowed_s / 2:
                break
            if self.active is None:
                self.active = set(known)
            if len(self.active) > 1:  # the walk goes on as long as others do
                self.active.discard(key)


def sample_in_turn(
    sampler: Sampler,
    rule: StopRule,
    *,
    goals: Mapping[str, Goal],
    deadline: float | None,
    on_round: Callable[[str, Taken, float], None],
    on_progress: Callable[[float], None] = lambda share: None,
) -> bool:
    """Sample the sampler's walks in turn; whether all were finished before ``deadline``.

    They end together: none goes on without the others. ``on_round`` receives a walk's name, what
    was taken, and the wall seconds it took.
    """
    states = [Progressing(name, goals.get(name, Goal())) for name in sampler.names]
    while states:
        for state in states:
            if deadline is not None and time.monotonic() >= deadline:
                return False
            started = time.perf_counter()
            taken = sampler.walk(state.name, rule.passes, state.active)
            wall_s = time.perf_counter() - started
            if taken.samples:
                on_round(state.name, taken, wall_s)
            state.advance(taken)
        states = [state for state in reversed(states) if state.runs]
        finished = _finished(states, rule)
        on_progress(1.0 if finished else min(s.quiet for s in states) / rule.max_rounds)
        if finished:
            break
    return True


def _finished(states: Sequence[Progressing], rule: StopRule) -> bool:
    quiet = min((state.quiet for state in states), default=rule.max_rounds)
    if quiet >= rule.max_rounds or max(state.rounds for state in states) >= rule.most_rounds:
        return True
    if quiet < rule.min_rounds or (quiet - rule.min_rounds) % _LOOK_EVERY:
        return False
    enough = min(_LEAST, rule.min_rounds)
    if any(state.fresh < enough for state in states):
        return False
    for state in states:
        state.look(rule.precision)
    return all(state.content for state in states)


def _half_width_s(known: Spread) -> float:
    return (known.high_s - known.low_s) / 2
