"""Results of checking outputs: of a model against double precision, of bricks against their model.

Plain data. Norms and heat maps of the difference of two tensors are Deep500's metrics of an
operator's accuracy (Ben-Nun et al., IPDPS 2019); the tolerance of derivatives relative to finite
differences is here too. Must not know how values are computed, nor which deviation is an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from bricks.units.facts import Missing, facts

# Cells of a map over the last two axes of a tensor.
Cells = tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True)
class ComparedOutput:
    """An output and the norms of its difference from the reference, or the ``reason`` for none.

    Both are None if the reference lacks the output. ``heat_map`` holds the greatest absolute
    differences over the last two axes, ``variance_map`` the greatest variances over repeated runs;
    empty if all runs are equal.
    """

    output: str
    shape: tuple[int, ...]
    dtype: str
    norms: ErrorNorms | None = None
    reason: str | None = None
    heat_map: Cells = ()
    variance_map: Cells = ()


def compared_output(
    name: str, expected: np.ndarray | None, actual: np.ndarray, variance_map: Cells = ()
) -> ComparedOutput:
    """The output called ``name``: its value ``actual`` compared with ``expected``, if known."""
    output = ComparedOutput(name, actual.shape, str(actual.dtype), variance_map=variance_map)
    if expected is None:
        return output
    norms = error_norms(expected, actual)
    if isinstance(norms, Missing):
        return replace(output, reason=norms.reason)
    return replace(output, norms=norms, heat_map=cells_of(heat_map(expected, actual)))


def cells_of(rows: Sequence[Sequence[float]]) -> Cells:
    """Rows of a map as tuples."""
    return tuple(map(tuple, rows))


@dataclass(frozen=True, slots=True)
class DirectionalDerivative:
    """The derivative along a random direction of the tensor ``of``, in double precision.

    ``analytic`` is that of automatic differentiation, ``numeric`` the central difference.
    """

    FACTS: ClassVar[tuple[object, ...]] = ("of", "analytic", "numeric", "relative_error")

    of: str
    analytic: float
    numeric: float

    @property
    def relative_error(self) -> float:
        """The difference of both, relative to the greater one; 0 where both are zero."""
        greater = max(abs(self.analytic), abs(self.numeric))
        return abs(self.analytic - self.numeric) / greater if greater else 0.0

    @property
    def wrong(self) -> bool:
        """Whether they differ by more than rounding and kinks explain."""
        return self.relative_error > GRADIENT_TOLERANCE


@dataclass(frozen=True, slots=True)
class DivergentNode:
    """A node with a ``value`` that is too far from its reference, though its inputs are not.

    ``linf_relative`` is the error of the value; None where the reference is zero, or for a
    ``reason``.
    """

    node: str
    operator: str
    value: str
    linf_relative: float | None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Divergence:
    """Where a network diverges from its reference, value by value.

    Of ``compared`` values of the source graph, ``beyond`` are further from the reference than
    allowed. ``first`` is the first node with such a value whose inputs are not; None: there is no
    such node.
    """

    compared: int
    beyond: int
    first: DivergentNode | None


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Outputs of ``repeats`` runs of a model with ``distinct`` different results, bit by bit.

    ``max_variance`` is the greatest variance of an element over the runs; None if not all runs can
    be compared. ``divergence`` is None if the reference has outputs only, or for the
    ``divergence_reason``. ``reference_reason`` says why a program has no reference. ``derivatives``
    are None unless requested, or for the ``derivatives_reason``.
    """

    outputs: tuple[ComparedOutput, ...]
    repeats: int
    distinct: int
    max_variance: float | None
    divergence: Divergence | None = None
    divergence_reason: str | None = None
    reference_reason: str | None = None
    derivatives: tuple[DirectionalDerivative, ...] | None = None
    derivatives_reason: str | None = None


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


@dataclass(frozen=True, slots=True)
class OutputDifference:
    """The difference of outputs from the expected outputs.

    ``exact`` is whether all are bitwise equal. ``max_rel`` is relative to the greatest magnitude of
    the output; it and ``max_abs`` are None if shapes or types differ. ``tolerance`` is the largest
    ``max_rel`` that another order of summation explains. ``finite`` is whether each output has a
    finite number.
    """

    exact: bool
    max_abs: float | None
    max_rel: float | None
    tolerance: float
    finite: bool

    @property
    def within_tolerance(self) -> bool:
        """Whether outputs are equal, except for the order of sums."""
        return self.exact or (self.max_rel is not None and self.max_rel <= self.tolerance)


@dataclass(frozen=True, slots=True)
class Verification:
    """The chained bricks of a model compared with the whole model.

    ``own_weights`` is whether the model's files have its weights, otherwise synthetic;
    ``optimised`` whether the whole model was optimised. The outputs ``random`` depend on random
    numbers, so their inputs were compared instead; None for a recorded program.
    """

    FACTS: ClassVar[tuple[object, ...]] = (
        "own_weights", "optimised", "exact", ("difference.max_abs", "max_abs_difference"),
        ("difference.max_rel", "max_rel_difference"), ("difference.tolerance", "tolerance"),
        ("difference.finite", "finite"),
    )  # fmt: skip

    difference: OutputDifference
    own_weights: bool
    optimised: bool
    random: tuple[str, ...] | None = None

    @property
    def exact(self) -> bool:
        """Whether all compared values are bitwise equal."""
        return self.difference.exact

    def to_json(self) -> dict[str, Any]:
        """The facts that ``bricks decompose --verify --json`` prints."""
        random = {} if self.random is None else {"random": list(self.random)}
        return {**facts(self), **random}
