"""The parts of one model's latency on one target, as input of pictures.

Nothing is measured or decomposed. Must not know how it is shown.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bricks.analysis.explain import Explainer
from bricks.session import predicting

if TYPE_CHECKING:
    from bricks.analysis.explanation import Explanation
    from bricks.decompose.plan import Plan
    from bricks.session.workspace import Workspace
    from bricks.system import Target


@dataclass(frozen=True, slots=True)
class ModelPicture:
    """A model's ``plan`` on a ``target``, and the ``explanation`` of its latency there."""

    target: Target
    plan: Plan
    explanation: Explanation


def model_picture(workspace: Workspace, plan: Plan, target: Target) -> ModelPicture:
    """The parts of the latency of ``plan`` on ``target``, from the contents of the cache."""
    estimate = predicting.recomposed(workspace, plan, target=target)
    return ModelPicture(target, plan, Explainer(workspace, target).of(plan, estimate))
