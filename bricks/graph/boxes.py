"""Boxes of object detectors: the distribution of their centres and sizes, and boxes drawn from it.

Must not know what reads boxes.
"""

from __future__ import annotations

import numpy as np

from bricks.graph.distributions import CHANGES_STEP, at_shares, quantiles_of


def columns_of(rows: np.ndarray) -> tuple[tuple[float, ...], ...]:
    """The quantiles of each column of ``rows``, rounded."""
    return tuple(quantiles_of(column) for column in rows.T)


def ties_of(rows: np.ndarray) -> tuple[float, ...]:
    """The rank correlations of all pairs of columns of ``rows``, rounded; 0 for a constant one."""
    ranks = np.argsort(np.argsort(rows, axis=0), axis=0) if len(rows) else np.zeros((1, 4))
    with np.errstate(invalid="ignore"):
        correlation = np.nan_to_num(np.corrcoef(ranks.T))
    return tuple(
        round(float(correlation[i, j]) / CHANGES_STEP) * CHANGES_STEP
        for i in range(rows.shape[-1])
        for j in range(i)
    )


def boxes_at(
    columns: tuple[tuple[float, ...], ...],
    ties: tuple[float, ...],
    places: int,
    count: int,
    rng: np.random.Generator,
) -> np.ndarray:
    """Return ``count`` boxes, centres and sizes from ``columns``, each at one of ``places``.

    Boxes at one place are equal. ``ties`` are the rank correlations of the columns, from which
    normal numbers are drawn (a Gaussian copula). The result has shape (count, columns).
    """
    used, width = min(places, count), len(columns)
    correlation = np.eye(width)
    correlation[np.tril_indices(width, -1)] = 2 * np.sin(np.pi / 6 * np.array(ties))
    values, vectors = np.linalg.eigh(np.tril(correlation) + np.tril(correlation, -1).T)
    normal = rng.standard_normal((used, width)) @ (vectors * np.sqrt(np.clip(values, 0, None))).T
    at = (np.argsort(np.argsort(normal, axis=0), axis=0) + 0.5) / used
    boxes = np.stack([at_shares(at[:, i], column) for i, column in enumerate(columns)], axis=1)
    place = rng.permutation(count) if places > count else rng.integers(places, size=count)
    return boxes[place % used]
