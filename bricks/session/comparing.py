"""Compares estimates with runs of the whole models, sampling models and their bricks in turn.

Must not know how they are measured, nor how a comparison is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from bricks.compose.comparison import ComparisonFailure, ModelComparison, incomplete, summarise
from bricks.compose.estimate import IncompleteEstimate
from bricks.compose.recompose import Results, recompose, state_of
from bricks.errors import BackendError, ModelError, WorkerError
from bricks.graph.model import Model
from bricks.measure.campaign import CampaignResult
from bricks.measure.failure_explanation import explain_failure
from bricks.measure.jobs import Job
from bricks.predict.prediction import Predictions
from bricks.samples.call_overhead import probes_of
from bricks.samples.measurement import Measurement, round_spread
from bricks.session.campaigns import Campaigns
from bricks.session.estimator import Estimator
from bricks.session.summaries import Comparison
from bricks.system import Target


def compare(
    models: Iterable[Model],
    *,
    target: Target,
    granularity: str,
    whole_job: Callable[[Model], Job],
    campaigns: Campaigns,
    estimator: Estimator,
) -> Comparison:
    """Estimates of ``models`` on ``target`` beside runs; see :meth:`Bench.compare`.

    ``whole_job`` gives the job that measures a model and its bricks.
    """
    models = list(models)
    rows: dict[int, ModelComparison | ComparisonFailure] = {}
    jobs: dict[int, Job] = {}
    for number, model in enumerate(models):
        try:
            jobs[number] = whole_job(model)
        except (BackendError, ModelError, WorkerError) as error:
            rows[number] = ComparisonFailure(model.name, str(error))
    measured = campaigns.measure(list(jobs.values()))
    keys = {k for job in jobs.values() for k in (*job.decomposition.plan.keys, job.whole_key)}
    probes = {k for job in jobs.values() for k in probes_of(job.decomposition.plan)}
    found = estimator.results(sorted(keys | probes), target)
    wholes = {job.whole_key: job.model.digest for job in jobs.values()}
    results = {wholes.get(key, key): result for key, result in found.items()}
    predictions = estimator.predictions(sorted(keys - wholes.keys()), results, target)
    for number, job in jobs.items():
        rows[number] = _row(job, results, predictions, measured, target, estimator)
    ordered = tuple(rows[number] for number in sorted(rows))
    summary = summarise(
        [row for row in ordered if isinstance(row, ModelComparison)],
        results,
        decompose_s={j.model.digest: j.decomposition.wall_s for j in jobs.values()},
        read_s={j.model.digest: j.model.read_s for j in jobs.values()},
    )
    return Comparison(
        target=target,
        granularity=granularity,
        rows=ordered,
        summary=summary,
        new_models=len(wholes.keys() & set().union(*measured.measured.values())),
        **measured.sampling_fields,
    )


def _row(
    job: Job,
    results: Results,
    predictions: Predictions,
    measured: CampaignResult,
    target: Target,
    estimator: Estimator,
) -> ModelComparison | ComparisonFailure:
    plan, name = job.decomposition.plan, job.model.name
    new = len(measured.measured.get(plan.digest, frozenset()) & set(plan.keys))
    whole = results.get(plan.digest)
    run = whole if isinstance(whole, Measurement) else None
    state_s = state_of(plan, results, run, predictions)
    if predictions.of:
        latency_model = estimator.latency_model(target)
        predictions = latency_model.predictions_in(state_s, plan.keys, predictions)
    construction = None
    if job.streams:
        construction = estimator.construction(plan, job.decomposition.bricks, target)
    estimate = recompose(
        plan,
        results,
        state_s,
        predictions=predictions,
        states=estimator.states(plan, results, predictions, state_s, target),
        construction=construction,
    )
    if isinstance(estimate, IncompleteEstimate):
        missing = incomplete(name, plan, estimate, new)
        return replace(missing, error=missing.error + explain_failure(job.model, missing.error))
    if not isinstance(whole, Measurement):
        reason = "not measured within the budget" if whole is None else whole.reason
        why = explain_failure(job.model, reason)
        error = f"{name}: the whole model was not run: {reason}{why}"
        return ComparisonFailure(name, error, plan, new)
    return ModelComparison(name, plan, new, round_spread(whole, state_s), estimate)
