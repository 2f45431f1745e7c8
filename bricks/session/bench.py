"""The main path as one object: read, decompose, measure, predict, compare.

A :class:`Bench` is a cache, a runtime on this host, and the way in which models are cut. It starts
a worker process when something has to run, and not before.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

from bricks import backends
from bricks._version import warn_of_renaming
from bricks.decompose.granularity import Granularity
from bricks.decompose.identity import mismatch
from bricks.decompose.plan import Brick, Decomposition, Plan, by_itself
from bricks.decompose.streams import streams_of
from bricks.errors import BackendError, ModelError, UsageError, WorkerError
from bricks.estimate.comparison import ComparisonFailure, ModelComparison, incomplete, summarise
from bricks.estimate.estimate import Estimate, IncompleteEstimate
from bricks.estimate.recompose import Basis, Results, recompose, round_spread, state_of
from bricks.estimate.schedule import Construction
from bricks.graph.model import Model
from bricks.graph.read import read_model
from bricks.measure.campaign import Campaign, CampaignResult, Progress
from bricks.measure.failure_hints import explain_failure
from bricks.measure.graphs import Decomposer, Graphs
from bricks.measure.jobs import Job, memory_bytes
from bricks.measure.protocol import pack
from bricks.measure.supervisor import Supervisor, WorkerSettings
from bricks.measure.timing_lock import WAITING, timing_lock
from bricks.predict.prediction import Predictions
from bricks.samples.call_overhead import PROBES
from bricks.samples.measurement import Failure, Measurement
from bricks.samples.profile import Profile
from bricks.session.adaptive import AdaptiveMeasurement, deviation, probes
from bricks.session.latency_model import LatencyModel
from bricks.session.options import Options, conditions_of, effort_of, runtime_of
from bricks.session.plans import Plans
from bricks.session.summaries import Comparison, Measured, Probed
from bricks.store import Merged, Store
from bricks.system import (
    Target,
    available_memory_bytes,
    fingerprint,
)
from bricks.zoo import find

_logger = logging.getLogger(__name__)

# How many bricks are measured side by side where there is a budget of time.
_FEW_BRICKS = 100


def _silent(what: str, share: float) -> None:
    """No progress is shown."""


class Bench:
    """A cache and a runtime on this host; use it as a context manager, or close it."""

    def __init__(
        self,
        cache: str | Path = "cache",
        options: Options | None = None,
        *,
        progress: Progress = _silent,
        **changes: Any,
    ) -> None:
        """Open ``cache`` (folder or database URL); ``changes`` are fields of :class:`Options`.

        Raises :class:`UsageError` for options that cannot be meant, and
        :class:`~bricks.errors.StoreError` for a cache that cannot be used.
        """
        self.options = options = replace(options or Options(), **changes)
        self._granularity = Granularity.parse(options.granularity)
        self._effort = effort_of(options)
        info = backends.describe(options.runtime)
        self.runtime = runtime_of(options, info)
        self.target = Target(fingerprint(), self.runtime)
        self._conditions = conditions_of(options, info, self.target)
        self._progress = progress
        self.store = Store.open(cache)
        self.target = replace(self.target, system=self.store.named(self.target.system))
        memory = options.memory_bytes or int(available_memory_bytes() * 0.9)
        _logger.info("the cache is %s", self.store.path)
        _logger.info(
            "the target is %s with %s %s, threads: %d",
            self.target.system.name, info.name, info.version, self.runtime.threads,
        )  # fmt: skip
        self._timed, self._bounded_memory = info.timed, info.bounded_memory
        command = (info.python, "-m", "bricks.measure.worker")
        self._settings = WorkerSettings(
            info.name,
            self.runtime.threads,
            options.seed,
            memory,
            command,
            workers=options.workers,
            optimization=options.optimization,
        )
        self._supervisor = Supervisor(self._settings)
        self._graphs = Graphs(self._supervisor, options.graph_timeout_s)
        self._plans = Plans(self.store, self.target, self._granularity, self._cut)
        self._known: dict[str, LatencyModel] = {}  # by target

    def __enter__(self) -> Bench:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def granularity(self) -> Granularity:
        """How models are cut."""
        return self._granularity

    @property
    def progress(self) -> Progress:
        """Told what is being done, and which share of it is."""
        return self._progress

    def close(self) -> None:
        """End the worker and close the cache."""
        self._supervisor.close()
        self.store.close()

    def read(
        self,
        model: str | Path,
        *,
        batch: int | None = None,
        shapes: Mapping[str, Sequence[int]] | None = None,
        values: Mapping[str, Any] | None = None,
    ) -> Model:
        """The model in an ONNX file or of a zoo name, its open dimensions made concrete.

        ``values`` are what inputs hold that cannot be made up; see :func:`read_model`.
        """
        found = find(str(model))
        if len(found) != 1:
            raise UsageError(f"{model} holds {len(found)} models: name one of them")
        name, path = found[0]
        return read_model(path, batch=batch, shapes=shapes, values=values, name=name)

    def decompose(self, model: Model) -> Decomposition:
        """The model's plan and bricks; from the cache where it was decomposed before."""
        return self._plans.decomposition(model)

    def _cut(self, model: Model) -> Decomposition:
        self._progress(f"decomposing {model.name}", 0.0)
        return self._graphs.decomposed(model, self._granularity)

    def knows(self, model: Model) -> bool:
        """Whether the cache holds the model's plan, so that nothing has to be decomposed."""
        return self._plans.knows(model)

    def decomposer(self, among: int) -> Decomposer:
        """What decomposes models for this bench, but with a worker and a thread of its own.

        There are so many ``among`` which memory is divided. Nothing is put into the cache.
        """
        memory = self.options.memory_bytes or int(available_memory_bytes() * 0.9)
        settings = replace(self._settings, threads=1, memory_bytes=memory // among)
        return Decomposer(settings, self._granularity, self.options.graph_timeout_s)

    def keep(self, decomposition: Decomposition) -> None:
        """Put into the cache what was decomposed for this bench's target, here or elsewhere."""
        self._plans.keep(decomposition)

    def plan(self, model: Model, *, target: Target | None = None) -> Plan:
        """The model's plan on ``target``, by default this one; decomposes it if it isn't known.

        Raises :class:`UsageError` if it was never decomposed on another target, and what is
        executed depends on that.
        """
        return self._plans.on(model, self.target if target is None else target)

    def latency_model(self, target: Target | None = None) -> LatencyModel:
        """What is known of bricks on ``target``, by default this one, and expected of others."""
        key = (self.target if target is None else target).key
        if key not in self._known:
            self._known[key] = LatencyModel(self.store, key, str(self._granularity))
        return self._known[key]

    def knowledge(self, target: Target | None = None) -> LatencyModel:
        """Now called :meth:`latency_model`."""
        warn_of_renaming("Bench.knowledge", "latency_model")
        return self.latency_model(target)

    def verify(self, model: Model) -> dict[str, Any]:
        """Chain the model's bricks and compare with the whole model.

        See ``measure/worker/verify``.
        """
        decomposition = self.decompose(model)
        self._progress(f"verifying {model.name}", 0.0)
        return self._graphs.ask(
            model,
            "verify",
            name=model.name,
            folder=str(model.folder),
            model=pack(model.skeleton),
            plan=decomposition.plan.to_json(),
            bricks={key: pack(brick.model) for key, brick in decomposition.bricks.items()},
        )

    def measure(
        self,
        models: Iterable[Model],
        alone: Iterable[Brick] = (),
        *,
        only: Collection[str] | None = None,
    ) -> Measured:
        """Measure the bricks of ``models`` that the cache lacks; what it holds stays as it is.

        And those bricks of which no model is known, each ``alone``. Of the models' bricks ``only``
        these, by key, if it is not None.
        """
        started = time.perf_counter()
        chosen = None if only is None else frozenset(only)
        jobs = [Job(model, self.decompose(model), whole=False, chosen=chosen) for model in models]
        if chosen is not None:
            jobs = [job for job in jobs if job.keys]
        alone = list(alone)
        self.store.save_bricks(alone)
        jobs += [self._lone_job(brick) for brick in alone]
        outcome = self._spend(jobs)
        keys = {key for job in jobs for key in job.keys}
        results = self.store.results(self.target.key, sorted(keys))
        return Measured(
            models=len(jobs) - len(alone),
            occurrences=sum(
                len(job.decomposition.plan.occurrences) for job in jobs[: len(jobs) - len(alone)]
            ),
            bricks=len(keys),
            new_bricks=len(set().union(*outcome.measured.values()) & keys),
            predicted_bricks=len(keys - results.keys() - outcome.unfinished),
            failures=tuple(r for r in results.values() if isinstance(r, Failure)),
            unfinished=len(outcome.unfinished),
            wall_s=time.perf_counter() - started,
            foreign_cores=outcome.foreign_cores,
            rounds=outcome.rounds,
            disturbed_rounds=outcome.disturbed,
            remeasured_bricks=len(outcome.again),
            eviction_short=outcome.eviction_short,
        )

    def probe(self, models: Iterable[Model], *, bricks: int = 96, budget_s: float = 60.0) -> Probed:
        """Measure the few ``bricks`` of ``models`` that tell most of this target.

        What other targets of the cache have measured tells what to expect, and those how this one
        differs: from then on all others can be predicted. Takes at most about ``budget_s`` seconds
        of measuring. What is measured already counts, and need not be again.
        """
        started = time.perf_counter()
        jobs = [Job(model, self.decompose(model), whole=False) for model in models]
        latency_model = self.latency_model()
        for job in jobs:
            latency_model.add_model(job.decomposition)
        keys = {key for job in jobs for key in job.keys}
        chosen: list[str] = []
        if keys:
            chosen = probes(jobs, latency_model, bricks)
            picked = [replace(job, chosen=frozenset(chosen)) for job in jobs]
            self._campaign([job for job in picked if job.keys], budget_s, self._progress)
        results = self.store.results(self.target.key, sorted(keys))
        others = {target.key: target for target in self.store.targets()}
        return Probed(
            models=len(jobs),
            bricks=len(keys),
            probes=len(results.keys() & set(chosen)),
            measured=sum(isinstance(result, Measurement) for result in results.values()),
            teachers=tuple(others[other.target_key] for other in latency_model.others),
            deviation=deviation(jobs, latency_model),
            failures=tuple(r for k, r in results.items() if isinstance(r, Failure) and k in chosen),
            wall_s=time.perf_counter() - started,
        )

    def measure_alone(self, bricks: Iterable[Brick]) -> CampaignResult:
        """Measure ``bricks``, each by itself, whatever the effort; what the cache has stays."""
        bricks = list(bricks)
        self.store.save_bricks(bricks)
        return self._campaign([self._lone_job(brick) for brick in bricks], None, self._progress)

    def _lone_job(self, brick: Brick) -> Job:
        decomposition = by_itself(brick, str(self._granularity))
        nothing = Model(brick.key, Path(), b"", (), decomposition.plan.digest)
        return Job(nothing, decomposition, whole=False)

    def run(self, models: Iterable[Model]) -> CampaignResult:
        """Measure whole ``models``, and none of their bricks: what anyone would do without them."""
        jobs = [replace(self._whole_job(model), chosen=frozenset()) for model in models]
        return self._campaign(jobs, self._conditions.budget_s, self._progress)

    def predict(
        self, model: Model, *, measure: bool = True, target: Target | None = None
    ) -> Estimate | IncompleteEstimate:
        """The model's latency, recomposed; with ``measure``, bricks that lack are measured first.

        What the effort or the budget leaves out, or what lacks where nothing is measured, is
        predicted from the bricks that are measured on the target, if those are enough to learn
        from; else it stays a gap. ``target`` is another target of the cache: nothing can be
        measured there. Raises :class:`UsageError` if the model was never decomposed there, and what
        is executed depends on it.
        """
        return self.basis(model, measure=measure, target=target).estimate()

    def basis(self, model: Model, *, measure: bool = True, target: Target | None = None) -> Basis:
        """What :meth:`predict` makes its estimate of."""
        target = self.target if target is None else target
        elsewhere = target.key != self.target.key
        plan = self.plan(model, target=target)
        results = self._results(plan.keys, target.key)
        resolved = len(results) == len({*plan.keys, *PROBES.values()})
        if self.options.retry and any(isinstance(r, Failure) for r in results.values()):
            resolved = False
        if measure and not elsewhere and not resolved:
            self._spend([Job(model, self.decompose(model), whole=False)])
            results = self._results(plan.keys, target.key)
        return self._basis(plan, results, target)

    def recomposed(
        self, plan: Plan, *, target: Target | None = None
    ) -> Estimate | IncompleteEstimate:
        """The latency of what ``plan`` says on ``target``, from what the cache holds.

        Nothing is measured. Where the whole model was, too, the estimate is of a state of the
        machine in which it was.
        """
        target = self.target if target is None else target
        results = self._results([*plan.keys, plan.digest], target.key)
        return self._basis(plan, results, target).estimate()

    def _basis(self, plan: Plan, results: Results, target: Target) -> Basis:
        construction = None
        if self.options.workers > 1:
            construction = self._construction(plan, self.store.load_bricks(plan.keys), target)
        predictions = self._predictions(plan.keys, results, target)
        whole = results.get(plan.digest)
        state_s = None
        if isinstance(whole, Measurement):
            state_s = state_of(plan, results, whole, predictions)
        return Basis(plan, results, predictions, construction, state_s)

    def profile(self, model: Model) -> Profile:
        """What the runtime itself says of a run of ``model``: which node ran when.

        Nothing of it is kept. Raises :class:`~bricks.errors.BricksError` where there is none.
        """
        job = self._whole_job(model)
        on_wait = partial(self._progress, WAITING, 0.0)
        turn = timing_lock(on_wait) if self._conditions.exclusive else nullcontext()
        # What other models have left in a worker would count against the memory of this one.
        self._supervisor.reset()
        with turn, self._memory_for([job]):
            self._progress(f"profiling {model.name}", 0.0)
            return self._graphs.profile(job)

    def merge(self, results: Path) -> Merged:
        """Take in what another cache exported into a file: all of it, or nothing.

        Raises :class:`~bricks.errors.StoreError` where the file is damaged or cannot be true. What
        was predicted before may be predicted otherwise from now on.
        """
        merged = self.store.merge(results, mismatch)
        self._known.clear()  # learned without what came
        return merged

    def compare(self, models: Iterable[Model]) -> Comparison:
        """Estimates against whole-model runs; what the cache lacks of either is sampled in turn.

        Whole models are measured once per target and number of workers too, so a second comparison
        runs nothing.
        """
        models = list(models)
        rows: dict[int, ModelComparison | ComparisonFailure] = {}
        jobs: dict[int, Job] = {}
        for number, model in enumerate(models):
            try:
                jobs[number] = self._whole_job(model)
            except (BackendError, ModelError, WorkerError) as error:
                rows[number] = ComparisonFailure(model.name, str(error))
        outcome = self._spend(list(jobs.values()))
        keys = {k for job in jobs.values() for k in (*job.decomposition.plan.keys, job.whole_key)}
        found = dict(self._results(sorted(keys), self.target.key))
        wholes = {job.whole_key: job.model.digest for job in jobs.values()}
        results = {wholes.get(key, key): result for key, result in found.items()}
        predictions = self._predictions(sorted(keys - wholes.keys()), results, self.target)
        for number, job in jobs.items():
            rows[number] = self._row(job, results, predictions, outcome)
        ordered = tuple(rows[number] for number in sorted(rows))
        summary = summarise(
            [row for row in ordered if isinstance(row, ModelComparison)],
            results,
            decompose_s={j.model.digest: j.decomposition.wall_s for j in jobs.values()},
            read_s={j.model.digest: j.model.read_s for j in jobs.values()},
        )
        new = len(wholes.keys() & set().union(*outcome.measured.values()))
        return Comparison(
            target=self.target,
            granularity=str(self._granularity),
            rows=ordered,
            summary=summary,
            new_models=new,
            foreign_cores=outcome.foreign_cores,
            rounds=outcome.rounds,
            disturbed_rounds=outcome.disturbed,
            remeasured_bricks=len(outcome.again),
            eviction_short=outcome.eviction_short,
        )

    def _row(
        self, job: Job, results: Results, predictions: Predictions, outcome: CampaignResult
    ) -> ModelComparison | ComparisonFailure:
        plan, name = job.decomposition.plan, job.model.name
        new = len(outcome.measured.get(plan.digest, frozenset()) & set(plan.keys))
        whole = results.get(plan.digest)
        run = whole if isinstance(whole, Measurement) else None
        state_s = state_of(plan, results, run, predictions)
        construction = None
        if job.streams:
            construction = self._construction(plan, job.decomposition.bricks, self.target)
        estimate = recompose(
            plan, results, state_s, predictions=predictions, construction=construction
        )
        if isinstance(estimate, IncompleteEstimate):
            missing = incomplete(name, plan, estimate, new)
            return replace(missing, error=missing.error + explain_failure(job.model, missing.error))
        if not isinstance(whole, Measurement):
            reason = "not measured within the budget" if whole is None else whole.reason
            error = (
                f"{name}: the whole model was not run: {reason}{explain_failure(job.model, reason)}"
            )
            return ComparisonFailure(name, error, plan, new)
        return ModelComparison(name, plan, new, round_spread(whole, state_s), estimate)

    def _whole_job(self, model: Model) -> Job:
        decomposition, workers = self.decompose(model), self.options.workers
        streams: tuple[int, ...] = ()
        if workers > 1:
            streams = streams_of(decomposition.plan, decomposition.bricks, workers)
        return Job(model, decomposition, whole=True, streams=streams, workers=workers)

    def _construction(
        self, plan: Plan, bricks: Mapping[str, Brick], target: Target
    ) -> Construction:
        """How the workers run ``plan`` on ``target``."""
        options = self.options
        # The fake runtime has no threads that could be in each other's way.
        return Construction(
            workers=options.workers,
            streams=streams_of(plan, bricks, options.workers),
            bricks=bricks,
            rule=options.may_overlap,
            threads=target.runtime.threads if self._timed else 1,
            processors=target.system.processors if self._timed else None,
        )

    def _spend(self, jobs: Sequence[Job]) -> CampaignResult:
        """Measure for ``jobs`` what the cache lacks: all of it, or what is worth it."""
        budget_s = self._conditions.budget_s
        whole = any(job.whole for job in jobs)
        if not jobs or (self._effort.complete and (whole or budget_s is None)):
            return self._campaign(jobs, budget_s, self._progress)
        adaptive = AdaptiveMeasurement(
            jobs, self.latency_model(), self._effort, budget_s, self._progress
        )
        if adaptive.untried:
            self._supervisor.awaken()  # while it is decided what to measure first
        return adaptive.run(self._campaign)

    def _campaign(
        self, jobs: Sequence[Job], budget_s: float | None, progress: Progress
    ) -> CampaignResult:
        self._plans.save_target()
        if self.options.retry:
            keys = {key for job in jobs for key in job.keys}
            self.store.forget_failures(self.target.key, sorted(keys | set(PROBES.values())))
        conditions = replace(self._conditions, budget_s=budget_s)
        if budget_s is not None:  # time is up sooner than many are loaded
            conditions = replace(conditions, max_bricks=min(conditions.max_bricks, _FEW_BRICKS))
        campaign = Campaign(self.store, self._supervisor, self.target.key, conditions, progress)
        with self._memory_for(jobs):
            outcome = campaign.run(jobs)
        self.latency_model().invalidate()
        return outcome

    def _memory_for(self, jobs: Sequence[Job]) -> AbstractContextManager[None]:
        """The memory that measuring ``jobs`` may take, and no more of it."""
        if self.options.memory_bytes is not None or not self._bounded_memory:
            return nullcontext()
        return self._supervisor.memory_limited(
            memory_bytes(jobs, self._conditions.max_weight_bytes)
        )

    def _predictions(self, keys: Sequence[str], results: Results, target: Target) -> Predictions:
        """What is to be expected of those bricks that were not tried."""
        if all(key in results for key in keys):
            return Predictions()  # at once: looking through all of the cache takes a while
        latency_model = self.latency_model(target)
        for decomposition in self._plans.met():
            latency_model.add_model(decomposition)
        return latency_model.predictions(keys)

    def _results(self, keys: Sequence[str], target_key: str) -> Results:
        return self.store.results(target_key, [*keys, *PROBES.values()])
