"""Display titles of models and bricks: distinct names of models, and shapes of bricks.

All outputs use these titles. Must not know how titles are displayed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bricks.graph.tensor import TensorType

if TYPE_CHECKING:
    from bricks.decompose.plan import Brick, Plan
    from bricks.graph.containers import ValueType


def titles(plans: Sequence[Plan]) -> list[str]:
    """Return names of models; models of one name also have their inputs or, if needed, digests.

    ``plans`` may contain one model with several batch sizes, or two files of one name.
    """
    names = [plan.model for plan in plans]
    for detail in (_inputs, lambda plan: plan.digest[:11]):
        repeated = {title for title in names if names.count(title) > 1}
        names = [
            f"{title} ({detail(plan)})" if title in repeated else title
            for title, plan in zip(names, plans, strict=True)
        ]
    return names


def _inputs(plan: Plan) -> str:
    return ", ".join(str(plan.types[value]) for value in plan.inputs)


def shapes(brick: Brick) -> str:
    """Return the shapes of a brick's inputs, weights and outputs: ``1×8×8, 8×4 → 1×8×4``."""
    ends = (*brick.inputs.values(), *brick.weights.values()), brick.outputs.values()
    return " → ".join(", ".join(_shape(type_) for type_ in types) or "nothing" for types in ends)


def _shape(type_: ValueType) -> str:
    if not isinstance(type_, TensorType):
        return str(type_)
    sizes = "×".join(map(str, type_.shape)) or "1"
    return sizes if type_.dtype == "FLOAT" else f"{sizes} {type_.dtype.lower()}"
