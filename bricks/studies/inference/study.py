"""Compares estimates of whole models with runs of them, sampling models and their bricks in turn.

Must not know how they are measured, nor how a comparison is shown.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Self

from bricks.compose.basis import Results
from bricks.compose.estimate import Estimate, IncompleteEstimate
from bricks.compose.latencies import run_in_conditions
from bricks.compose.recompose import recompose
from bricks.errors import BackendError, ModelError, WorkerError
from bricks.graph.model import Model
from bricks.measure.campaign_result import CampaignResult
from bricks.measure.graphs import explain_failure
from bricks.samples.call_overhead import probes_of
from bricks.samples.correction import conditions_of
from bricks.samples.measurement import Failure, Measurement, round_spread
from bricks.session.measuring import whole_job
from bricks.sources import Unread
from bricks.studies.inference.result import (
    Comparison,
    ComparisonFailure,
    ModelComparison,
    incomplete,
    summarise,
)
from bricks.studies.study import Needs, Study, ask
from bricks.units.facts import Missing
from bricks.units.interval import Interval

if TYPE_CHECKING:
    from bricks.compose.basis import Basis
    from bricks.measure.jobs import ModelJob
    from bricks.predict.prediction import BrickPredictions
    from bricks.session.agreement import Agreement
    from bricks.session.workspace import Workspace

_NO_TIME = "not measured within the budget"

# By the number of the model: its estimate, and the latency of its run or why there is none.
Estimates = Mapping[int, Estimate | IncompleteEstimate]
Runs = Mapping[int, Interval | Missing]


def compare(workspace: Workspace, models: Iterable[Model | Unread]) -> Comparison:
    """Estimates against whole-model runs; missing bricks and models are sampled in turn.

    Whole models are measured once per target and number of workers, so a second comparison runs
    nothing. One model that fails does not stop the others.
    """
    return ask(ComparisonStudy(list(models), workspace))


class ComparisonStudy(Study[Sequence[Model | Unread], Estimates, Runs, Comparison]):
    """Latencies of models, recomposed from bricks and measured as whole models.

    Runs of whole models are measurements like those of bricks, in turn with them: so the real run
    only reads results.
    """

    times: ClassVar[bool] = False

    _sampled: CampaignResult = CampaignResult({}, (), frozenset())
    _known: _Known

    @property
    def observes(self) -> bool:
        """Always, since the study compares with real runs."""
        return True

    def needs(self) -> Needs:
        """Whole models together with their bricks."""
        self._jobs: dict[int, ModelJob] = {}
        self._failures: dict[int, ComparisonFailure] = {}
        for number, model in enumerate(self.options):
            if isinstance(model, Unread):
                self._failures[number] = ComparisonFailure(model.name, model.error)
                continue
            try:
                self._jobs[number] = whole_job(self.workspace, model)
            except (BackendError, ModelError, WorkerError) as error:
                self._failures[number] = ComparisonFailure(model.name, str(error))
        return Needs(others=[self._sample])

    def _sample(self) -> None:
        self._sampled = self.workspace.campaigns.measure(list(self._jobs.values()))

    def predict(self) -> Estimates:
        """Each model's latency in the conditions in which it was run."""
        self._known = _Known.of(self.workspace, list(self._jobs.values()))
        return {number: self._known.estimate(job) for number, job in self._jobs.items()}

    def observe(self) -> Generator[None, Estimates, Runs]:
        """The latencies of the runs."""
        yield
        return {number: self._known.run(job) for number, job in self._jobs.items()}

    def result(self, prediction: Estimates, observation: Runs | None) -> Comparison:
        """A row for each model, and the summary of all."""
        runs = {} if observation is None else observation
        rows = {
            **self._failures,
            **{n: self._row(n, prediction[n], runs.get(n)) for n in self._jobs},
        }
        ordered, jobs = tuple(rows[number] for number in sorted(rows)), self._jobs.values()
        new = set().union(*self._sampled.measured.values())
        summary = summarise(
            [row for row in ordered if isinstance(row, ModelComparison)],
            self._known.results,
            decompose_s={job.model.digest: job.decomposition.wall_s for job in jobs},
            read_s={job.model.digest: job.model.read_s for job in jobs},
        )
        return Comparison(
            target=self.target,
            granularity=str(self.workspace.granularity),
            workers=self.workspace.options.workers,
            rows=ordered,
            summary=summary,
            new_models=len(new & {job.whole_key for job in jobs}),
            agreements=tuple(self._agreements(ordered)),
            **self._sampled.sampling_fields,
        )

    def _agreements(
        self, rows: Sequence[ModelComparison | ComparisonFailure]
    ) -> Iterator[Agreement]:
        """Whether other runtimes that ran the models here compute the same.

        Within a budget, which is for measuring, only verdicts that were kept.
        """
        from bricks.session.agreement import Agreements

        compared = {row.plan.digest for row in rows if isinstance(row, ModelComparison)}
        check = self.workspace.options.conditions.budget_s is None
        with Agreements(self.workspace, check=check) as agreements:
            for job in self._jobs.values():
                if job.decomposition.plan.digest in compared:
                    yield from agreements.with_others(job.model)

    def _row(
        self,
        number: int,
        estimate: Estimate | IncompleteEstimate,
        run: Interval | Missing | None,
    ) -> ModelComparison | ComparisonFailure:
        """The comparison of one model, or the reason why its estimate or its run is missing."""
        job = self._jobs[number]
        plan, model = job.decomposition.plan, job.model
        new = len(self._sampled.measured.get(plan.digest, frozenset()) & set(plan.keys))
        if isinstance(estimate, IncompleteEstimate):
            missing = incomplete(model.name, plan, estimate, new)
            return replace(missing, error=missing.error + explain_failure(model, missing.error))
        if isinstance(run, Interval):
            return ModelComparison(model.name, plan, new, run, estimate)
        reason = _NO_TIME if run is None else run.reason
        why = explain_failure(model, reason)
        error = f"{model.name}: the whole model was not run: {reason}{why}"
        return ComparisonFailure(model.name, error, plan, new)


