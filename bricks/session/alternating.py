"""Measures the bricks of models in two workspaces by turns, so that both meet the same drift.

Must not know how the workspaces differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from bricks.session import measuring

if TYPE_CHECKING:
    from bricks.graph.model import Model
    from bricks.session.workspace import Workspace

# A model is measured in at most so many parts, each of at least so many bricks.
_MAX_PARTS, _MIN_BRICKS = 6, 12


def measure_in_turn(pair: tuple[Workspace, Workspace], models: Sequence[Model]) -> None:
    """Measure what the cache lacks of ``models`` in both of ``pair``, part by part.

    Which of the two is first changes from part to part. Raises
    :class:`~bricks.errors.BricksError` for a model that one of them cannot decompose.
    """
    turn = 0
    for model in models:
        parts = [_parts(workspace, model) for workspace in pair]
        for number in range(max(map(len, parts))):
            order = (0, 1) if turn % 2 == 0 else (1, 0)
            for side in order:
                for keys in parts[side][number : number + 1]:
                    measuring.measure(pair[side], [model], only=keys)
            turn += 1
    for workspace in pair:  # what belongs to no brick, such as the overhead of a call
        measuring.measure(workspace, models)


def _parts(workspace: Workspace, model: Model) -> list[list[str]]:
    """The keys of unmeasured bricks, in the order of the model, in a few parts."""
    keys = workspace.plans.decompose(model).plan.keys
    settled = workspace.store.measurements.settled(workspace.target.key, sorted(keys))
    missing = [key for key in keys if key not in settled]
    count = min(_MAX_PARTS, max(1, len(missing) // _MIN_BRICKS))
    bounds = [round(number * len(missing) / count) for number in range(count + 1)]
    return [missing[low:high] for low, high in pairwise(bounds) if high > low]
