"""The occurrences of a model at which a walk times each brick.

Must not know how steps are run.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from bricks.measure.cache_load import is_long

if TYPE_CHECKING:
    from bricks.decompose.plan import Brick, Plan

# Occurrences at which a brick is timed, if it has so many; more if it has more contexts.
TIMED_COUNT = 3

# A long brick is timed at one occurrence: its position hardly matters.
LONG_TIMED_COUNT = 1

# Occurrences have the same context if this many bricks before them are equal.
_CONTEXT = 8


def timed_count(brick: Brick, count: int = TIMED_COUNT, long_count: int = LONG_TIMED_COUNT) -> int:
    """The number of occurrences at which ``brick`` is timed, if it has so many."""
    return long_count if is_long(brick) else count


def timed_positions(
    plan: Plan,
    max_counts: Mapping[str, int],
    heavy: Collection[str],
    independent: Collection[str] = (),
) -> dict[int, float]:
    """Positions of the timed occurrences, and how many occurrences of its brick each stands for.

    A brick's latency depends on the bricks before it: on the one that wrote its inputs, and on the
    last one to use its output's memory. So its occurrences are grouped by context, and some are
    drawn from each group in proportion, with the brick's key as the seed. ``max_counts`` is how
    many are drawn for each brick, by key. ``heavy`` bricks find their weights in the caches where
    an earlier occurrence has read the same weights, as the steps of an unrolled recurrent network
    do: such occurrences are in other contexts. All contexts of ``independent`` bricks are one.
    """
    keys = [occurrence.brick for occurrence in plan.occurrences]
    positions_of: dict[str, list[int]] = {}
    for position, key in enumerate(keys):
        if key in max_counts:
            positions_of.setdefault(key, []).append(position)
    timed: dict[int, float] = {}
    for key, positions in positions_of.items():
        rng, count = random.Random(key), max_counts[key]
        strata = _by_first_use(plan, positions) if key in heavy else [positions]
        groups = chain.from_iterable(_contexts(keys, stratum, count) for stratum in strata)
        for group in [positions] if key in independent else groups:
            parts = min(len(group), max(1, round(count * len(group) / len(positions))))
            for part in range(parts):
                drawn = group[int((part + rng.random()) * len(group) / parts)]
                timed[drawn] = len(group) / parts
    return timed


def _by_first_use(plan: Plan, positions: Sequence[int]) -> list[list[int]]:
    """The ``positions`` of a brick that use their weights first, and the others."""
    first: dict[tuple[int, ...] | int, int] = {}
    for position in positions:
        first.setdefault(plan.occurrences[position].weights or position, position)
    firsts = sorted(first.values())
    others = sorted(set(positions).difference(firsts))
    return [stratum for stratum in (firsts, others) if stratum]


def _contexts(keys: Sequence[str], positions: Sequence[int], count: int) -> list[list[int]]:
    """The ``positions`` of a brick, grouped by the bricks that run before them.

    ``keys`` are the bricks of all occurrences in order. Contexts too rare for a timed occurrence of
    their own are one group.
    """
    groups: dict[tuple[str, ...], list[int]] = {}
    for position in positions:
        groups.setdefault(tuple(keys[max(0, position - _CONTEXT) : position]), []).append(position)
    frequent = [g for g in groups.values() if 2 * count * len(g) >= len(positions)]
    rare = sorted(i for g in groups.values() if 2 * count * len(g) < len(positions) for i in g)
    return [*frequent, rare] if rare else frequent
