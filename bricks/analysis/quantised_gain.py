"""The gain of a quantised model over the model as it is, if both are known.

Nothing is quantised, decomposed or measured here. Must not know how gains are shown.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from bricks.analysis.gains import Gain, Replacement
from bricks.compose.estimate import Estimate
from bricks.errors import BricksError
from bricks.session import predicting
from bricks.sources.defaults import INT8
from bricks.sources.quantised import Quantisation
from bricks.units.interval import Interval

if TYPE_CHECKING:
    from bricks.decompose.plan import Plan
    from bricks.graph.model import Model
    from bricks.session.workspace import Workspace
    from bricks.system import Target


def quantised_gain(
    workspace: Workspace, model: Model, estimate: Estimate, target: Target
) -> Gain | None:
    """The seconds that ``model`` takes less in int8 on ``target`` than its ``estimate``.

    None if it was never quantised, or its bricks have no latency there. It is negative for a
    quantised model that takes longer.
    """
    plan = _plan(workspace, model, target)
    if plan is None:
        return None
    after = predicting.predict_plan(workspace, plan, target=target)
    if not isinstance(after, Estimate):
        return None
    width_s = math.hypot(estimate.latency_s.half_width, after.latency_s.half_width)
    seconds = Interval.around(estimate.estimate_s - after.estimate_s, width_s)
    return Gain(None, Replacement.INT8, INT8, seconds, bound=False)


def _plan(workspace: Workspace, model: Model, target: Target) -> Plan | None:
    """The known plan of the quantised model on ``target``; None without one."""
    try:
        quantisation = Quantisation.of(model, target.runtime.backend)
        if not quantisation.is_kept:
            return None
        digest = quantisation.quantised().digest
    except BricksError:  # it cannot be quantised, or its tool is not installed
        return None
    return workspace.plans.known_plan(digest, target=target)
