"""Results of evaluating a model with a runtime against a reference in double precision.

Plain data. Must not know how values are computed, nor which deviation is an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from bricks.samples.error_norms import GRADIENT_TOLERANCE, ErrorNorms, error_norms, heat_map
from bricks.units.facts import Missing

if TYPE_CHECKING:
    import numpy as np

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
