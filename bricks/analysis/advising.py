"""Finds the settings in which models meet an SLO: targets, instances, batches and hosts.

Nothing is measured. A setting never has more threads in all instances than its system has physical
cores.

Where a candidate is undecided, it says what would decide, and what measuring that costs. Must not
know commands, nor how advice is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from bricks.analysis.advice import AdvisedSetting, Candidate, NoSetting
from bricks.compose.queueing.batching import batch_sizes
from bricks.compose.queueing.run import complete_estimate, run_latency
from bricks.compose.slo import MeetsSlo, meets_slo, per_million
from bricks.errors import BricksError, ModelError
from bricks.predict.cost import fit
from bricks.samples.call_overhead import needed_by
from bricks.session import predicting
from bricks.session.agreement import kept
from bricks.sources import Unread
from bricks.studies.serving.hosts import ServedSetting, least
from bricks.studies.serving.scenario import ScenarioKind, ScenarioLoad, Serving
from bricks.studies.serving.service import BatchLatency, ServiceTimes, batch_latency, most_instances

if TYPE_CHECKING:
    from bricks.decompose.plan import Plan
    from bricks.graph.model import Model
    from bricks.session.agreement import Agreement
    from bricks.session.workspace import Workspace
    from bricks.system import Target

# The batch that is tried unless others are asked for; larger ones where one host does not suffice.
_SINGLE, _LARGER = (1,), (2, 4, 8)
# Larger batches are tried as long as the throughput grows by more than this share.
_GROWTH = 0.02

# Costs of unmeasured bricks are learned from at most so many measured ones.
_LEARNED_FROM = 300


@dataclass(frozen=True, slots=True)
class CandidateModel:
    """A model by its ``name``; ``read`` reads it with a batch, None for its own.

    ``word`` names it on a command line, None if it could not be read.
    """

    name: str
    read: Callable[[int | None], Model | Unread]
    word: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """The SLO of ``slo_s`` seconds for a ``percentile`` of latencies, and the settings to try.

    Without ``qps`` it is about single runs, typical ones without a ``percentile``. ``batches`` and
    ``instances`` are numbers to try, None for those that may pay.
    """

    targets: Sequence[Target]
    slo_s: float
    percentile: float | None = None
    qps: float | None = None
    batches: Sequence[int] | None = None
    instances: Sequence[int] | None = None

    @property
    def counted_percentile(self) -> float | None:
        """The percentile that the SLO is for; None for the typical run."""
        return self.percentile if self.qps is None else self.load.counted_percentile

    @property
    def load(self) -> ScenarioLoad:
        """The load of a server."""
        return ScenarioLoad(
            ScenarioKind.SERVER, self.qps, slo_s=self.slo_s, percentile=self.percentile
        )


def advise(workspace: Workspace, model: CandidateModel, question: Question) -> Candidate:
    """The settings of ``model`` that answer ``question``."""
    if question.qps is None:
        settings: list[AdvisedSetting] = []
        failures: list[NoSetting] = []
        for batch in question.batches or (None,):
            sized = model.read(batch)
            if isinstance(sized, Unread):
                return Candidate(model=model.name, unread=sized.error)
            for target in question.targets:
                try:
                    settings.append(_run(workspace, sized, target, question, batch))
                except BricksError as error:
                    failures.append(
                        NoSetting(model=model.name, target=target, batch=batch, error=str(error))
                    )
        return Candidate(model=model.name, settings=tuple(settings), failures=tuple(failures))
    return _served(_KnownModel(workspace, model), question)


def agreements(workspace: Workspace, model: CandidateModel, question: Question) -> list[Agreement]:
    """Kept verdicts on whether the runtime that is advised on computes what others do.

    These are runtimes that the cache knows of the same systems.
    """
    batches = question.batches if question.qps is None else _SINGLE
    of = model.read(batches[0] if batches else None)
    if isinstance(of, Unread):
        return []
    systems = {target.system.key for target in question.targets}
    known = [t for t in workspace.known.systems.targets() if t.system.key in systems]
    runtime = workspace.runtime.backend
    return [a for a in kept(of.name, of.digest, known) if runtime in (a.one, a.other)]


def _run(
    workspace: Workspace, model: Model, target: Target, question: Question, batch: int | None
) -> AdvisedSetting:
    _refuse_crowding(target, 1)
    known = predicting.basis(workspace, model, measure=False, target=target)
    which = f"{model.name} on {target.system.name}"
    estimate = complete_estimate(known, which)
    latency_s = estimate.latency_s
    if question.percentile is not None:
        run = run_latency(known, which, seed=0)
        if not run.spread_known:
            raise ModelError(
                f"{which}: no measured brick tells how its runs differ, so no percentile is known:"
                " leave out --percentile"
            )
        latency_s = latency_s.scaled(float(np.percentile(run.factors, question.percentile)))
    quota, run_s = target.system.quota, estimate.estimate_s
    if quota is not None:  # of runs in a loop
        percent = 50.0 if question.percentile is None else question.percentile
        latency_s = latency_s.map(lambda work_s: quota.percentile_s(work_s, percent))
        run_s = quota.mean_s(run_s)
    price, size = target.system.price_per_hour, known.plan.inferences if batch is None else batch
    return AdvisedSetting(
        model=model.name,
        target=target,
        batch=batch,
        latency_s=latency_s,
        provenance=estimate.provenance,
        meets_slo=meets_slo(latency_s, question.slo_s),
        cost_per_million=None if price is None else per_million(price, run_s, size),
    )


def _refuse_crowding(target: Target, instances: int) -> None:
    """:class:`ModelError` if ``instances`` have more threads than the system has cores."""
    if instances > most_instances(target):
        needed = instances * target.runtime.threads
        cores = target.system.identity.get("physical_cores")
        raise ModelError(
            f"{needed} threads need {needed} cores, and {target.system.name} has {cores}"
        )


class _KnownModel:
    """A model in batches of any size on any target, read and estimated once."""

    def __init__(self, workspace: Workspace, model: CandidateModel) -> None:
        self.workspace, self.name = workspace, model.name
        self._read = model.read
        self._models: dict[int, Model | Unread] = {}
        self._batches: dict[tuple[str, int], BatchLatency] = {}

    def sized(self, size: int) -> Model | Unread:
        if size not in self._models:
            self._models[size] = self._read(size)
        return self._models[size]

    def times(self, target: Target, largest: int) -> ServiceTimes:
        """Latencies of batches on ``target``; :class:`BricksError` where there is no estimate."""
        if target.system.quota is not None:
            raise ModelError(
                f"{self.name}: how many hosts keep a rate is not known where a quota of"
                f" {target.system.processors:.3g} processors stops them, as on"
                f" {target.system.name}: ask 'bricks scenario' about one of them"
            )
        return ServiceTimes([self._batch(target, size) for size in batch_sizes(largest)])

    def _batch(self, target: Target, size: int) -> BatchLatency:
        if (target.key, size) not in self._batches:
            model = self.sized(size)
            if isinstance(model, Unread):
                raise ModelError(model.error)
            batch = batch_latency(self.workspace, size, model, target)
            self._batches[target.key, size] = batch
        return self._batches[target.key, size]


@dataclass(frozen=True, slots=True)
class _Tried:
    """A setting on a ``target``, and how it serves the rate."""

    target: Target
    served: ServedSetting

    def advised(self, model: str, qps: float) -> AdvisedSetting:
        largest = self.served.times.batches[-1]
        hosts, price = self.served.range, self.target.system.price_per_hour
        cost = None
        if price is not None and hosts.hosts is not None:
            cost = hosts.hosts * price / (3600 * qps) * 1e6
        return AdvisedSetting(
            model=model,
            target=self.target,
            instances=self.served.serving.instances,
            batch=self.served.serving.max_batch,
            latency_s=self.served.latency_s,
            provenance=largest.run.provenance,
            meets_slo=hosts.meets_slo,
            hosts=hosts,
            spread_known=largest.run.spread_known,
            cost_per_million=cost,
        )


def _served(model: _KnownModel, question: Question) -> Candidate:
    """``model`` on servers of all targets."""
    single = model.sized(1)
    if isinstance(single, Unread):
        return Candidate(model=model.name, unread=single.error)
    tried: list[_Tried] = []
    failures: list[NoSetting] = []
    for target in question.targets:
        for batch in question.batches or _SINGLE:
            try:
                tried += _on(model, target, batch, question)
            except BricksError as error:
                failures.append(
                    NoSetting(model=model.name, target=target, batch=batch, error=str(error))
                )
    if question.batches is None:
        tried += _larger(model, tried, question)
    assert question.qps is not None
    settings = tuple(of.advised(model.name, question.qps) for of in tried)
    candidate = Candidate(model=model.name, settings=settings, failures=tuple(failures))
    rates = (of.served for of, setting in zip(tried, settings, strict=True)
             if setting is candidate.best)  # fmt: skip
    served = next(rates, None)
    return replace(candidate, max_qps=None if served is None else served.max_qps)


def _on(model: _KnownModel, target: Target, batch: int, question: Question) -> Iterator[_Tried]:
    """A target with every number of instances; :class:`BricksError` if there is no estimate."""
    times = model.times(target, batch)
    for instances in _instances(target, question.instances):
        serving = Serving(max_batch=batch, instances=instances)
        seed = model.workspace.options.seed
        yield _Tried(target, ServedSetting(times, question.load, serving, seed=seed))


def _instances(target: Target, asked: Sequence[int] | None) -> Sequence[int]:
    """The numbers of instances that have a core for each thread.

    Raises :class:`ModelError` if none of those ``asked`` for has.
    """
    most = most_instances(target)
    if asked is None and most:
        return batch_sizes(most)
    fitting = [instances for instances in asked or () if instances <= most]
    if not fitting:
        _refuse_crowding(target, min(asked or (1,)))
    return fitting


def _larger(model: _KnownModel, tried: Sequence[_Tried], question: Question) -> Iterator[_Tried]:
    """Larger batches on the best target, as long as they pay, where one host does not suffice.

    A sample waits for the batch that runs when it arrives, and then for its own: a batch pays only
    where two runs are within the bound.
    """
    fewest = least([of.served.range for of in tried]).fewest if tried else None
    if fewest is None or fewest == 1:
        return
    best = min(
        (of for of in tried if of.served.range.fewest == fewest),
        key=lambda of: of.served.latency_s.value,
    )
    if 2 * best.served.times.latency(1).low > question.slo_s:
        return
    for size in _LARGER:
        try:
            before, largest = model.times(best.target, size).batches[-2:]
            if largest.throughput.value <= (1 + _GROWTH) * before.throughput.value:
                return
            yield from _on(model, best.target, size, question)
        except BricksError:
            return  # there is no estimate of larger batches


def deciding_setting(candidate: Candidate, here: Target) -> AdvisedSetting | None:
    """The undecided setting that is worth measuring; None for a candidate that is decided.

    Of those that may do with the fewest hosts, one on the system of ``here``, else the fastest.
    """
    if not candidate.undecided:
        return None
    fewest = None if candidate.range is None else candidate.range.fewest
    open_ = [
        setting
        for setting in candidate.settings
        if setting.meets_slo is MeetsSlo.UNCERTAIN
        and (setting.hosts is None or setting.hosts.fewest == fewest)
    ]
    return min(
        open_,
        key=lambda of: (of.target.system.key != here.system.key, of.latency_s.value),
        default=None,
    )


def measured_again(setting: AdvisedSetting) -> bool:
    """Whether all of the setting's estimate is measured, so that only further rounds decide."""
    of = setting.provenance
    return not round(of.published_share + of.predicted_share, 6)


def measuring_s(workspace: Workspace, plan: Plan, target: Target) -> float | None:
    """About how many seconds measuring ``plan`` on ``target`` takes; None if it is not known.

    Bricks in the own cache count only where all are measured, and so would be measured again.
    """
    keys = [*needed_by(plan)]
    own = workspace.store.measurements.results(target.key, keys)
    missing = [key for key in keys if key not in own] or keys
    costs = workspace.known.measurements.costs(target.key)
    known_s = sum(costs[key] for key in missing if key in costs)
    rest = [key for key in missing if key not in costs]
    if not rest:
        return known_s
    plans = workspace.known.plans
    learned = plans.load_bricks([*costs][-_LEARNED_FROM:])
    model = fit([(brick, costs[key]) for key, brick in learned.items()])
    if model is None:
        return None
    return known_s + model.cost_s(plans.load_bricks(rest).values()).value
