"""Sketches of the boxes that a NonMaxSuppression reads.

The operator compares boxes with the boxes selected before, and a comparison is cheaper if two boxes
do not overlap. So a brick reads boxes with the sizes and centres of its model, at a number of
positions for which it selects as many. Must not know how boxes are drawn or observed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from bricks.graph.distributions import column_quantiles, draw_boxes, rank_correlations
from bricks.graph.sketch import Sketch

if TYPE_CHECKING:
    import onnx

OPERATOR = "NonMaxSuppression"

# With so many positions for each box, practically no two boxes share one.
_POSITIONS_PER_BOX = 64
_BISECTIONS = 10
# Candidates that are examined; more would take seconds.
_MOST_CANDIDATES = 600


def suppression_sketch(node: onnx.NodeProto, values: Mapping[str, np.ndarray]) -> Sketch | None:
    """Return the sketch of the boxes that ``node``, a NonMaxSuppression, reads.

    ``values`` are arrays by name. None if boxes or scores are not among them.
    """
    if not all(name in values for name in node.input[:2]):
        return None
    boxes, scores = (values[name] for name in node.input[:2])
    centred = any(a.name == "center_point_box" and a.i for a in node.attribute)
    rows = _as_centres(boxes.reshape(-1, 4), centred)
    columns, correlations = column_quantiles(rows), rank_correlations(rows)
    # The class whose number of candidates is nearest to the mean represents all classes.
    beyond = scores > _scalar(node, values, 4, -np.inf)
    candidates = beyond.sum(axis=-1)
    mean = candidates[candidates > 0].mean() if candidates.any() else 0.0
    image, label = np.unravel_index(np.argmin(np.abs(candidates - mean)), candidates.shape)
    count = min(int(candidates[image, label]), _MOST_CANDIDATES)
    overlap = _scalar(node, values, 3, 0.0)
    best_first = np.argsort(-scores[image, label], kind="stable")[:count]
    # Ignores max_output_boxes_per_class, which does not depend on the positions of boxes.
    selected = selected_count(_as_centres(boxes[image], centred)[best_first], overlap, count)

    def selected_at(positions: int) -> int:
        rng = np.random.default_rng(positions)
        drawn = draw_boxes(columns, correlations, positions, boxes.shape[1], rng)
        return selected_count(drawn[rng.permutation(boxes.shape[1])[:count]], overlap, selected + 1)

    low, high = 1, _POSITIONS_PER_BOX * max(boxes.shape[1], 1)
    if selected_at(high) > selected:  # else all positions differ, and no more can be selected
        for _ in range(_BISECTIONS):
            middle = max(low + 1, round((low * high) ** 0.5))
            low, high = (low, middle) if selected_at(middle) > selected else (middle, high)
    return Sketch(columns=columns, ties=correlations, places=high, centred=centred)


def selected_count(boxes: np.ndarray, overlap: float, most: int) -> int:
    """Count the selected ``boxes``, centres and sizes in order of falling scores, up to ``most``.

    A box is selected unless it shares more than ``overlap`` of the union with a selected box.
    """
    low, high = boxes[:, :2] - boxes[:, 2:] / 2, boxes[:, :2] + boxes[:, 2:] / 2
    area = boxes[:, 2] * boxes[:, 3]
    left, selected = np.arange(len(boxes)), 0
    while left.size and selected < most:
        one, left = left[0], left[1:]
        selected += 1
        sides = np.minimum(high[one], high[left]) - np.maximum(low[one], low[left])
        shared = np.clip(sides, 0, None).prod(axis=1)
        left = left[shared <= overlap * (area[one] + area[left] - shared)]
    return selected


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
