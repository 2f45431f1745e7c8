"""Rounds: walks that are compared are sampled in turn, until all latencies are known well enough.

Within half a minute, a machine's speed drifts by more than the error that estimates should have;
walks that are sampled in turn meet the same drift. A latency gets more samples the larger its share
is of the models that need it. It must not know of the store: the caller receives each round's
samples as they are taken.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from bricks.measure.defaults import PRECISION
from bricks.measure.importance import Importance
from bricks.measure.sampler import Sampler
from bricks.measure.walk_samples import WalkSamples
from bricks.samples.machine_state import dominant_state, same_state
from bricks.samples.measurement import Round
from bricks.samples.statistics import MIN_RANKED, half_width, median, pooled_deviation

# Rounds between two checks of the precision, after the minimum of rounds.
_CHECK_EVERY = 4

# Rounds that even the smallest share may get.
_MIN_MAX_ROUNDS = 3

# Rounds beyond the maximum that a key gets where rounds are disturbed, at least.
_MIN_EXTRA_ROUNDS = 4

# The standard deviation of a single round, relative to it: one round cannot show that itself.
_SINGLE_DEVIATION = 0.05


@dataclass(frozen=True, slots=True)
class StopRule:
    """When latencies are known well enough: one rule for whole models and for their bricks.

    A model's latency must be known to ± ``precision``, relative to it, and so must the sum of its
    bricks. A brick whose share of the model is s must then be known to ± ``precision`` / sqrt(s),
    since the variances of independent latencies add up.

    A whole latency is sampled in at least ``min_rounds`` and at most ``max_rounds``; a share s of
    it in s times as many, and up to three if need be. If all bricks are as noisy as the whole, so
    many rounds of each give their sum the precision of the whole.

    Undisturbed rounds in the dominant machine state count. Half as many rounds more than the
    maximum (or four more), of whatever kind, end sampling too. The precision is nominal: sampling
    that stops when an interval is narrow finds it narrower than it should be. So the interval is
    checked only every few rounds. ``passes`` samples are taken in each round, after the worker has
    warmed up.
    """

    precision: float = PRECISION
    min_rounds: int = 8
    max_rounds: int = 24
    passes: int = 2

    def min_rounds_for(self, share: float) -> int:
        """Rounds that a share of a latency needs at least, even if its interval is narrow."""
        return max(1, math.ceil(self.min_rounds * share))

    def max_rounds_for(self, share: float) -> int:
        """Undisturbed rounds that a share gets at most, even if its interval is wide."""
        return min(self.max_rounds, max(_MIN_MAX_ROUNDS, math.ceil(self.max_rounds * share)))

    def given_up(self, rounds: int, share: float) -> bool:
        """Whether so many rounds, disturbed or not, end the sampling of a share."""
        max_rounds = self.max_rounds_for(share)
        return rounds >= max_rounds + max(_MIN_EXTRA_ROUNDS, max_rounds // 2)

    def met(self, medians: Sequence[float], share: float, deviation: float) -> bool:
        """Whether rounds with these ``medians`` are enough for a share of a model's latency.

        ``medians`` are in seconds. ``deviation`` is the standard deviation of rounds of such
        latencies, relative to their median.
        """
        count, min_rounds = len(medians), self.min_rounds_for(share)
        if count >= self.max_rounds_for(share):
            return True
        if count < min_rounds or (count >= MIN_RANKED and (count - min_rounds) % _CHECK_EVERY):
            return False
        if count == 1:
            deviation = max(deviation, _SINGLE_DEVIATION)
        width_s = half_width(medians, deviation)
        return width_s * math.sqrt(share) <= self.precision * median(medians)


@dataclass(frozen=True, slots=True)
class Goal:
    """The purpose of a walk's samples, which decides how many are needed.

    ``before`` holds the rounds of each key that were kept from an interrupted run. ``shares`` gives
    the share that a latency has of the models that need it; None: each is a whole latency. Each key
    gets ``least`` rounds, even if it needs fewer.
    """

    before: Mapping[str, Sequence[Round]] = field(default_factory=dict)
    shares: Importance | None = None
    least: int = 1


class WalkProgress:
    """The progress of sampling a walk: the undisturbed rounds of each key, with their medians.

    ``rounds`` counts the rounds taken, and ``min_rounds`` is how many it takes at least, as far as
    is known. ``runs`` is false where no step runs any more. ``active`` holds the keys that are
    still sampled; None: all.
    """

    def __init__(self, name: str, goal: Goal, rule: StopRule) -> None:
        self.name = name
        self.rounds = 0
        self.runs = True
        self.active: set[str] | None = None
        self.min_rounds = 1
        self._goal = goal
        self._rule = rule
        self._taken: Counter[str] = Counter()
        self._undisturbed: dict[str, list[tuple[float | None, float]]] = {}
        self._before = {key: [r for r in of if not r.disturbed] for key, of in goal.before.items()}

    @property
    def complete(self) -> bool:
        """Whether everything is known well enough."""
        return self.active is not None and not self.active

    @property
    def known(self) -> set[str]:
        """The keys that are known well enough."""
        return set() if self.active is None else self._undisturbed.keys() - self.active

    @property
    def known_share(self) -> float:
        """The share of its keys that are known well enough."""
        return 0.0 if self.active is None else 1 - len(self.active) / max(1, len(self._undisturbed))

    @property
    def states(self) -> list[float | None]:
        """The states in which the undisturbed rounds were taken."""
        return [state_s for of_key in self._undisturbed.values() for state_s, _ in of_key]

    def add(self, taken: WalkSamples) -> None:
        """Add a round."""
        self.rounds += 1
        rounds = taken.rounds()
        self.runs = bool(rounds)
        self._taken.update(rounds.keys())
        for key, found in rounds.items():
            if key not in self._undisturbed:
                before = self._before.get(key, ())
                self._undisturbed[key] = [(r.state_s, r.latency_s) for r in before]
            if not found.disturbed:
                self._undisturbed[key].append((found.state_s, found.latency_s))

    def update_active(self, state_s: float | None) -> None:
        """Stop sampling the keys that are known well enough in this machine state."""
        medians = {
            key: [value for round_state_s, value in of_key if same_state(round_state_s, state_s)]
            for key, of_key in self._undisturbed.items()
        }
        known = {key: values for key, values in medians.items() if values}
        deviation = pooled_deviation(known.values())
        share_of = self._shares()
        self.active = {
            key
            for key, share in share_of.items()
            if not self._rule.given_up(self._taken[key], share)
            and (
                self._taken[key] < self._goal.least
                or key not in known
                or not self._rule.met(known[key], share, deviation)
            )
        }
        self.min_rounds = max(
            map(self._rule.min_rounds_for, share_of.values()), default=self.min_rounds
        )

    def _shares(self) -> dict[str, float]:
        """The share that each key has of a model; 0 where it has no undisturbed round yet."""
        if self._goal.shares is None:
            return dict.fromkeys(self._undisturbed, 1.0)
        latencies_s = {
            key: median([latency_s for _, latency_s in of_key])
            for key, of_key in self._undisturbed.items()
            if of_key
        }
        found = self._goal.shares.of(latencies_s)
        return {
            key: found.get(key, 1.0 if key in latencies_s else 0.0) for key in self._undisturbed
        }


def sample_in_turn(
    sampler: Sampler,
    rule: StopRule,
    *,
    goals: Mapping[str, Goal],
    deadline: float | None,
    on_round: Callable[[str, WalkSamples, float], None],
    on_progress: Callable[[float], None] = lambda share: None,
) -> set[str]:
    """Sample the sampler's walks in turn, until ``deadline``; the keys known well enough then.

    Each walk ends when it is known well enough. The rounds of a walk that needs few are spread over
    as much time as those of others. ``on_round`` receives a walk's name, its samples, and the wall
    time in seconds; ``on_progress`` the share that is done, between 0 and 1.
    """
    every = [WalkProgress(name, goals.get(name, Goal()), rule) for name in sampler.names]
    walks, turn, late = every, 0, False
    while walks and not late:
        turn += 1
        most_rounds = max(walk.min_rounds for walk in walks)
        for walk in walks:
            late = deadline is not None and time.monotonic() >= deadline
            if late:
                break
            if walk.rounds * most_rounds >= turn * walk.min_rounds and turn <= most_rounds:
                continue
            started = time.perf_counter()
            taken = sampler.walk(walk.name, rule.passes, walk.active)
            wall_s = time.perf_counter() - started
            if taken.samples:
                on_round(walk.name, taken, wall_s)
            walk.add(taken)
        state_s = dominant_state(s for walk in walks for s in walk.states)
        for walk in walks:
            walk.update_active(state_s)
        walks = [walk for walk in reversed(walks) if walk.runs and not walk.complete]
        on_progress(min((_done(walk, rule) for walk in walks), default=1.0))
    return {key for walk in every for key in walk.known}


def _done(walk: WalkProgress, rule: StopRule) -> float:
    return max(walk.known_share, min(1.0, walk.rounds / rule.max_rounds))
