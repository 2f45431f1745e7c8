"""The main path as one object: read, decompose, measure, predict, compare.

A :class:`Bench` is a cache, a runtime on this host, and a granularity. It starts a worker process
when a model or brick has to run, and not before. Must not render anything.
"""

from __future__ import annotations

import logging
import tempfile
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from bricks import backends
from bricks.backends import BackendInfo
from bricks.compose.estimate import Estimate, IncompleteEstimate
from bricks.compose.memory import PeakMemory, UnknownMemory, peak_memory
from bricks.compose.recompose import Basis
from bricks.decompose.context import around_bytes
from bricks.decompose.granularity import Granularity
from bricks.decompose.identity import mismatch
from bricks.decompose.plan import Brick, Decomposition, Plan, by_itself
from bricks.decompose.streams import streams_of
from bricks.errors import StoreError, WorkerError
from bricks.graph.model import Model
from bricks.graph.program import is_program
from bricks.graph.view import parse_model
from bricks.measure.campaign import CampaignResult, Progress
from bricks.measure.graphs import Decomposer, Graphs
from bricks.measure.jobs import Job
from bricks.measure.protocol import pack
from bricks.measure.rounds import StopRule
from bricks.measure.served import ServedWalk
from bricks.measure.supervisor import Freed, Supervisor, WorkerSettings
from bricks.measure.timing_lock import WAITING, timing_lock
from bricks.samples.call_overhead import needed_by
from bricks.samples.measurement import Failure
from bricks.samples.memory_peaks import MemoryPeaks
from bricks.samples.profile import Profile
from bricks.session.campaigns import Campaigns
from bricks.session.defaults import CACHE, PROBE_BRICKS, PROBING_S, PROGRAMS_RUNTIME
from bricks.session.estimator import Estimator
from bricks.session.latency_model import LatencyModel
from bricks.session.options import Options, conditions_of, effort_of, runtime_of
from bricks.session.plans import Plans
from bricks.session.reading import read
from bricks.session.summaries import Comparison, Measured, Probed
from bricks.store import Elsewhere, Merged, Published, Reading, Store, Union
from bricks.store.published_index import NOWHERE
from bricks.system import Target, available_memory_bytes, fingerprint
from bricks.system.allocator import KEPT

if TYPE_CHECKING:
    import onnx
    from onnx_graphsurgeon import Graph

_logger = logging.getLogger(__name__)


def _silent(what: str, share: float) -> None:
    """No progress is shown."""


