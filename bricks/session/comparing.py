"""Compares estimates with runs of the whole models, sampling models and their bricks in turn.

Must not know how they are measured, nor how a comparison is shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Self

from bricks.compose.basis import Basis
from bricks.compose.comparison import ComparisonFailure, ModelComparison, incomplete, summarise
from bricks.compose.estimate import Estimate, IncompleteEstimate
from bricks.compose.parts import Results, state_of
from bricks.compose.recompose import recompose
from bricks.errors import BackendError, ModelError, WorkerError
from bricks.graph.model import Model
from bricks.measure.campaign_result import CampaignResult
from bricks.measure.failure_explanation import explain_failure
from bricks.measure.jobs import Job
from bricks.predict.prediction import Predictions
from bricks.samples.call_overhead import probes_of
from bricks.samples.measurement import Failure, Measurement, round_spread
from bricks.session.jobs import whole_job
from bricks.session.summaries import Comparison
from bricks.session.workspace import Workspace

_NO_TIME = "not measured within the budget"


def compare(workspace: Workspace, models: Iterable[Model]) -> Comparison:
    """Estimates against whole-model runs; missing bricks and models are sampled in turn.

    Whole models are measured once per target and number of workers, so a second comparison runs
    nothing.
    """
    rows: dict[int, ModelComparison | ComparisonFailure] = {}
    jobs: dict[int, Job] = {}
    for number, model in enumerate(models):
        try:
            jobs[number] = whole_job(workspace, model)
        except (BackendError, ModelError, WorkerError) as error:
            rows[number] = ComparisonFailure(model.name, str(error))
    measured = workspace.campaigns.measure(list(jobs.values()))
    compared = _Compared.of(workspace, list(jobs.values()), measured)
    for number, job in jobs.items():
        rows[number] = compared.row(job)
    return compared.comparison([rows[number] for number in sorted(rows)])


@dataclass(frozen=True, slots=True)
class _Compared:
    """Models that were measured along with their bricks, and what is known of them."""

    workspace: Workspace
    jobs: Sequence[Job]
    measured: CampaignResult
    results: Results
    predictions: Predictions

    @classmethod
    def of(cls, workspace: Workspace, jobs: Sequence[Job], measured: CampaignResult) -> Self:
        """What the estimator of measured bricks knows of ``jobs``."""
        estimator, target = workspace.estimators.measured, workspace.target
        keys = {k for job in jobs for k in (*job.decomposition.plan.keys, job.whole_key)}
        probes = {k for job in jobs for k in probes_of(job.decomposition.plan)}
        found = estimator.results(sorted(keys | probes), target)
        wholes = {job.whole_key: job.model.digest for job in jobs}
        results = {wholes.get(key, key): result for key, result in found.items()}
        predictions = estimator.predictions(sorted(keys - wholes.keys()), results, target)
        return cls(workspace, jobs, measured, results, predictions)

    def comparison(self, rows: Sequence[ModelComparison | ComparisonFailure]) -> Comparison:
        """The comparison of all ``rows``, those of models that were not measured too."""
        summary = summarise(
            [row for row in rows if isinstance(row, ModelComparison)],
            self.results,
            decompose_s={j.model.digest: j.decomposition.wall_s for j in self.jobs},
            read_s={j.model.digest: j.model.read_s for j in self.jobs},
        )
        wholes = {job.whole_key for job in self.jobs}
        return Comparison(
            target=self.workspace.target,
            granularity=str(self.workspace.granularity),
            rows=tuple(rows),
            summary=summary,
            new_models=len(wholes & set().union(*self.measured.measured.values())),
            **self.measured.sampling_fields,
        )

    def row(self, job: Job) -> ModelComparison | ComparisonFailure:
        """The estimate of one model beside its run; the reason where one is missing."""
        plan, name = job.decomposition.plan, job.model.name
        new = len(self.measured.measured.get(plan.digest, frozenset()) & set(plan.keys))
        whole = self.results.get(plan.digest)
        run = whole if isinstance(whole, Measurement) else None
        state_s = state_of(plan, self.results, run, self.predictions)
        estimate = self._estimate(job, state_s)
        if isinstance(estimate, IncompleteEstimate):
            missing = incomplete(name, plan, estimate, new)
            return replace(missing, error=missing.error + explain_failure(job.model, missing.error))
        if run is None:
            reason = whole.reason if isinstance(whole, Failure) else _NO_TIME
            why = explain_failure(job.model, reason)
            error = f"{name}: the whole model was not run: {reason}{why}"
            return ComparisonFailure(name, error, plan, new)
        return ModelComparison(name, plan, new, round_spread(run, state_s), estimate)

    def _estimate(self, job: Job, state_s: float | None) -> Estimate | IncompleteEstimate:
        """The estimate of a model in the machine state ``state_s``."""
        estimator, target = self.workspace.estimators.measured, self.workspace.target
        plan, predictions = job.decomposition.plan, self.predictions
        if predictions.of:
            latencies = estimator.latencies(target)
            predictions = latencies.predictions_in(state_s, plan.keys, predictions)
        construction = None
        if job.streams:
            construction = estimator.construction(plan, job.decomposition.bricks, target)
        states = estimator.states(plan, self.results, predictions, state_s, target)
        return recompose(Basis(
            plan, self.results, state_s,
            predictions=predictions, states=states, construction=construction,
        ))  # fmt: skip
