"""How much of models a cache covers with measurements, and what measuring the rest would cost.

Here to gather what :mod:`bricks.analysis.coverage` counts. Nothing is measured. Must not know how
results are shown.
"""

from __future__ import annotations

from collections.abc import Sequence

from bricks.analysis.coverage import ZooCoverage
from bricks.analysis.coverage import coverage as coverage_of
from bricks.decompose.plan import Plan
from bricks.errors import CacheDamaged
from bricks.predict.cost import CostModel, fit
from bricks.samples.call_overhead import ALL_PROBES
from bricks.session.workspace import Workspace
from bricks.system import Target


def coverage(
    workspace: Workspace, plans: Sequence[Plan], *, target: Target | None = None
) -> ZooCoverage:
    """The coverage of ``plans`` by measurements on ``target``, by default this workspace's.

    Nothing is measured. The plans are those of the target (:meth:`Plans.plan`).
    """
    target = workspace.target if target is None else target
    keys = list(dict.fromkeys(key for plan in plans for key in plan.keys))
    results = workspace.store.measurements.results(target.key, [*keys, *ALL_PROBES])
    bricks = workspace.store.plans.load_bricks(keys)
    for key in keys:
        if key not in bricks:
            raise CacheDamaged(
                f"the cache {workspace.store.path} lacks {key}, which a plan names:"
                " run 'bricks cache verify'"
            )
    return coverage_of(plans, bricks, results, cost_model(workspace, target))


def cost_model(workspace: Workspace, target: Target | None = None) -> CostModel | None:
    """The model of measuring costs on ``target``; None while too little is measured there."""
    costs = workspace.store.measurements.costs((workspace.target if target is None else target).key)
    bricks = workspace.store.plans.load_bricks(list(costs))  # omits models and probes
    return fit([(brick, costs[key]) for key, brick in bricks.items()])
