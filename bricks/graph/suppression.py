"""Sketches of the boxes that a NonMaxSuppression reads.

Its work is comparing boxes with those that are picked already, and a comparison is cheaper where
two boxes do not overlap. So a brick gets boxes of the sizes and centres that they have in its
model, at so many places that as many are picked. Must not know how boxes are drawn or observed.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx

from bricks.graph.boxes import boxes_at, columns_of, ties_of
from bricks.graph.sketch import Sketch

OPERATOR = "NonMaxSuppression"

# Places beyond so many times the number of boxes are one for each box.
_ALL_APART = 64
_TRIES = 10
# Candidates that are looked at: more would take seconds.
_ENOUGH = 600


def suppression(node: onnx.NodeProto, values: Mapping[str, np.ndarray]) -> Sketch | None:
    """Return the sketch of the boxes that ``node``, a NonMaxSuppression, reads.

    ``values`` holds its inputs, by name; None where boxes or scores are not known.
    """
    if not all(name in values for name in node.input[:2]):
        return None
    boxes, scores = (values[name] for name in node.input[:2])
    centred = any(a.name == "center_point_box" and a.i for a in node.attribute)
    rows = _as_centres(boxes.reshape(-1, 4), centred)
    columns, ties = columns_of(rows), ties_of(rows)
    # The class that is nearest to the average stands for all.
    beyond = scores > _scalar(node, values, 4, -np.inf)
    candidates = beyond.sum(axis=-1)
    mean = candidates[candidates > 0].mean() if candidates.any() else 0.0
    image, label = np.unravel_index(np.argmin(np.abs(candidates - mean)), candidates.shape)
    count, overlap = min(int(candidates[image, label]), _ENOUGH), _scalar(node, values, 3, 0.0)
    best_first = np.argsort(-scores[image, label], kind="stable")[:count]
    # Without the greatest number that is wanted, which says nothing of how boxes lie.
    wanted = selected_count(_as_centres(boxes[image], centred)[best_first], overlap, count)

    def found(places: int) -> int:
        rng = np.random.default_rng(places)
        drawn = boxes_at(columns, ties, places, boxes.shape[1], rng)
        return selected_count(drawn[rng.permutation(boxes.shape[1])[:count]], overlap, wanted + 1)

    low, high = 1, _ALL_APART * max(boxes.shape[1], 1)
    if found(high) > wanted:  # else all are apart, and no more can be picked
        for _ in range(_TRIES):
            middle = max(low + 1, round((low * high) ** 0.5))
            low, high = (low, middle) if found(middle) > wanted else (middle, high)
    return Sketch(columns=columns, ties=ties, places=high, centred=centred)


def selected_count(boxes: np.ndarray, overlap: float, most: int) -> int:
    """Count the selected ``boxes``, centres and sizes in order of falling scores, up to ``most``.

    A box is picked unless it overlaps one that was, by more than ``overlap`` of their union.
    """
    low, high = boxes[:, :2] - boxes[:, 2:] / 2, boxes[:, :2] + boxes[:, 2:] / 2
    area = boxes[:, 2] * boxes[:, 3]
    left, picked = np.arange(len(boxes)), 0
    while left.size and picked < most:
        one, left = left[0], left[1:]
        picked += 1
        sides = np.minimum(high[one], high[left]) - np.maximum(low[one], low[left])
        shared = np.clip(sides, 0, None).prod(axis=1)
        left = left[shared <= overlap * (area[one] + area[left] - shared)]
    return picked


def _as_centres(boxes: np.ndarray, centred: bool) -> np.ndarray:
    if centred:
        return boxes
    one, other = boxes[:, :2], boxes[:, 2:]
    return np.concatenate([(one + other) / 2, np.abs(other - one)], axis=1)


def _scalar(
    node: onnx.NodeProto, values: Mapping[str, np.ndarray], port: int, default: float
) -> float:
    if port >= len(node.input) or node.input[port] not in values:
        return default
    return float(np.ravel(values[node.input[port]])[0])