@dataclass(frozen=True, slots=True)
class _Known:
    """Results and predictions of models that were measured along with their bricks."""

    workspace: Workspace
    results: Results
    predictions: BrickPredictions

    @classmethod
    def of(cls, workspace: Workspace, jobs: Sequence[ModelJob]) -> Self:
        """Read the results and predictions of ``jobs``."""
        estimator, target = workspace.estimators.measured, workspace.target
        keys = {k for job in jobs for k in (*job.decomposition.plan.keys, job.whole_key)}
        probes = {k for job in jobs for k in probes_of(job.decomposition.plan)}
        by_key = estimator.results(sorted(keys | probes), target)
        wholes = {job.whole_key: job.model.digest for job in jobs}
        results = {wholes.get(key, key): result for key, result in by_key.items()}
        predictions = estimator.predictions(sorted(keys - wholes.keys()), results, target)
        return cls(workspace, results, predictions)

    def run(self, job: ModelJob) -> Interval | Missing:
        """The latency of a whole model, or why there is none."""
        whole = self._whole(job)
        if whole is not None:
            return round_spread(run_in_conditions(self._basis(job), whole))
        failure = self.results.get(job.decomposition.plan.digest)
        return Missing(failure.reason if isinstance(failure, Failure) else _NO_TIME)

    def _whole(self, job: ModelJob) -> Measurement | None:
        result = self.results.get(job.decomposition.plan.digest)
        return result if isinstance(result, Measurement) else None

    def estimate(self, job: ModelJob) -> Estimate | IncompleteEstimate:
        """The estimate of a model in the conditions of its run; without one, in usual ones."""
        return recompose(self._basis(job))

    def _basis(self, job: ModelJob) -> Basis:
        estimator, target = self.workspace.estimators.measured, self.workspace.target
        plan, whole, construction = job.decomposition.plan, self._whole(job), None
        if job.streams:
            construction = estimator.construction(plan, job.decomposition.bricks, target)
        return estimator.basis(
            plan, self.results, target,
            conditions=None if whole is None else conditions_of(whole),
            predictions=self.predictions, construction=construction,
        )  # fmt: skip
