"""The plans of many models for commands: a model without a plan doesn't stop the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from bricks.cli.reading import decomposed
from bricks.errors import BricksError
from bricks.sources import Unread

if TYPE_CHECKING:
    from bricks.decompose.plan import Plan
    from bricks.graph.model import Model
    from bricks.session.workspace import Workspace
    from bricks.system.target import Target


def plans_of(
    workspace: Workspace, models: Sequence[Model | Unread], target: Target | None = None
) -> list[Plan | Unread]:
    """The plan of each model on ``target``, or the reason why there is none.

    None is the target of the workspace.
    """
    if target is None or target.key == workspace.target.key:
        decomposed(workspace, models)
    plans: list[Plan | Unread] = []
    for model in models:
        if isinstance(model, Unread):
            plans.append(model)
            continue
        try:
            plans.append(workspace.plans.plan(model, target=target))
        except BricksError as error:
            plans.append(Unread(model.name, error))
    return plans


def rows_of(
    plans: Sequence[Plan | Unread],
    rows: Iterable[dict[str, Any]],
    nothing: Callable[[str], dict[str, Any]],
) -> list[dict[str, Any]]:
    """JSON objects in the order of ``plans``: the next of ``rows`` for each plan.

    For a model without a plan, ``nothing`` of its name, with the error.
    """
    position = iter(rows)
    return [
        {**nothing(plan.name), "error": plan.error} if isinstance(plan, Unread) else next(position)
        for plan in plans
    ]
