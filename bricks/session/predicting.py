"""Predicts latencies of models on any target of a cache, recomposed from their bricks.

Bricks that are missing here may be measured first. Predictions for the present moment take the
conditions of this host from a second of its reference kernels. Must not know how bricks are
measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING

from bricks.compose.recompose import recompose
from bricks.errors import UsageError
from bricks.samples.call_overhead import needed_by
from bricks.samples.correction import conditions_of
from bricks.samples.measurement import Failure, Measurement
from bricks.samples.usual_conditions import SAME_PERIOD_S, UsualConditions

if TYPE_CHECKING:
    from bricks.compose.basis import Basis, Results
    from bricks.compose.estimate import Estimate, IncompleteEstimate
    from bricks.decompose.plan import Plan
    from bricks.graph.model import Model
    from bricks.session.workspace import Workspace
    from bricks.system import Target

# Seconds for which reference kernels are timed.
WATCHED_S = 1.0


def predict(
    workspace: Workspace,
    model: Model,
    *,
    measure: bool = True,
    target: Target | None = None,
    conditions: UsualConditions | None = None,
) -> Estimate | IncompleteEstimate:
    """The model's latency, recomposed; with ``measure``, missing bricks are measured first.

    The estimate is for ``conditions`` of the host; None: its usual ones. For present ones, bricks
    that were measured within the last minutes count with these rounds only.

    Bricks that stay unmeasured are predicted from measured ones, or are gaps if these are too few.
    On another ``target`` of the cache nothing can be measured. Raises :class:`UsageError` if the
    model was never decomposed on that target, and its executed graph depends on it.
    """
    return recompose(basis(workspace, model, measure=measure, target=target, conditions=conditions))


def basis(
    workspace: Workspace,
    model: Model,
    *,
    measure: bool = True,
    target: Target | None = None,
    conditions: UsualConditions | None = None,
) -> Basis:
    """The inputs of the estimate of :func:`predict`."""
    target = workspace.target if target is None else target
    plan = workspace.plans.plan(model, target=target)
    measure = measure and target.key == workspace.target.key
    estimator = workspace.estimators.of(plan, target, measure=measure)
    results = estimator.results(needed_by(plan), target)
    if measure and not _resolved(workspace, plan, results):
        from bricks.session.measuring import bricks_job

        workspace.campaigns.measure([bricks_job(workspace, model)])
        results = estimator.results(needed_by(plan), target)
    if conditions is not None and conditions.mean.taken_s is not None:
        began_s = conditions.mean.taken_s - SAME_PERIOD_S
        results = {
            key: r.since(began_s) if isinstance(r, Measurement) else r for key, r in results.items()
        }
    return estimator.basis(plan, results, target, conditions=conditions)


def lacking(workspace: Workspace, models: Sequence[Model]) -> list[Model]:
    """The ``models`` for which something is to be measured here."""
    options, target = workspace.options, workspace.target
    needed = {model: needed_by(workspace.plans.plan(model)) for model in models}
    every = options.retry or options.conditions.again or target.system.accelerator is not None
    if every or not needed:
        return list(needed)
    keys = sorted(set().union(*needed.values()))
    settled = workspace.store.measurements.settled(target.key, keys)
    return [model for model, of_model in needed.items() if not settled.issuperset(of_model)]


def _resolved(workspace: Workspace, plan: Plan, results: Results) -> bool:
    """Whether all bricks of ``plan`` are measured, or failed and are not to be tried again."""
    if workspace.options.retry and any(isinstance(r, Failure) for r in results.values()):
        return False
    return results.keys() >= set(needed_by(plan))


def predict_plan(
    workspace: Workspace, plan: Plan, *, target: Target | None = None
) -> Estimate | IncompleteEstimate:
    """The latency of ``plan``, recomposed without measuring; see :func:`predict`."""
    target = workspace.target if target is None else target
    estimator = workspace.estimators.of(plan, target)
    results = estimator.results(needed_by(plan), target)
    return recompose(estimator.basis(plan, results, target))


def recomposed(
    workspace: Workspace, plan: Plan, *, target: Target | None = None
) -> Estimate | IncompleteEstimate:
    """The latency of ``plan`` on ``target``, from the contents of the cache.

    Nothing is measured. If the whole model was measured too, the estimate is for the conditions of
    that measurement.
    """
    target = workspace.target if target is None else target
    estimator = workspace.estimators.known
    results = estimator.results([*needed_by(plan), plan.digest], target)
    whole = results.get(plan.digest)
    conditions = conditions_of(whole) if isinstance(whole, Measurement) else None
    return recompose(estimator.basis(plan, results, target, conditions=conditions))


def present_conditions(workspace: Workspace, models: Sequence[Model] = ()) -> UsualConditions:
    """The conditions of the next seconds; the host has then been watched for one second more.

    Further copies of a target run the first of ``models`` meanwhile.

    Raises :class:`UsageError` if a device computes, whose conditions reference kernels do not show.
    """
    from bricks.measure.protocol.walking import TimeKernels
    from bricks.measure.timing_lock import timing_lock
    from bricks.session.measuring import whole_job
    from bricks.system.host_conditions import mean_conditions

    target = workspace.target
    if target.system.accelerator is not None:
        raise UsageError("--now is for processors: a device has its own conditions")
    # Read before this second is added: answers at other times are as if it had not been asked.
    usual, _ = (
        estimator.history(target).watched
        for estimator in (workspace.estimators.measured, workspace.estimators.known)
    )
    timeout_s = workspace.options.conditions.timeout_s
    lock = timing_lock(lambda message: workspace.progress(message, 0.0))
    job = whole_job(workspace, models[0]) if models and target.runtime.copies > 1 else None
    with (
        lock if workspace.conditions.exclusive else nullcontext(),
        workspace.further_copies.running(job, timeout_s=timeout_s),
    ):
        every = workspace.supervisor.ask_afresh(TimeKernels(WATCHED_S), timeout_s=timeout_s)
    workspace.store.measurements.watch(target.key, every)
    if usual is None:
        mean = mean_conditions(every)
        assert mean is not None, "kernels were timed"
        usual = UsualConditions.assumed(mean)
        workspace.estimators.note_measured(())  # what other hosts measured is scaled by these
    return usual.from_now(every)
