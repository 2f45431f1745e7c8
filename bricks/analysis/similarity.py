"""The similarity of models: the Jaccard similarity of their sets of bricks.

As in DLBricks (Li et al., ICPE 2020): the share of unique layers common to two models among all
unique layers of either. The number of occurrences and the cost of a brick do not count. Must not
know how it is shown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import csr_array

if TYPE_CHECKING:
    from bricks.decompose.plan import Plan


@dataclass(frozen=True, slots=True)
class Similarity:
    """The similarity of every two models, from 0 (nothing in common) to 1 (the same bricks).

    ``grid[i][j]`` is that of ``models[i]`` and ``models[j]``; ``bricks[i]`` is the number of unique
    bricks of a model, ``shared[i]`` how many of them occur in at least one other model.
    """

    models: tuple[str, ...]
    bricks: tuple[int, ...]
    shared: tuple[int, ...]
    grid: tuple[tuple[float, ...], ...]

    def nearest(self, position: int) -> list[tuple[int, float]]:
        """Positions of the models that share a brick with this one, the most similar first."""
        others = [(j, s) for j, s in enumerate(self.grid[position]) if j != position and s > 0]
        return sorted(others, key=lambda other: (-other[1], other[0]))

    def ordered(self) -> list[int]:
        """All positions in an order that puts similar models next to each other.

        Groups are merged by the average similarity of their members, the most similar two first; of
        the four ways to join two groups, the one with the most similar ends in the middle wins.
        """
        groups = [[i] for i in range(len(self.models))]
        between = np.array(self.grid, float).reshape(len(groups), len(groups))
        np.fill_diagonal(between, -np.inf)
        first = 0
        for _ in groups[1:]:
            # The first of equals; since both halves of the matrix are equal, a < b.
            a, b = map(int, np.unravel_index(between.argmax(), between.shape))
            sizes = len(groups[a]), len(groups[b])
            between[a] = (sizes[0] * between[a] + sizes[1] * between[b]) / sum(sizes)
            between[:, a] = between[a]
            between[b] = between[:, b] = between[a, a] = -np.inf
            ways = [
                (f, s) for f in (groups[a], groups[a][::-1]) for s in (groups[b], groups[b][::-1])
            ]
            left, right = max(ways, key=lambda way: self.grid[way[0][-1]][way[1][0]])
            groups[a] = [*left, *right]
            first = a
        return groups[first] if groups else []


def similarity(plans: Sequence[Plan]) -> Similarity:
    """The similarity of every two of ``plans``, in their order."""
    sets = [frozenset(plan.keys) for plan in plans]
    model_counts = Counter(key for own in sets for key in own)
    return Similarity(
        models=tuple(plan.model for plan in plans),
        bricks=tuple(map(len, sets)),
        shared=tuple(sum(model_counts[key] > 1 for key in own) for own in sets),
        grid=tuple(map(tuple, jaccard(sets).tolist())),
    )


def jaccard(sets: Sequence[Collection[str]]) -> np.ndarray:
    """Size of the intersection over that of the union, of every two of ``sets``, row by row.

    Two empty sets are equal, hence 1.
    """
    sets = [frozenset(own) for own in sets]
    number = {key: n for n, key in enumerate(dict.fromkeys(key for own in sets for key in own))}
    columns = [number[key] for own in sets for key in own]
    sizes = np.array([len(own) for own in sets], int)
    ends = np.concatenate([[0], np.cumsum(sizes)])
    shape = len(sets), max(1, len(number))
    incidence = csr_array((np.ones(len(columns), int), columns, ends), shape=shape)
    both = (incidence @ incidence.T).toarray()
    either = sizes[:, None] + sizes - both
    return np.where(either > 0, both / np.maximum(either, 1), 1.0)
