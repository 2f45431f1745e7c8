"""How much of an estimate belongs to bricks whose inputs change from run to run.

A loop over one input, as in most benchmarks, is faster there: the processor learns the values. Must
not know how a prediction is shown.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from bricks.compose.estimate import Estimate
from bricks.graph.view import parse_model
from bricks.operators.rotated_inputs import rotated_inputs
from bricks.session import predicting
from bricks.units.interval import Interval

if TYPE_CHECKING:
    from bricks.graph.model import Model
    from bricks.session.workspace import Workspace
    from bricks.system import Target

# A smaller share of an estimate changes no answer.
_LEAST_SHARE = 0.05


@dataclass(frozen=True, slots=True)
class ChangingInputs:
    """Bricks whose inputs change from run to run have a ``share`` of the estimate (0 to 1).

    ``repeated_s`` are the seconds of the model in a loop over one input; None if its bricks were
    not measured with ``--repeat-inputs``.
    """

    share: float
    repeated_s: Interval | None


def changing_inputs(
    workspace: Workspace, model: Model, estimate: Estimate, target: Target
) -> ChangingInputs | None:
    """The share of bricks whose inputs change on ``target``, and the latency if they do not.

    Nothing is measured. None if all inputs repeat, or the share is small.
    """
    if target.runtime.repeat_inputs or target.system.accelerator is not None:
        return None
    plan = workspace.plans.plan(model, target=target)
    bricks = workspace.plans.known_bricks(plan)
    changing = {key for key, brick in bricks.items() if _changes(brick.model)}
    share = sum(part.share for part in estimate.shares if part.brick in changing)
    if share < _LEAST_SHARE:
        return None
    repeating = replace(target, runtime=replace(target.runtime, repeat_inputs=True))
    known = workspace.store.measurements.settled(repeating.key, sorted(plan.keys))
    if not known.issuperset(plan.keys):
        return ChangingInputs(share, None)
    repeated = predicting.predict(workspace, model, measure=False, target=repeating)
    return ChangingInputs(share, repeated.latency_s if isinstance(repeated, Estimate) else None)


@lru_cache(maxsize=4096)  # models of a zoo share bricks
def _changes(brick: bytes) -> bool:
    """Whether inputs of a brick change from run to run, from its model."""
    return bool(rotated_inputs(parse_model(brick)).unobserved)
