"""Distribution of a detector's boxes, as centres and sizes, and random boxes of a distribution.

Must not know which operators read boxes.
"""

from __future__ import annotations

import numpy as np

from bricks.graph.distributions import CHANGES_STEP, quantiles_of, values_at_shares


def column_quantiles(rows: np.ndarray) -> tuple[tuple[float, ...], ...]:
    """Return the rounded quantiles of each column of ``rows``, of shape (rows, columns)."""
    return tuple(quantiles_of(column) for column in rows.T)


def rank_correlations(rows: np.ndarray) -> tuple[float, ...]:
    """Return the rounded rank correlations of all column pairs; 0 for a constant column."""
    ranks = np.argsort(np.argsort(rows, axis=0), axis=0) if len(rows) else np.zeros((1, 4))
    with np.errstate(invalid="ignore"):
        correlation = np.nan_to_num(np.corrcoef(ranks.T))
    return tuple(
        round(float(correlation[i, j]) / CHANGES_STEP) * CHANGES_STEP
        for i in range(rows.shape[-1])
        for j in range(i)
    )


def draw_boxes(
    columns: tuple[tuple[float, ...], ...],
    correlations: tuple[float, ...],
    positions: int,
    count: int,
    rng: np.random.Generator,
) -> np.ndarray:
    """Draw ``count`` boxes (centres, sizes) whose ``columns`` have these quantiles.

    Boxes at one of the ``positions`` are equal. ``correlations`` are the rank correlations of the
    columns, drawn as a Gaussian copula. The result has shape (count, columns).
    """
    used, width = min(positions, count), len(columns)
    correlation = np.eye(width)
    correlation[np.tril_indices(width, -1)] = 2 * np.sin(np.pi / 6 * np.array(correlations))
    values, vectors = np.linalg.eigh(np.tril(correlation) + np.tril(correlation, -1).T)
    normal = rng.standard_normal((used, width)) @ (vectors * np.sqrt(np.clip(values, 0, None))).T
    shares = (np.argsort(np.argsort(normal, axis=0), axis=0) + 0.5) / used
    boxes = np.stack(
        [values_at_shares(shares[:, i], column) for i, column in enumerate(columns)], axis=1
    )
    position = rng.permutation(count) if positions > count else rng.integers(positions, size=count)
    return boxes[position % used]
