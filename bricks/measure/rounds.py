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

from bricks.measure.sampler import Sampler, Taken
from bricks.measure.state import alike, prevailing
from bricks.measure.statistics import Spread, median, spread

# Rounds between two looks at the precision, and how many of this run it needs to stand on.
_LOOK_EVERY = 4
_LEAST = 6


@dataclass(frozen=True, slots=True)
class StopRule:
    """When latencies are known well enough.

    ``precision`` is half the width of a model's interval, relative to its latency, that comes from
    the samples' spread; sampling stops there, but not before ``min_rounds`` and at ``max_rounds``
    in any case. What counts are undisturbed rounds of that state of the machine which prevails;
    half as many again of whatever kind end it too. The interval is
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

    ``before`` holds the states of undisturbed rounds already kept from an interrupted run.
    ``counts`` says by key how often its latency counts in the model, ``demands`` how often it does
    in the model that needs it most, once both are of one size; once where nothing is said.
    ``known_s`` is the part of the model's latency that was measured earlier.
    """

    before: Sequence[float | None] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    demands: Mapping[str, float] = field(default_factory=dict)
    known_s: float = 0.0


class Progressing:
    """How far a walk's sampling is: its undisturbed rounds, with the medians of each key."""

    def __init__(self, name: str, goal: Goal) -> None:
        self.name = name
        self.rounds = len(goal.before)
        self.runs = True
        self.content = False  # whether it is known well enough
        self.active: set[str] | None = None  # keys still sampled; None: all
        self._goal = goal
        self._quiet: list[tuple[float | None, dict[str, float]]] = [(s, {}) for s in goal.before]

    @property
    def states(self) -> list[float | None]:
        """The states in which the undisturbed rounds were taken."""
        return [state_s for state_s, _ in self._quiet]

    def quiet(self, state_s: float | None) -> int:
        """Undisturbed rounds of a state."""
        return sum(alike(s, state_s) for s in self.states)

    def fresh(self, state_s: float | None) -> int:
        """Those among them that are of this run."""
        return sum(bool(medians) and alike(s, state_s) for s, medians in self._quiet)

    def advance(self, taken: Taken) -> None:
        """Take a round into account."""
        self.rounds += 1
        rounds = taken.rounds()
        self.runs = bool(rounds)
        first = next(iter(rounds.values()), None)  # all met the same conditions
        if first is not None and not first.disturbed:
            medians = {key: median(r.samples) for key, r in rounds.items()}
            self._quiet.append((first.state_s, medians))

    def look(self, precision: float, state_s: float | None, least: int) -> None:
        """Let those keys rest that add little to the interval, and see whether it is narrow."""
        medians: dict[str, list[float]] = {}
        for round_state_s, of_round in self._quiet:
            for key, value in of_round.items():
                of_key = medians.setdefault(key, [])
                if alike(round_state_s, state_s):
                    of_key.append(value)
        if any(len(values) < least for values in medians.values()):
            # Some rested in another state, and are not known in this.
            self.active, self.content = None, False
            return
        known = {key: spread(values) for key, values in medians.items()}
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
    walks = [Progressing(name, goals.get(name, Goal())) for name in sampler.names]
    while walks:
        for walk in walks:
            if deadline is not None and time.monotonic() >= deadline:
                return False
            started = time.perf_counter()
            taken = sampler.walk(walk.name, rule.passes, walk.active)
            wall_s = time.perf_counter() - started
            if taken.samples:
                on_round(walk.name, taken, wall_s)
            walk.advance(taken)
        walks = [walk for walk in reversed(walks) if walk.runs]
        state_s = prevailing(s for walk in walks for s in walk.states)
        quiet = min((walk.quiet(state_s) for walk in walks), default=rule.max_rounds)
        finished = _finished(walks, rule, quiet, state_s)
        on_progress(1.0 if finished else quiet / rule.max_rounds)
        if finished:
            break
    return True


def _finished(
    walks: Sequence[Progressing], rule: StopRule, quiet: int, state_s: float | None
) -> bool:
    if quiet >= rule.max_rounds or max(walk.rounds for walk in walks) >= rule.most_rounds:
        return True
    if quiet < rule.min_rounds or (quiet - rule.min_rounds) % _LOOK_EVERY:
        return False
    least = min(_LEAST, rule.min_rounds)
    if any(walk.fresh(state_s) < least for walk in walks):
        return False
    for walk in walks:
        walk.look(rule.precision, state_s, least)
    return all(walk.content for walk in walks)


def _half_width_s(known: Spread) -> float:
    return (known.high_s - known.low_s) / 2
