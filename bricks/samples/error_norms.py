"""Norms and heat maps of the difference of two tensors.

These are Deep500's metrics of an operator's accuracy (Ben-Nun et al., IPDPS 2019). The tolerance of
derivatives relative to finite differences is here too. Must not know what computed the tensors.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bricks.units.facts import Missing

# Rows and columns of a heat map at most.
MAX_CELLS = 32

# A derivative with a greater difference from its finite difference, relative to the greater of
# both, is wrong. In float64 right ones differ by 1e-6 at most where a function is smooth, and by
# some 1e-5 where it has kinks, as ReLU does.
GRADIENT_TOLERANCE = 1e-3


@dataclass(frozen=True, slots=True)
class ErrorNorms:
    """The L1, L2 and L∞ norms of a difference, absolute and relative to norms of the reference.

    Norms are of the flattened tensor. Relative norms are None where the reference is zero.
    """

    l1: float
    l2: float
    linf: float
    l1_relative: float | None
    l2_relative: float | None
    linf_relative: float | None


def error_norms(expected: np.ndarray, actual: np.ndarray) -> ErrorNorms | Missing:
    """The norms of ``actual - expected``, computed in double precision.

    Elements that are the same infinity, or no number in both, differ by nothing.
    """
    pair = _difference(expected, actual)
    if isinstance(pair, Missing):
        return pair
    difference, reference = pair
    own, whole = _norms(difference), _norms(reference)
    if not np.isfinite([*own, *whole]).all():
        return Missing("its norms are too large for double precision")
    relative = [a / b if b else None for a, b in zip(own, whole, strict=True)]
    return ErrorNorms(*own, *relative)


def heat_map(expected: np.ndarray, actual: np.ndarray) -> list[list[float]]:
    """The absolute differences as :func:`block_maxima`; empty where they are incomparable."""
    pair = _difference(expected, actual)
    return [] if isinstance(pair, Missing) else block_maxima(np.abs(pair[0]))


def block_maxima(values: np.ndarray) -> list[list[float]]:
    """The maxima of ``values`` over the last two axes, at most 32 rows and columns.

    A cell is the maximum over its block and over all other axes, so that no value vanishes. A
    tensor of one axis is one row. Empty for an empty tensor.
    """
    if not values.size:
        return []
    plane = values.reshape((1,) * (2 - values.ndim) + values.shape)
    plane = plane.max(axis=tuple(range(plane.ndim - 2)))
    for axis in (0, 1):
        size = plane.shape[axis]
        cells = min(size, MAX_CELLS)
        plane = np.maximum.reduceat(plane, np.arange(cells) * size // cells, axis=axis)
    cells_of: list[list[float]] = plane.tolist()
    return cells_of


def _difference(
    expected: np.ndarray, actual: np.ndarray
) -> tuple[np.ndarray, np.ndarray] | Missing:
    """The difference, and the reference with zeros where it is not finite; both in double."""
    if expected.shape != actual.shape:
        return Missing(f"its shape is {actual.shape}, and the reference's {expected.shape}")
    if expected.dtype.kind not in "biuf" or actual.dtype.kind not in "biuf":
        return Missing(f"values of type {actual.dtype} have no difference in figures")
    x, y = expected.astype(np.float64), actual.astype(np.float64)
    odd = ~np.isfinite(x) | ~np.isfinite(y)
    if odd.any():
        same = (x[odd] == y[odd]) | (np.isnan(x[odd]) & np.isnan(y[odd]))
        if not same.all():
            count = int(odd.sum() - same.sum())
            return Missing(
                f"{count} of {x.size} elements are not finite where the reference is, or otherwise"
            )
        x, y = np.where(odd, 0.0, x), np.where(odd, 0.0, y)
    return y - x, x


def _norms(values: np.ndarray) -> tuple[float, float, float]:
    sizes = np.abs(values)
    largest = float(sizes.max(initial=0.0))
    if not largest or not np.isfinite(largest):
        return largest, largest, largest
    # Scaled, so that squares neither vanish nor overflow.
    with np.errstate(over="ignore"):
        return (
            float(sizes.sum()),
            largest * float(np.sqrt(np.square(sizes / largest).sum())),
            largest,
        )
