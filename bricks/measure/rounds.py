"""Rounds: everything that is compared is sampled in turn, until it is known well enough.

A machine's speed drifts by more within half a minute than the error that estimates should have;
what is sampled alternately, from the first round to the last, meets the same drift. Knows nothing
of the store: each round's samples are handed on as they come.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from bricks.measure.sampler import Sampler
from bricks.measure.statistics import median, spread

Samples = Mapping[str, tuple[float, ...]]

# Rounds between two looks at the precision, and how many of this run it needs to stand on.
_LOOK_EVERY = 4
_LEAST = 6


@dataclass(frozen=True, slots=True)
class StopRule:
    """When a latency is known well enough.

    ``precision`` is half the width of the median's 95 % interval, relative to it; sampling stops
    there, but not before ``min_rounds`` and at ``max_rounds`` in any case. The interval is nominal:
    sampling that stops when it is narrow finds it narrower than it should be. So it is looked at
    only every few rounds. ``passes`` samples are taken in each round, after one warm-up.
    """

    precision: float = 0.01
    min_rounds: int = 8
    max_rounds: int = 24
    passes: int = 2


@dataclass(slots=True)
class Progressing:
    """How far a walk's sampling is: the sums of its rounds, weighted by multiplicity."""

    name: str
    rounds: int = 0
    sums: list[float] = field(default_factory=list)
    active: bool = True


def sample_in_turn(
    sampler: Sampler,
    rule: StopRule,
    *,
    rounds_before: Mapping[str, int],
    deadline: float | None,
    on_round: Callable[[str, Samples, float], None],
    on_progress: Callable[[float], None] = lambda share: None,
) -> bool:
    """Sample the sampler's walks in turn; whether all were finished before ``deadline``.

    They end together: none goes on without the others. ``rounds_before`` counts rounds already
    kept from an interrupted run. ``on_round`` receives a walk's name, its samples by key, and the
    wall seconds it took.
    """
    states = [Progressing(name, rounds_before.get(name, 0)) for name in sampler.names]
    while states:
        for state in states:
            if deadline is not None and time.monotonic() >= deadline:
                return False
            started = time.perf_counter()
            samples = sampler.walk(state.name, rule.passes)
            wall_s = time.perf_counter() - started
            if samples:
                on_round(state.name, samples, wall_s)
            _advance(state, sampler, samples)
        states = [state for state in reversed(states) if state.active]
        finished = _finished(states, rule)
        on_progress(1.0 if finished else min(s.rounds for s in states) / rule.max_rounds)
        if finished:
            break
    return True


def _advance(state: Progressing, sampler: Sampler, samples: Samples) -> None:
    state.rounds += 1
    state.active = bool(samples)  # else nothing of it runs
    times = {s.key: s.multiplicity for s in sampler.steps(state.name) if s.timed}
    state.sums.append(sum(median(samples[key]) * times.get(key, 1) for key in samples))


def _finished(states: Sequence[Progressing], rule: StopRule) -> bool:
    rounds = min((state.rounds for state in states), default=rule.max_rounds)
    if rounds >= rule.max_rounds:
        return True
    if rounds < rule.min_rounds or (rounds - rule.min_rounds) % _LOOK_EVERY:
        return False
    enough = min(_LEAST, rule.min_rounds)
    return all(
        len(state.sums) >= enough and spread(state.sums).relative <= rule.precision
        for state in states
    )
