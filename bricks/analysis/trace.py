"""Recomposed timelines beside the runtime's own: gathers what a trace shows of a model.

What is asked of an estimate after it is made, as in :mod:`bricks.analysis.explain`. Nothing is
measured for it but, if somebody wants that, one profile, which is kept nowhere. Must not know how a
trace looks.
"""

from __future__ import annotations

from bricks.analysis.traced import Traced
from bricks.decompose.streams import whole_key
from bricks.errors import BricksError
from bricks.estimate.recompose import round_spread
from bricks.estimate.timeline import timeline
from bricks.graph.model import Model
from bricks.samples.measurement import Measurement
from bricks.samples.profile import NoProfile, Profile
from bricks.session.bench import Bench
from bricks.system import Target


def traced(bench: Bench, model: Model, *, run: bool = True, target: Target | None = None) -> Traced:
    """The timeline of ``model`` as its bricks have it on ``target``, and as its runtime has it.

    With ``run``, the model is run for a profile; that can be done on the bench's own target alone.
    Bricks are never measured here. Raises :class:`~bricks.errors.UsageError` as
    :meth:`Bench.predict` does.
    """
    target = bench.target if target is None else target
    basis = bench.basis(model, measure=False, target=target)
    plan, construction = basis.plan, basis.construction
    bricks = bench.store.load_bricks(plan.keys)
    streams = () if construction is None else construction.streams
    key = whole_key(plan, streams, 1 if construction is None else construction.workers)
    whole = bench.store.results(target.key, [key]).get(key)
    profile: Profile | NoProfile
    if target.key != bench.target.key:
        profile = NoProfile(f"a model cannot be run on {target.system.name} from here")
    elif not run:
        profile = NoProfile("the model was not to be run")
    else:
        profile = _profile(bench, model)
    return Traced(
        plan=plan,
        bricks=bricks,
        target=target,
        estimate=basis.estimate(),
        recomposed=timeline(basis),
        profile=profile,
        whole=round_spread(whole) if isinstance(whole, Measurement) else None,
    )


def _profile(bench: Bench, model: Model) -> Profile | NoProfile:
    try:
        return bench.profile(model)
    except BricksError as error:
        return NoProfile(str(error))
