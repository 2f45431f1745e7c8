"""Distributions of values: measured in arrays, rounded, and drawn from random numbers.

Rounding gives inputs of equal work one brick.

Those of a detector's boxes are of their centres and sizes. Must not know operators, nor which of
them read boxes.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

# Shares at which quantiles are kept: the tails matter to thresholds.
SHARES = (0.0, 0.01, 0.05, *(n / 10 for n in range(1, 10)), 0.95, 0.99, 1.0)
# Steps to which shares are rounded: each distinct pattern is measured as another brick.
_SHARE_STEP, CHANGES_STEP, _DIGITS = 1 / 8, 1 / 16, 3
# A share of zeros or of NaN decides how many elements an operator selects, and is kept exactly.
_SELECTED_DIGITS = 3
# Step and bounds of log2 of a mean size. Beyond the bounds a branch nearly always goes one way.
_SIZE_STEP, _SMALLEST, _LARGEST = 1 / 4, -8, 4
# Between quantiles whose ratio is larger, values are spread over orders of magnitude.
_LOG_RATIO = math.log(4)


def sign_pattern(count: int, negative: float, changes: float, seed: int) -> np.ndarray:
    """Return ``count`` signs (1 or -1, float32) in runs, of which a share is ``negative``.

    ``changes`` is the share of signs that differ from the sign before; run lengths are random.
    """
    if not 0 < negative < 1 or not changes:
        # Rounding has removed one sign, or all changes: one run of each sign is left.
        border = round(count * (1 - negative))
        return np.repeat(np.array((1, -1), np.float32), (border, count - border))
    random = np.random.default_rng(seed)
    # Chances that a run of either sign ends, which give the shares of signs and of changes.
    ends = np.minimum(1.0, changes / 2 / np.array((1 - negative, negative)))
    pairs = int(count * changes) + 16
    lengths = np.empty(2 * pairs, np.int64)
    lengths[0::2], lengths[1::2] = (random.geometric(end, pairs) for end in ends)
    signs = np.repeat(np.resize(np.array((1, -1), np.float32), 2 * pairs), lengths)
    return np.resize(signs, count)


def set_marked_count(marked: np.ndarray, count: int, rng: np.random.Generator) -> None:
    """Flip random elements of the mask ``marked`` in place until ``count`` elements are set."""
    surplus = int(marked.sum()) - count
    candidates = np.flatnonzero(marked if surplus > 0 else ~marked)
    marked[rng.choice(candidates, abs(surplus), replace=False)] = surplus < 0


def mask_shares(marked: np.ndarray, name: str, rounded: Any = None) -> dict[str, float]:
    """Return the share of marked elements as ``name``, and the share of ``changes`` in the mask.

    ``rounded`` rounds the first share, and steps the second; None rounds neither.
    """
    changed = marked[1:] != marked[:-1]
    share = float(marked.mean() if marked.size else 0.0)
    changes = float(changed.mean() if changed.size else 0.0)
    if rounded is None:
        return {name: share, "changes": changes}
    return {name: rounded(share), "changes": round(changes / CHANGES_STEP) * CHANGES_STEP}


def one_digit(share: float) -> float:
    """Round a share to one digit."""
    return float(f"{share:.0e}")


def stepped(share: float) -> float:
    """Round a share to steps of an eighth."""
    return round(float(share) / _SHARE_STEP) * _SHARE_STEP


def slow_share(share: float) -> float:
    """Round a share of denormals to steps of a 32nd; below a 16th it counts as none.

    One element that is denormal may take as long as thirty others, so an eighth would be too much.
    """
    return round(float(share) * 32) / 32 if share >= 1 / 16 else 0.0


def three_digits(share: float) -> float:
    """Round a share, or its complement if that is smaller, to three digits."""
    rarer = min(float(share), 1 - float(share))
    kept = float(f"{rarer:.{_SELECTED_DIGITS - 1}e}")
    return kept if share <= 0.5 else 1 - kept


def rounded_count(distinct: int, elements: int) -> int:
    """Round a number of distinct values to three digits, at most the number of elements."""
    return int(float(f"{min(distinct, elements):.{_DIGITS - 1}e}"))


def quantiles_of(values: np.ndarray) -> tuple[float, ...]:
    """Return the rounded quantiles of the finite ``values`` at :data:`SHARES`."""
    finite = values[np.isfinite(values)] if values.dtype.kind == "f" else values
    if not finite.size:
        return (0.0,) * len(SHARES)
    exact = np.quantile(finite.astype(np.float64), SHARES)
    rounded = [float(f"{value:.{_DIGITS - 1}e}") for value in exact]
    if values.dtype.kind in "iu":  # indices beyond the last would be out of bounds
        rounded[0], rounded[-1] = float(exact[0]), float(exact[-1])
        rounded[1:-1] = np.clip(rounded[1:-1], exact[0], exact[-1]).tolist()
    return tuple(rounded)


def with_distinct(ascending: np.ndarray, count: int, whole: bool) -> np.ndarray:
    """Change ``ascending`` values as little as possible, so that about ``count`` are distinct.

    Frequent values stay, rare ones become the nearest value that stays. Distinct values are added
    to ``whole`` numbers only.
    """
    values, counts = np.unique(ascending, return_counts=True)
    if values.size > count:
        counts[[0, -1]] = ascending.size  # the ends stay
        # Equally frequent values stay at even distances (golden-ratio sequence).
        spread = np.argsort(np.arange(values.size) * 0.6180339887498949 % 1.0)
        kept = np.sort(values[spread[np.argsort(-counts[spread], kind="stable")][:count]])
        after = np.clip(np.searchsorted(kept, ascending), 1, max(1, kept.size - 1))
        if kept.size == 1:
            return np.full_like(ascending, kept[0])
        low, high = kept[after - 1], kept[after]
        nearest: np.ndarray = np.where(ascending - low <= high - ascending, low, high)
        return nearest
    if whole and values.size < min(count, ascending.size):
        free = np.setdiff1d(np.arange(values[0], values[-1] + 1), values)
        missing = min(count - values.size, free.size)
        more = free[np.linspace(0, free.size - 1, missing).astype(int)] if missing else free[:0]
        repeated = np.flatnonzero(np.diff(ascending, prepend=np.nan) == 0)
        replaced = repeated[np.linspace(0, repeated.size - 1, missing).astype(int)]
        ascending = ascending.copy()
        ascending[replaced] = more
        ascending.sort()
    return ascending


def values_at_shares(shares: np.ndarray, quantiles: tuple[float, ...]) -> np.ndarray:
    """Return the values at ``shares`` of a distribution, interpolated between ``quantiles``."""
    values: np.ndarray = np.interp(shares, SHARES, quantiles)
    ends = zip(SHARES, SHARES[1:], quantiles, quantiles[1:], strict=False)
    for left, right, low, high in ends:
        # Over several orders of magnitude, values are uniform in their logarithm.
        if not low or not high or (low > 0) != (high > 0):
            continue
        if abs(math.log(abs(high)) - math.log(abs(low))) > _LOG_RATIO:
            inside = (shares > left) & (shares < right)
            part = (shares[inside] - left) / (right - left)
            logs = math.log(abs(low)) * (1 - part) + math.log(abs(high)) * part
            values[inside] = np.copysign(np.exp(logs), low)
    return values


def log_size(values: np.ndarray) -> float:
    """Return log2 of the mean of absolute values, rounded and bounded."""
    size = float(np.mean(np.abs(values), dtype=np.float64)) if values.size else 0.0
    smallest, largest = 2.0**_SMALLEST, 2.0**_LARGEST
    if not smallest < size < largest:
        return _SMALLEST if size <= smallest else _LARGEST  # infinite ones are large
    return round(float(np.log2(size)) / _SIZE_STEP) * _SIZE_STEP


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
