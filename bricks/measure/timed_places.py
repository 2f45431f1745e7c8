"""The places in a model at which a walk times each brick.

Must not know how steps are run.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from itertools import chain

from bricks.decompose.plan import Brick, Plan
from bricks.measure.cache_load import is_long

# Places at which a brick is timed, if it has so many; more if it occurs in more situations.
PLACES = 3

# A long brick is timed at one place: its position hardly matters.
LONG_PLACES = 1

# Occurrences are in one situation if the same bricks run before them: so many are compared.
_SITUATION = 8


def places_of(brick: Brick, places: int = PLACES, long_places: int = LONG_PLACES) -> int:
    """The number of places at which ``brick`` is timed, if it has so many."""
    return long_places if is_long(brick) else places


def timed_positions(
    plan: Plan, max_places: Mapping[str, int], heavy: Collection[str]
) -> dict[int, float]:
    """The occurrences that are timed, and how many occurrences of its brick each stands for.

    A brick's latency depends on what ran before it: on the brick that wrote its inputs, and on the
    last one to use its output's memory. So its occurrences are grouped by situation, and places are
    drawn from each group in proportion, with the brick's key as the seed. ``max_places`` is how
    many each brick gets, by key. ``heavy`` bricks find their weights in the caches where an earlier
    occurrence has read the same ones, as the steps of an unrolled recurrent network do: these are
    other situations.
    """
    keys = [occurrence.brick for occurrence in plan.occurrences]
    occurrences: dict[str, list[int]] = {}
    for i, key in enumerate(keys):
        if key in max_places:
            occurrences.setdefault(key, []).append(i)
    timed: dict[int, float] = {}
    for key, found in occurrences.items():
        draw, places = random.Random(key), max_places[key]
        strata = _by_first_use(plan, found) if key in heavy else [found]
        for group in chain.from_iterable(_situations(keys, each, places) for each in strata):
            parts = min(len(group), max(1, round(places * len(group) / len(found))))
            for part in range(parts):
                place = group[int((part + draw.random()) * len(group) / parts)]
                timed[place] = len(group) / parts
    return timed


def _by_first_use(plan: Plan, found: Sequence[int]) -> list[list[int]]:
    """The occurrences ``found`` of a brick that use their weights first, and the others."""
    first: dict[tuple[int, ...] | int, int] = {}
    for i in found:
        first.setdefault(plan.occurrences[i].weights or i, i)
    firsts = sorted(first.values())
    others = sorted(set(found).difference(firsts))
    return [each for each in (firsts, others) if each]


def _situations(keys: Sequence[str], found: Sequence[int], places: int) -> list[list[int]]:
    """The occurrences ``found`` of a brick, grouped by the bricks that run before them.

    ``keys`` are the bricks of all occurrences in order. Situations too rare for a place of their
    own are one group.
    """
    groups: dict[tuple[str, ...], list[int]] = {}
    for i in found:
        groups.setdefault(tuple(keys[max(0, i - _SITUATION) : i]), []).append(i)
    frequent = [g for g in groups.values() if 2 * places * len(g) >= len(found)]
    rare = sorted(i for g in groups.values() if 2 * places * len(g) < len(found) for i in g)
    return [*frequent, rare] if rare else frequent
