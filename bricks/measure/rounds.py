"""Rounds: everything that is compared is sampled in turn, until it is known well enough.

A machine's speed drifts by more within half a minute than the error that estimates should have;
what is sampled alternately meets the same drift. Knows nothing of the store: each round's samples
are handed on as they come.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from bricks.measure.sampler import Sampler
from bricks.measure.statistics import median, spread

Samples = Mapping[str, tuple[float, ...]]


@dataclass(frozen=True, slots=True)
class StopRule:
    """When a latency is known well enough.

    ``precision`` is half the width of the median's 95 % interval, relative to it; sampling stops
    there, but not before ``min_rounds`` and at ``max_rounds`` in any case. ``passes`` samples are
    taken in each round, after one warm-up.
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

    ``rounds_before`` counts rounds already kept from an interrupted run. ``on_round`` receives a
    walk's name, its samples by key, and the wall seconds it took.
    """
    states = [Progressing(name, rounds_before.get(name, 0)) for name in sampler.names]
    timeouts = dict.fromkeys(sampler.names, 600.0)
    turn = 0
    while any(state.active for state in states):
        order = states if turn % 2 == 0 else states[::-1]
        for state in order:
            if not state.active:
                continue
            if deadline is not None and time.monotonic() >= deadline:
                return False
            started = time.perf_counter()
            samples = sampler.walk(state.name, rule.passes, timeouts[state.name])
            wall_s = time.perf_counter() - started
            timeouts[state.name] = max(60.0, 30 * wall_s)
            if samples:
                on_round(state.name, samples, wall_s)
            _advance(state, sampler, samples, rule)
        turn += 1
        on_progress(min(_share(state, rule) for state in states))
    return True


def _advance(state: Progressing, sampler: Sampler, samples: Samples, rule: StopRule) -> None:
    state.rounds += 1
    if not samples:  # nothing of it runs
        state.active = False
        return
    times = {s.key: s.multiplicity for s in sampler.steps(state.name) if s.timed}
    state.sums.append(sum(median(samples[key]) * times.get(key, 1) for key in samples))
    if state.rounds >= rule.max_rounds:
        state.active = False
    elif state.rounds >= rule.min_rounds and len(state.sums) >= min(6, rule.min_rounds):
        state.active = spread(state.sums).relative > rule.precision


def _share(state: Progressing, rule: StopRule) -> float:
    return 1.0 if not state.active else min(1.0, state.rounds / rule.max_rounds)
