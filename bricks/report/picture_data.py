"""The data of a model's pictures, in compact form: lists of numbers and indices.

All facts of a brick are stored once, and the model refers to them by index. The page's script
expands them.

Nodes of a graph are drawn with one row each, in execution order, on tracks as in version histories:
the track of a node continues to the last row that needs its output. Must not know how it is drawn.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bricks.errors import printable

if TYPE_CHECKING:
    from bricks.analysis.explain import ModelPicture
    from bricks.analysis.explanation import Part

# Operators with colours of their own.
_COLORS = 6


def picture_data(picture: ModelPicture) -> dict[str, Any]:
    """The bricks of the model, its occurrences, and the peaks of the target."""
    explanation, plan = picture.explanation, picture.plan
    index = {part.brick: number for number, part in enumerate(explanation.parts)}
    levels = [level.bytes_per_s for level in explanation.peaks.levels]
    peaks = explanation.peaks.flops_per_s, explanation.peaks.bytes_per_s, max(levels, default=None)
    producers = plan.producers()
    return {
        "bricks": [_brick(part) for part in explanation.parts],
        "parts": [
            [n, part.occurrences, _round(part.total_s), int(part.predicted)]
            for n, part in enumerate(explanation.parts)
        ],
        "occurrences": [
            [index.get(occurrence.brick, -1), track, needed]
            for occurrence, needed, track in zip(
                plan.occurrences, producers, tracks(producers), strict=True
            )
        ],
        "peaks": [None if peak is None else _round(peak) for peak in peaks],
        "colors": _colored(picture),
    }


def _brick(part: Part) -> list[Any]:
    operator, shapes = printable(part.operator), printable(part.shapes)
    return [part.brick, operator, shapes, part.flops, _round(part.bytes), part.roof_s]


def _colored(picture: ModelPicture) -> list[str]:
    """The operators with the most time, which have their own colours."""
    total_s: dict[str, float] = defaultdict(float)
    for part in picture.explanation.parts:
        total_s[printable(part.operator)] += part.total_s
    return sorted(total_s, key=lambda operator: -total_s[operator])[:_COLORS]


def _round(value: float, digits: int = 4) -> float:
    """``value`` rounded to so many significant digits: more would only enlarge the page."""
    return float(f"{value:.{digits}g}")


def tracks(producers: Sequence[Sequence[int]]) -> list[int]:
    """The track of each node, from 0; ``producers`` are the rows of its inputs.

    A node continues the first track that ends with it, else it begins in the first free one.
    """
    last_use = list(range(len(producers)))
    for row, needed in enumerate(producers):
        for producer in needed:
            last_use[producer] = row
    until: list[int] = []  # by track, the last row in which it is in use
    assigned: list[int] = []
    for row, needed in enumerate(producers):
        ending = [assigned[p] for p in needed if last_use[p] == row]
        free = [track for track, end in enumerate(until) if end < row]
        if ending or free:
            track = min(ending or free)
        else:
            track = len(until)
            until.append(0)
        until[track] = last_use[row]
        assigned.append(track)
    return assigned
