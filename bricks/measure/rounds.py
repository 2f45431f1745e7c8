"""Rounds: everything that is compared is sampled in turn, until it is known well enough.

A machine's speed drifts by more within half a minute than the error that estimates should have;
what is sampled alternately meets the same drift. Samples are spent where they tell most: how well a
latency must be known follows from its share of the models that need it. Knows nothing of the
store: each round's samples are handed on as they come.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from bricks._version import warn_of_renaming
from bricks.measure.defaults import PRECISION
from bricks.measure.importance import Importance
from bricks.measure.sampler import Sampler
from bricks.measure.walk_samples import WalkSamples
from bricks.samples.machine_state import dominant_state, same_state
from bricks.samples.measurement import Round
from bricks.samples.statistics import MIN_RANKED, half_width, median, pooled_deviation

# Rounds between two looks at the precision, once there are so many that must be there.
_LOOK_EVERY = 4

# Rounds that even what hardly counts may get.
_FEW = 3

# Rounds more than there may be that anything gets where they are disturbed.
_PATIENCE = 4

# By how much, relative to it, a single round is expected to be off: it cannot show that itself.
_SINGLE_DEVIATION = 0.05


@dataclass(frozen=True, slots=True)
class StopRule:
    """When latencies are known well enough: one rule for whole models and for their bricks.

    A model's latency must be known to ± ``precision``, relative to it; the samples say how well it
    is. So must the sum of its bricks. Of each of these, a share s of the model, that takes
    ± ``precision`` / sqrt(s), since what samples leave open adds up as squares do.

    A whole latency is sampled in ``min_rounds`` at least and ``max_rounds`` at most, a share s of
    it in s times as many, though in three if need be: were all as noisy as the whole, the sum of so
    many would be known as well as that. What counts are undisturbed rounds of that state of the
    machine which prevails; half as many again (or four more) of whatever kind end it too. The
    precision is nominal: sampling that stops when an interval is narrow finds it narrower than it
    should be. So it is looked at only every few rounds.
    ``passes`` samples are taken in each round, after the worker has warmed up.
    """

    precision: float = PRECISION
    min_rounds: int = 8
    max_rounds: int = 24
    passes: int = 2

    def min_rounds_for(self, share: float) -> int:
        """Rounds that a share of a model's latency needs, however narrow its interval is."""
        return max(1, math.ceil(self.min_rounds * share))

    def max_rounds_for(self, share: float) -> int:
        """Rounds that it gets, however wide its interval is."""
        return min(self.max_rounds, max(_FEW, math.ceil(self.max_rounds * share)))

    def least_rounds(self, share: float) -> int:
        """Now called :meth:`min_rounds_for`."""
        warn_of_renaming("StopRule.least_rounds", "min_rounds_for")
        return self.min_rounds_for(share)

    def most_rounds(self, share: float) -> int:
        """Now called :meth:`max_rounds_for`."""
        warn_of_renaming("StopRule.most_rounds", "max_rounds_for")
        return self.max_rounds_for(share)

    def given_up(self, rounds: int, share: float) -> bool:
        """Whether so many rounds are too many, however disturbed they were."""
        most = self.max_rounds_for(share)
        return rounds >= most + max(_PATIENCE, most // 2)

    def met(self, medians: Sequence[float], share: float, deviation: float) -> bool:
        """Whether rounds with these ``medians`` are enough for a share of a model's latency.

        ``deviation`` is how far rounds of such latencies are apart, relative to their median.
        """
        count, least = len(medians), self.min_rounds_for(share)
        if count >= self.max_rounds_for(share):
            return True
        if count < least or (count >= MIN_RANKED and (count - least) % _LOOK_EVERY):
            return False
        if count == 1:
            deviation = max(deviation, _SINGLE_DEVIATION)
        width_s = half_width(medians, deviation)
        return width_s * math.sqrt(share) <= self.precision * median(medians)


@dataclass(frozen=True, slots=True)
class Goal:
    """What a walk's samples are for.

    ``before`` holds the rounds of each key that were kept from an interrupted run. ``shares`` tells
    what a latency is of the models that need it; all of one, where nothing is said.
    """

    before: Mapping[str, Sequence[Round]] = field(default_factory=dict)
    shares: Importance | None = None


class Progressing:
    """How far a walk's sampling is: the undisturbed rounds of each key, with their medians."""

    def __init__(self, name: str, goal: Goal, rule: StopRule) -> None:
        self.name = name
        self.rounds = 0
        self.runs = True
        self.active: set[str] | None = None  # keys still sampled; None: all
        self.least = 1  # rounds that it takes at least, as far as is known
        self._goal = goal
        self._rule = rule
        self._taken: Counter[str] = Counter()
        self._quiet: dict[str, list[tuple[float | None, float]]] = {}
        self._before = {key: [r for r in of if not r.disturbed] for key, of in goal.before.items()}

    @property
    def content(self) -> bool:
        """Whether everything is known well enough."""
        return self.active is not None and not self.active

    @property
    def known(self) -> set[str]:
        """The keys that are known well enough."""
        return set() if self.active is None else self._quiet.keys() - self.active

    @property
    def resting_share(self) -> float:
        """The share of its keys that is known well enough."""
        return 0.0 if self.active is None else 1 - len(self.active) / max(1, len(self._quiet))

    @property
    def states(self) -> list[float | None]:
        """The states in which the undisturbed rounds were taken."""
        return [state_s for of_key in self._quiet.values() for state_s, _ in of_key]

    def advance(self, taken: WalkSamples) -> None:
        """Take a round into account."""
        self.rounds += 1
        rounds = taken.rounds()
        self.runs = bool(rounds)
        self._taken.update(rounds.keys())
        for key, found in rounds.items():
            if key not in self._quiet:
                before = self._before.get(key, ())
                self._quiet[key] = [(r.state_s, r.latency_s) for r in before]
            if not found.disturbed:
                self._quiet[key].append((found.state_s, found.latency_s))

    def look(self, state_s: float | None) -> None:
        """Let those keys rest that are known well enough in this state of the machine."""
        medians = {
            key: [value for round_state_s, value in of_key if same_state(round_state_s, state_s)]
            for key, of_key in self._quiet.items()
        }
        known = {key: values for key, values in medians.items() if values}
        deviation = pooled_deviation(known.values())
        share_of = self._shares()
        self.active = {
            key
            for key, share in share_of.items()
            if not self._rule.given_up(self._taken[key], share)
            and (key not in known or not self._rule.met(known[key], share, deviation))
        }
        self.least = max(map(self._rule.min_rounds_for, share_of.values()), default=self.least)

    def _shares(self) -> dict[str, float]:
        """What each key is of a model, by whatever was seen of it: nothing, if nothing was."""
        if self._goal.shares is None:
            return dict.fromkeys(self._quiet, 1.0)
        seen = {
            key: median([s for _, s in of_key]) for key, of_key in self._quiet.items() if of_key
        }
        found = self._goal.shares.of(seen)
        return {key: found.get(key, 1.0 if key in seen else 0.0) for key in self._quiet}


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

    Each ends when it is known well enough. One that needs fewer rounds than another spreads them
    over as much time. ``on_round`` receives a walk's name, what was taken, and the wall seconds it
    took.
    """
    every = [Progressing(name, goals.get(name, Goal()), rule) for name in sampler.names]
    walks, turn, late = every, 0, False
    while walks and not late:
        turn += 1
        longest = max(walk.least for walk in walks)
        for walk in walks:
            late = deadline is not None and time.monotonic() >= deadline
            if late:
                break
            if walk.rounds * longest >= turn * walk.least and turn <= longest:
                continue
            started = time.perf_counter()
            taken = sampler.walk(walk.name, rule.passes, walk.active)
            wall_s = time.perf_counter() - started
            if taken.samples:
                on_round(walk.name, taken, wall_s)
            walk.advance(taken)
        state_s = dominant_state(s for walk in walks for s in walk.states)
        for walk in walks:
            walk.look(state_s)
        walks = [walk for walk in reversed(walks) if walk.runs and not walk.content]
        on_progress(min((_done(walk, rule) for walk in walks), default=1.0))
    return {key for walk in every for key in walk.known}


def _done(walk: Progressing, rule: StopRule) -> float:
    return max(walk.resting_share, min(1.0, walk.rounds / rule.max_rounds))