class Bench:
    """A cache and a runtime on this host; use it as a context manager, or close it."""

    def __init__(
        self,
        cache: str | Path = CACHE,
        options: Options | None = None,
        *,
        progress: Progress = _silent,
        **changes: Any,
    ) -> None:
        """Open ``cache`` (folder or database URL); ``changes`` are fields of :class:`Options`.

        Raises :class:`UsageError` for invalid options, and :class:`~bricks.errors.StoreError` for a
        cache that cannot be used.
        """
        self.options = options = replace(options or Options(), **changes)
        self._granularity = Granularity.parse(options.granularity)
        effort = effort_of(options)
        self._info = info = backends.describe(options.runtime)
        self.runtime = runtime_of(options, info)
        self.target = Target(fingerprint(), self.runtime)
        self._conditions = conditions_of(options, info, self.target)
        self._progress = progress
        with ExitStack() as opened:  # closed again if a later step raises
            self.store = Store.open(cache)
            opened.callback(self.store.close)
            self.published = Published() if options.published else Published(NOWHERE)
            self.known: Reading = Union(self.store, self.published)
            self.target = replace(self.target, system=self.store.named(self.target.system))
            self._settings = self._worker_settings(info)
            self._supervisor = Supervisor(self._settings)
            opened.callback(self._supervisor.close)
            self._graphs = Graphs(self._supervisor, options.graph_timeout_s)
            self._plans = Plans(
                self.store,
                self.known,
                self.target,
                self._granularity,
                self._cut,
                kept=options.keep_plans,
            )
            prior = self._estimator_of(self.published)
            self._estimator = self._estimator_of(self.known, prior)
            # Where bricks are measured here, what others measured on such a host is no part.
            self._measured_estimator = self._estimator
            if any(target.key == self.target.key for target in self.published.targets()):
                beside = Elsewhere(self.published, self.target.key)
                self._measured_estimator = self._estimator_of(Union(self.store, beside), prior)
            self._campaigns = Campaigns(
                self.store,
                self._supervisor,
                self._plans,
                self.target,
                options,
                effort=effort,
                conditions=self._conditions,
                bounded_memory=info.bounded_memory,
                latency_model=partial(self._measured_estimator.latency_model, self.target),
                measured=self._note_measured,
                progress=progress,
            )
            self._opened = opened.pop_all()
        _logger.info("the cache is %s", self.store.path)
        _logger.info(
            "the target is %s with %s %s, threads: %d",
            self.target.system.name, info.name, info.version, self.runtime.threads,
        )  # fmt: skip

    def _estimator_of(self, source: Reading, prior: Estimator | None = None) -> Estimator:
        return Estimator(
            source,
            str(self._granularity),
            self.options,
            timed=self._info.timed,
            decomposed=self._plans.met,
            prior=prior,
        )

    def _note_measured(self, remeasured: Collection[str]) -> None:
        for estimator in {self._estimator, self._measured_estimator}:
            estimator.note_measured(self.target, remeasured)

    def _worker_settings(self, info: BackendInfo) -> WorkerSettings:
        options = self.options
        return WorkerSettings(
            info.name,
            self.runtime.threads,
            options.seed,
            options.memory_bytes or int(available_memory_bytes() * 0.9),
            workers=options.workers,
            optimization=options.optimization,
            freed=Freed.KEPT if self.runtime.allocator == KEPT else None,
            python=info.python,
        )

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
        """Called with the current activity and the share of it that is done."""
        return self._progress

    def close(self) -> None:
        """End the worker and close the cache."""
        self._opened.close()

    def read(
        self,
        model: str | Path | onnx.ModelProto | Graph,
        *,
        name: str | None = None,
        batch: int | None = None,
        shapes: Mapping[str, Sequence[int | None]] | None = None,
        values: Mapping[str, Any] | None = None,
    ) -> Model:
        """The model in an ONNX file, of a zoo name, or in memory, with its open dimensions fixed.

        In memory it is an ``onnx.ModelProto``, or a ``Graph`` of onnx-graphsurgeon (the package's
        extra ``graphsurgeon`` brings that library); it is copied to a temporary file that stays
        until the bench is closed, and may be edited further.
        ``name`` overrides the name of its file or graph. ``values`` are the values of inputs that
        cannot be synthetic; see :func:`read_model`, which also lists the errors.
        """
        return read(
            model,
            name=name,
            batch=batch,
            shapes=shapes,
            values=values,
            runtime=self.runtime,
            seed=self.options.seed,
            folder=self._folder_of_its_own,
        )

    def _folder_of_its_own(self) -> Path:
        """A folder that exists as long as the bench is open."""
        folder = tempfile.TemporaryDirectory(prefix="bricks-model-", ignore_cleanup_errors=True)
        self._opened.callback(folder.cleanup)
        return Path(folder.name)

    def decompose(self, model: Model) -> Decomposition:
        """The model's plan and bricks; from the cache if it was decomposed before."""
        return self._plans.decomposition(model)

    def _cut(self, model: Model) -> Decomposition:
        self._progress(f"decomposing {model.name}", 0.0)
        if not self._info.programs and is_program(parse_model(model.skeleton)):
            raise WorkerError(
                f"{model.name} is a recorded program, and {self._info.name} runs ONNX models:"
                f" choose --runtime {PROGRAMS_RUNTIME}"
            )
        return self._graphs.decomposed(model, self._granularity)

    def knows(self, model: Model) -> bool:
        """Whether the cache holds the model's plan, so that nothing has to be decomposed."""
        return self._plans.knows(model)

    def decomposer(self, among: int) -> Decomposer:
        """A decomposer for this bench's models, with a worker and a thread of its own.

        Memory is divided by ``among``, the number of decomposers. Nothing is put into the cache.
        """
        memory = self.options.memory_bytes or int(available_memory_bytes() * 0.9)
        settings = replace(self._settings, threads=1, memory_bytes=memory // among)
        return Decomposer(settings, self._granularity, self.options.graph_timeout_s)

    def keep(self, decomposition: Decomposition) -> None:
        """Put into the cache a decomposition for this bench's target, made here or elsewhere."""
        self._plans.keep(decomposition)

    def plan(self, model: Model, *, target: Target | None = None) -> Plan:
        """The model's plan on ``target``, by default this one; decomposes it if it isn't known.

        Raises :class:`UsageError` if the model was never decomposed on another target and its
        executed graph depends on that target.
        """
        return self._plans.on(model, self.target if target is None else target)

    def known_plan(self, digest: str, *, target: Target | None = None) -> Plan | None:
        """The plan of the model with this digest, if it is known on ``target``, by default this.

        Nothing is decomposed. The plan has the name that it was made under.
        """
        return self._plans.of_digest(digest, self.target if target is None else target)

    def bricks(self, plan: Plan) -> Mapping[str, Brick]:
        """The bricks of ``plan``, by key; StoreError where the cache lacks one."""
        return self._plans.bricks(plan)

    def latency_model(self, target: Target | None = None) -> LatencyModel:
        """The latency model of bricks on ``target``, by default this one."""
        return self._estimator.latency_model(self.target if target is None else target)

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

    def evaluate(self, model: Model, *, repeats: int, **fields: Any) -> dict[str, Any]:
        """What the runtime computes of ``model``, ``repeats`` times, beside a reference in double.

        ``fields`` are those of the worker's request ``evaluate`` (``measure/protocol.py``); see
        ``measure/worker/accuracy``.
        """
        self._progress(f"evaluating {model.name}", 0.0)
        return self._graphs.ask(
            model, "evaluate", model=pack(model.skeleton), repeats=repeats, **fields
        )

    def measure(
        self,
        models: Iterable[Model],
        alone: Iterable[Brick] = (),
        *,
        only: Collection[str] | None = None,
    ) -> Measured:
        """Measure the bricks of ``models`` that are missing in the cache; stored results stay.

        Also measures each brick in ``alone``, which belong to no known model. If ``only`` is not
        None, it limits the models' bricks to these keys.
        """
        started = time.perf_counter()
        chosen = None if only is None else frozenset(only)
        jobs = [Job(model, self.decompose(model), whole=False, chosen=chosen) for model in models]
        if chosen is not None:
            jobs = [job for job in jobs if job.keys]
        alone = list(alone)
        self.store.save_bricks(alone)
        jobs += [self._lone_job(self._by_itself(brick)) for brick in alone]
        result = self._campaigns.measure(jobs)
        keys = {key for job in jobs for key in job.keys}
        settled = self.store.settled(self.target.key, sorted(keys))
        return Measured(
            models=len(jobs) - len(alone),
            occurrences=sum(
                len(job.decomposition.plan.occurrences) for job in jobs[: len(jobs) - len(alone)]
            ),
            bricks=len(keys),
            new_bricks=len(set().union(*result.measured.values()) & keys),
            predicted_bricks=len(keys - settled - result.unfinished),
            failures=tuple(self.store.failures(self.target.key, sorted(keys))),
            unfinished=len(result.unfinished),
            wall_s=time.perf_counter() - started,
            **result.sampling_fields,
        )

    def probe(
        self, models: Iterable[Model], *, bricks: int = PROBE_BRICKS, budget_s: float = PROBING_S
    ) -> Probed:
        """Measure the few ``bricks`` of ``models`` that are most informative about this target.

        Measurements of other targets in the cache give the expected latencies, and these bricks
        show how this target differs: afterwards all others can be predicted. Takes at most about
        ``budget_s`` seconds of measuring. Bricks that are already measured count, and are not
        measured again.
        """
        from bricks.session.probing import probe

        return probe(
            (Job(model, self.decompose(model), whole=False) for model in models),
            bricks,
            budget_s,
            known=self.known,
            results=partial(self.store.results, self.target.key),
            latency_model=self._measured_estimator.latency_model(self.target),
            campaigns=self._campaigns,
        )

    def measure_alone(
        self, bricks: Iterable[Brick | Decomposition], *, rule: StopRule | None = None
    ) -> CampaignResult:
        """Measure ``bricks``, each by itself, whatever the effort; stored results stay.

        As ``decompose.plan.by_itself`` runs them, or decomposed so already. Until
        ``rule`` is met, by default that of the options.
        """
        alone = [self._by_itself(each) if isinstance(each, Brick) else each for each in bricks]
        self.store.save_bricks([brick for each in alone for brick in each.bricks.values()])
        return self._campaigns.measure_all(list(map(self._lone_job, alone)), None, rule=rule)

    def _by_itself(self, brick: Brick) -> Decomposition:
        """A brick of no known model, as if it were one."""
        return by_itself(brick, str(self._granularity), around_bytes=around_bytes(brick))

    @staticmethod
    def _lone_job(alone: Decomposition) -> Job:
        (key,) = alone.bricks
        nothing = Model(key, Path(), b"", (), alone.plan.digest)
        return Job(nothing, alone, whole=False)

    def run(self, models: Iterable[Model]) -> CampaignResult:
        """Measure whole ``models`` and none of their bricks: the baseline for comparisons."""
        jobs = [replace(self._whole_job(model), chosen=frozenset()) for model in models]
        return self._campaigns.measure_all(jobs, self._conditions.budget_s)

    def predict(
        self, model: Model, *, measure: bool = True, target: Target | None = None
    ) -> Estimate | IncompleteEstimate:
        """The model's latency, recomposed; with ``measure``, missing bricks are measured first.

        Bricks that the effort or the budget leaves out, or that are missing without ``measure``,
        are predicted from the target's measured bricks, if there are enough to learn from; else
        they stay a gap. ``target`` is another target of the cache: nothing can be measured there.
        Raises :class:`UsageError` if the model was never decomposed there and its executed graph
        depends on it.
        """
        return self.basis(model, measure=measure, target=target).estimate()

    def basis(self, model: Model, *, measure: bool = True, target: Target | None = None) -> Basis:
        """The inputs of the estimate of :meth:`predict`."""
        target = self.target if target is None else target
        elsewhere = target.key != self.target.key
        plan = self.plan(model, target=target)
        measure = measure and not elsewhere
        estimator = self._estimator_for(plan, target, measure=measure)
        results = estimator.results(needed_by(plan), target)
        resolved = results.keys() >= set(needed_by(plan))
        if self.options.retry and any(isinstance(r, Failure) for r in results.values()):
            resolved = False
        if measure and not resolved:
            self._campaigns.measure([Job(model, self.decompose(model), whole=False)])
            results = estimator.results(needed_by(plan), target)
        return estimator.basis(plan, results, target)

    def predict_plan(
        self, plan: Plan, *, target: Target | None = None
    ) -> Estimate | IncompleteEstimate:
        """The latency of ``plan``, as :meth:`predict` tells it without measuring."""
        target = self.target if target is None else target
        estimator = self._estimator_for(plan, target)
        results = estimator.results(needed_by(plan), target)
        return estimator.basis(plan, results, target).estimate()

    def _estimator_for(self, plan: Plan, target: Target, *, measure: bool = False) -> Estimator:
        """The estimator of ``plan``: others' measurements are read where this host's lack some."""
        here = target.key == self.target.key and self._measured_estimator is not self._estimator
        if not here or measure:
            return self._measured_estimator if measure else self._estimator
        keys = set(needed_by(plan))
        measured = keys == self.store.settled(target.key, sorted(keys))
        return self._measured_estimator if measured else self._estimator

    def recomposed(
        self, plan: Plan, *, target: Target | None = None
    ) -> Estimate | IncompleteEstimate:
        """The latency of ``plan`` on ``target``, from the contents of the cache.

        Nothing is measured. If the whole model was measured too, the estimate is for a machine
        state of that measurement.
        """
        target = self.target if target is None else target
        results = self._estimator.results([*needed_by(plan), plan.digest], target)
        return self._estimator.basis(plan, results, target).estimate()

    def predict_memory(
        self, model: Model, *, target: Target | None = None
    ) -> PeakMemory | UnknownMemory:
        """The peak memory of a process that loads and runs ``model``, from its plan alone.

        Nothing is measured, and no weight is read. ``target`` is another target of the cache; it
        raises :class:`UsageError` as :meth:`predict` does.
        """
        if target is None or target.key == self.target.key:
            return self._memory(self.decompose(model), self.target)
        return self.recomposed_memory(self.plan(model, target=target), target=target)

    def recomposed_memory(
        self, plan: Plan, *, target: Target | None = None
    ) -> PeakMemory | UnknownMemory:
        """The peak memory of ``plan`` on ``target``; see :meth:`predict_memory`."""
        target = self.target if target is None else target
        try:
            found = Decomposition(plan, self._plans.bricks(plan), 0.0)
        except StoreError as error:
            return UnknownMemory(plan.model, str(error))
        return self._memory(found, target)

    def _memory(self, of: Decomposition, target: Target) -> PeakMemory | UnknownMemory:
        return peak_memory(of.plan, of.bricks, target.runtime, workers=self.options.workers)

    def measure_memory(
        self, model: Model, *, inline: bool = False, keeps_freed: bool = False
    ) -> MemoryPeaks:
        """The peak memory of a fresh process that loads ``model`` and runs it a few times.

        Its weights are synthetic, in a file beside the model, or with ``inline`` in the model's own
        file. With ``keeps_freed``, the process keeps freed memory as the C library does by default;
        otherwise it counts what the runtime needs (docs/memory.md). The result is not stored.
        Raises :class:`~bricks.errors.WorkerError` where the runtime or the system has no such
        measurement.
        """
        freed = Freed.BY_DEFAULT if keeps_freed else Freed.RETURNED
        self._progress(f"measuring the memory of {model.name}", 0.0)
        with Supervisor(replace(self._settings, freed=freed)) as fresh:
            graphs = Graphs(fresh, self.options.graph_timeout_s)
            return graphs.memory_peaks(model, inline=inline)

    def profile(self, model: Model) -> Profile:
        """The runtime's own profile of a run of ``model``: which node ran when.

        The profile is not stored. Raises :class:`~bricks.errors.BricksError` if there is none.
        """
        job = self._whole_job(model)
        on_wait = partial(self._progress, WAITING, 0.0)
        turn = timing_lock(on_wait) if self._conditions.exclusive else nullcontext()
        # Memory that a worker still holds from other models would count against this one's limit.
        self._supervisor.reset()
        with turn, self._campaigns.memory_for([job]):
            self._progress(f"profiling {model.name}", 0.0)
            return self._graphs.profile(job)

    def worker(self) -> Supervisor:
        """A worker of its own for this bench's runtime, for what is neither brick nor model."""
        return Supervisor(self._settings)

    @contextmanager
    def served_walk(self, model: Model) -> Iterator[ServedWalk]:
        """A server, in a worker of its own, that runs the model's bricks in place of the model."""
        decomposition = self.decompose(model)
        with closing(self.worker()) as worker:
            yield ServedWalk(worker, decomposition, self._conditions)

    @contextmanager
    def timing(self) -> Iterator[None]:
        """Meanwhile, nobody else of this user times on this host, nor does this bench."""
        on_wait = partial(self._progress, WAITING, 0.0)
        self._supervisor.reset()  # its threads and memory would be in the way
        with timing_lock(on_wait) if self._conditions.exclusive else nullcontext():
            yield

    def merge(self, results: Path) -> Merged:
        """Import a file that another cache exported: all of it, or nothing.

        Raises :class:`~bricks.errors.StoreError` if the file is damaged or implausible. Later
        predictions may differ from earlier ones.
        """
        merged = self.store.merge(results, mismatch)
        for estimator in (self._estimator, self._measured_estimator):
            estimator.forget()  # it has learned without the imported results
        return merged

    def compare(self, models: Iterable[Model]) -> Comparison:
        """Estimates against whole-model runs; missing bricks and models are sampled in turn.

        Whole models are measured once per target and number of workers, so a second comparison runs
        nothing.
        """
        from bricks.session.comparing import compare

        return compare(
            models,
            target=self.target,
            granularity=str(self._granularity),
            whole_job=self._whole_job,
            campaigns=self._campaigns,
            estimator=self._measured_estimator,
        )

    def _whole_job(self, model: Model) -> Job:
        decomposition, workers = self.decompose(model), self.options.workers
        streams: tuple[int, ...] = ()
        if workers > 1:
            streams = streams_of(decomposition.plan, decomposition.bricks, workers)
        return Job(model, decomposition, whole=True, streams=streams, workers=workers)
