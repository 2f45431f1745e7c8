"""The result of verifying a decomposition: the difference of chained bricks from the whole model.

Plain data. Must not know how outputs are computed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from bricks.units.facts import facts


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
