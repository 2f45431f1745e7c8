"""Gathers a model's trace: the recomposed timeline, and the runtime's own profile.

Here because it starts from an estimate, as :mod:`bricks.analysis.explain` does. The only
measurement is one profile, on request, which is not stored. Must not know how a trace looks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bricks.compose.recompose import recompose
from bricks.compose.timeline import ModelTimeline, timeline
from bricks.decompose.plan import whole_key
from bricks.errors import BricksError
from bricks.samples.measurement import Measurement, round_spread
from bricks.samples.whole_models import NoProfile, Profile
from bricks.session import predicting, whole_models

if TYPE_CHECKING:
    from bricks.compose.estimate import Estimate, IncompleteEstimate
    from bricks.decompose.plan import Brick, Plan
    from bricks.graph.model import Model
    from bricks.session.workspace import Workspace
    from bricks.system import Target
    from bricks.units.interval import Interval


@dataclass(frozen=True, slots=True)
class Traced:
    """Both timelines of ``plan`` on ``target``; ``bricks`` are the plan's, by key.

    ``whole_s`` is the measured latency of the whole model, without a profiler; None if it was not
    measured.
    """

    plan: Plan
    bricks: Mapping[str, Brick]
    target: Target
    estimate: Estimate | IncompleteEstimate
    recomposed: ModelTimeline
    profile: Profile | NoProfile
    whole_s: Interval | None = None


def traced(
    workspace: Workspace, model: Model, *, run: bool = True, target: Target | None = None
) -> Traced:
    """The recomposed timeline of ``model`` on ``target``, and the one of its runtime's profile.

    With ``run``, the model is run for a profile, which only the workspace's own target can do.
    Bricks are never measured here. Raises :class:`~bricks.errors.UsageError` as
    :meth:`bricks.Bench.predict` does.
    """
    target = workspace.target if target is None else target
    basis = predicting.basis(workspace, model, measure=False, target=target)
    plan, construction = basis.plan, basis.construction
    bricks = workspace.known.plans.load_bricks(plan.keys)
    streams = () if construction is None else construction.streams
    key = whole_key(plan, streams, 1 if construction is None else construction.workers)
    whole = workspace.known.measurements.results(target.key, [key]).get(key)
    profile: Profile | NoProfile
    if target.key != workspace.target.key:
        profile = NoProfile(f"a model cannot be run on {target.system.name} from here")
    elif not run:
        profile = NoProfile("the model was not to be run")
    else:
        try:
            profile = whole_models.profile(workspace, model)
        except BricksError as error:
            profile = NoProfile(str(error))
    return Traced(
        plan=plan,
        bricks=bricks,
        target=target,
        estimate=recompose(basis),
        recomposed=timeline(basis),
        profile=profile,
        whole_s=round_spread(whole) if isinstance(whole, Measurement) else None,
    )
