"""Walks as pieces that are sampled in turn: how far each of their keys is known.

It must not know how a walk is run, nor where its rounds are kept.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from bricks.measure.rounds import WHOLE_LATENCIES, SamplingGoal, StopRule
from bricks.measure.sampler import Sampler
from bricks.measure.turns import ChargedRound
from bricks.measure.walk_samples import WalkSamples
from bricks.samples.machine_state import dominant_state, same_state
from bricks.samples.measurement import Round
from bricks.samples.statistics import median, pooled_deviation


class WalkSampling:
    """The walks of a sampler in turn, each until ``rule`` is met for its goal.

    ``on_round`` receives the rounds that a walk took, by key; ``on_turn`` the share that is done.
    """

    def __init__(
        self,
        sampler: Sampler,
        rule: StopRule,
        goals: Mapping[str, SamplingGoal],
        *,
        on_round: Callable[[Mapping[str, Round]], None] = lambda rounds: None,
        on_turn: Callable[[float], None] = lambda share: None,
    ) -> None:
        preparation_s = sampler.preparation_s
        self.every = [
            WalkPieces(sampler, name, rule, goals.get(name, WHOLE_LATENCIES), preparation_s)
            for name in sampler.names
        ]
        self._on_round, self._on_turn = on_round, on_turn

    def note(self, rounds: Mapping[str, ChargedRound]) -> None:
        """Pass on the rounds that a walk took."""
        self._on_round({key: taken for key, (taken, _) in rounds.items()})

    def judge(self, left: Sequence[WalkPieces]) -> None:
        """Stop sampling what is known well enough in the state that most rounds were taken in."""
        state_s = dominant_state(state_s for pieces in left for state_s in pieces.states)
        for pieces in left:
            pieces.update_active(state_s)

    def show(self, share: float) -> None:
        """Pass on the share that is done."""
        self._on_turn(share)


class WalkPieces:
    """The keys that a walk times: their undisturbed rounds so far, with the median of each.

    ``active_keys`` are still sampled; None: all. ``preparation_s`` maps keys to the seconds that
    preparing them took, which their first rounds are charged with.
    """

    def __init__(
        self,
        sampler: Sampler,
        name: str,
        rule: StopRule,
        goal: SamplingGoal = WHOLE_LATENCIES,
        preparation_s: dict[str, float] | None = None,
    ) -> None:
        self.rounds = 0
        self.min_rounds = 1
        self.active_keys: set[str] | None = None
        self._sampler, self._name = sampler, name
        self._preparation_s = {} if preparation_s is None else preparation_s
        self._runs = True  # whether any of its steps does
        self._goal = goal
        self._rule = rule
        self._taken: Counter[str] = Counter()
        self._undisturbed: dict[str, list[tuple[float | None, float]]] = {}
        self._before = {key: [r for r in of if not r.disturbed] for key, of in goal.before.items()}

    def sample(self) -> dict[str, ChargedRound]:
        """Take a round of each key that is not known well enough."""
        started = time.perf_counter()
        taken = self._sampler.walk(self._name, self._rule.passes, self.active_keys)
        wall_s = time.perf_counter() - started
        self.add(taken)
        return _charged(taken, wall_s, self._preparation_s)

    @property
    def active(self) -> bool:
        """Whether some step runs of which not all is known well enough."""
        return self._runs and (self.active_keys is None or bool(self.active_keys))

    @property
    def known(self) -> set[str]:
        """The keys that are known well enough, and have not failed since."""
        if self.active_keys is None:
            return set()
        failed = (
            self._sampler.failed_keys.failures.keys()
            | self._sampler.failed_keys.out_of_memory.keys()
        )
        return self._undisturbed.keys() - self.active_keys - failed

    @property
    def failures(self) -> Mapping[str, str]:
        """Keys of all walks of the sampler that cannot be measured, with the reasons."""
        return self._sampler.failed_keys.failures

    @property
    def share(self) -> float:
        """The share that is done, between 0 and 1."""
        known = 0.0
        if self.active_keys is not None:
            known = 1 - len(self.active_keys) / max(1, len(self._undisturbed))
        return max(known, min(1.0, self.rounds / self._rule.max_rounds))

    @property
    def states(self) -> list[float | None]:
        """The states in which the undisturbed rounds were taken."""
        return [state_s for of_key in self._undisturbed.values() for state_s, _ in of_key]

    def add(self, taken: WalkSamples) -> None:
        """Add a round."""
        self.rounds += 1
        rounds = taken.rounds()
        self._runs = bool(rounds)
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
        self.active_keys = {
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


def _charged(
    taken: WalkSamples, wall_s: float, preparation_s: dict[str, float]
) -> dict[str, ChargedRound]:
    """The rounds of a walk of ``wall_s`` seconds, each charged with its share of them.

    The first round of a key is also charged with the seconds that preparing it took.
    """
    rounds = taken.rounds()
    sampled_s = sum(sum(found.host_s) for found in rounds.values()) or 1.0
    return {
        key: (found, wall_s * sum(found.host_s) / sampled_s + preparation_s.pop(key, 0.0))
        for key, found in rounds.items()
    }
