"""Measures what the cache lacks: bricks of models, bricks by themselves, and whole models.

A target is probed by the few most informative bricks, so that the others are predicted. Summaries
of both are plain data. Must not know how anything is sampled, nor how results are used.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from bricks.decompose.identity import surrounding_bytes
from bricks.decompose.plan import Brick, Decomposition, isolated_decomposition, streams_of
from bricks.graph.model import Model
from bricks.measure.conditions import StopRule
from bricks.measure.jobs import ModelJob
from bricks.samples.measurement import Failure, Measurement, Sampling
from bricks.samples.usual_conditions import SAME_PERIOD_S
from bricks.session.adaptive import deviation, probes
from bricks.session.defaults import PROBE_BRICKS, PROBING_S

if TYPE_CHECKING:
    from bricks.measure.campaign_result import CampaignResult
    from bricks.session.workspace import Workspace
    from bricks.system import Target

# Further rounds of known bricks: all those of a model are as precise as so many of the model.
_RENEWED = StopRule(min_rounds=5, max_rounds=5, passes=1, retries=0)

# A model is measured in at most so many parts, each of at least so many bricks.
_MAX_PARTS, _MIN_BRICKS = 6, 12


@dataclass(frozen=True, slots=True)
class Measured(Sampling):
    """The result of measuring models: their ``bricks``, of which ``new_bricks`` were missing.

    ``predicted_bricks`` are not measured, because the effort does not need them.
    """

    models: int
    occurrences: int
    bricks: int
    new_bricks: int
    predicted_bricks: int
    failures: tuple[Failure, ...]
    unfinished: int
    wall_s: float


@dataclass(frozen=True, slots=True)
class Probed:
    """The result of probing a target: ``probes`` of the models' ``bricks`` were measured.

    The others are predicted from these probes, and from the measurements of ``source_targets``.
    ``deviation`` is the uncertainty afterwards: the median over models of the relative standard
    deviation of their estimates. ``measured`` counts all bricks that are measured by now.
    """

    models: int
    bricks: int
    probes: int
    measured: int
    source_targets: tuple[Target, ...]
    deviation: float | None
    failures: tuple[Failure, ...]
    wall_s: float


def measure(
    workspace: Workspace,
    models: Iterable[Model],
    isolated: Iterable[Brick] = (),
    *,
    only: Collection[str] | None = None,
    rule: StopRule | None = None,
) -> Measured:
    """Measure missing bricks of models and ``isolated`` ones; see :meth:`bricks.Bench.measure`.

    ``only`` limits the bricks of models to these keys. Each is sampled until ``rule`` is met, by
    default the rule of the options.
    """
    started = time.perf_counter()
    chosen = None if only is None else frozenset(only)
    jobs = [bricks_job(workspace, model, chosen=chosen) for model in models]
    jobs = jobs if chosen is None else [job for job in jobs if job.keys]
    others = _isolated_jobs(workspace, isolated)
    result = workspace.campaigns.measure([*jobs, *others], rule=rule)
    store, target = workspace.store, workspace.target
    keys = {key for job in (*jobs, *others) for key in job.keys}
    settled = store.measurements.settled(target.key, sorted(keys))
    summary = Measured(
        models=len(jobs),
        occurrences=sum(len(job.decomposition.plan.occurrences) for job in jobs),
        bricks=len(keys),
        new_bricks=len(set().union(*result.measured.values()) & keys),
        predicted_bricks=len(keys - settled - result.unfinished),
        failures=tuple(store.measurements.failures(target.key, sorted(keys))),
        unfinished=len(result.unfinished),
        wall_s=0.0,
        **result.sampling_fields,
    )
    return replace(summary, wall_s=time.perf_counter() - started)


def renew(workspace: Workspace, models: Iterable[Model]) -> None:
    """Measure known bricks of ``models`` in a few further rounds, if their last ones are old.

    What a host has changed by since then is more than reference kernels show.
    """
    jobs = [bricks_job(workspace, model, chosen=old_bricks(workspace, model)) for model in models]
    workspace.campaigns.measure_all(
        [job for job in jobs if job.keys], workspace.campaigns.budget_s(), rule=_RENEWED, again=True
    )


def old_bricks(workspace: Workspace, model: Model) -> frozenset[str]:
    """The keys of bricks of ``model`` whose last round here was at another time than now."""
    began_s = time.time() - SAME_PERIOD_S
    keys = sorted(bricks_job(workspace, model).keys)
    known = workspace.store.measurements.results(workspace.target.key, keys)
    every = [m for m in known.values() if isinstance(m, Measurement) and not m.published]
    return frozenset(m.key for m in every if not m.host or (m.host.taken_s or 0) < began_s)


def _isolated_jobs(workspace: Workspace, bricks: Iterable[Brick | Decomposition]) -> list[ModelJob]:
    """The jobs of ``bricks``, which the cache has from now on."""
    jobs = [isolated_job(workspace, brick) for brick in bricks]
    workspace.store.plans.save_bricks(
        [b for job in jobs for b in job.decomposition.bricks.values()]
    )
    return jobs


def measure_isolated(
    workspace: Workspace,
    bricks: Iterable[Brick | Decomposition],
    *,
    rule: StopRule | None = None,
) -> CampaignResult:
    """Measure ``bricks``, each by itself, whatever the effort; stored results stay.

    Bricks are decomposed by :func:`~bricks.decompose.plan.isolated_decomposition`, unless they are
    already. Each is sampled until ``rule`` is met, by default the rule of the options.
    """
    jobs = _isolated_jobs(workspace, bricks)
    return workspace.campaigns.measure_all(jobs, None, rule=rule)


def measure_whole(workspace: Workspace, models: Iterable[Model]) -> CampaignResult:
    """Measure whole ``models`` and none of their bricks: the baseline for comparisons."""
    jobs = [replace(whole_job(workspace, model), chosen=frozenset()) for model in models]
    return workspace.campaigns.measure_all(jobs, workspace.conditions.budget_s)


def bricks_job(
    workspace: Workspace, model: Model, *, chosen: frozenset[str] | None = None
) -> ModelJob:
    """The job that measures the bricks of ``model``; with ``chosen``, only these keys."""
    return ModelJob(model, workspace.plans.decompose(model), whole=False, chosen=chosen)


def whole_job(workspace: Workspace, model: Model) -> ModelJob:
    """The job that measures ``model`` and its bricks."""
    decomposition, workers = workspace.plans.decompose(model), workspace.options.workers
    streams: tuple[int, ...] = ()
    if workers > 1:
        streams = streams_of(decomposition.plan, decomposition.bricks, workers)
    return ModelJob(model, decomposition, whole=True, streams=streams, workers=workers)


def isolated_job(workspace: Workspace, brick: Brick | Decomposition) -> ModelJob:
    """The job that measures one brick outside any model; it may be decomposed already."""
    decomposition = brick
    if isinstance(decomposition, Brick):
        cut = str(workspace.granularity)
        decomposition = isolated_decomposition(
            decomposition, cut, surrounding_bytes=surrounding_bytes(decomposition)
        )
    (key,) = decomposition.bricks
    nothing = Model(key, Path(), b"", (), decomposition.plan.digest)
    return ModelJob(nothing, decomposition, whole=False)


def measure_in_turn(pair: tuple[Workspace, Workspace], models: Sequence[Model]) -> None:
    """Measure what the cache lacks of ``models`` in both of ``pair``, part by part.

    Which of the two is first changes from part to part. Raises
    :class:`~bricks.errors.BricksError` for a model that one of them cannot decompose.
    """
    turn = 0
    for model in models:
        parts = [_parts(workspace, model) for workspace in pair]
        for number in range(max(map(len, parts))):
            order = (0, 1) if turn % 2 == 0 else (1, 0)
            for side in order:
                for keys in parts[side][number : number + 1]:
                    measure(pair[side], [model], only=keys)
            turn += 1
    for workspace in pair:  # what belongs to no brick, such as the overhead of a call
        measure(workspace, models)


def _parts(workspace: Workspace, model: Model) -> list[list[str]]:
    """The keys of unmeasured bricks, in the order of the model, in a few parts."""
    keys = workspace.plans.decompose(model).plan.keys
    settled = workspace.store.measurements.settled(workspace.target.key, sorted(keys))
    missing = [key for key in keys if key not in settled]
    count = min(_MAX_PARTS, max(1, len(missing) // _MIN_BRICKS))
    bounds = [round(number * len(missing) / count) for number in range(count + 1)]
    return [missing[low:high] for low, high in pairwise(bounds) if high > low]


def probe(
    workspace: Workspace,
    models: Iterable[Model],
    *,
    bricks: int = PROBE_BRICKS,
    budget_s: float = PROBING_S,
) -> Probed:
    """Measure the ``bricks`` bricks of ``models`` that are most informative about this target.

    Measurements of other targets in the cache give the expected latencies, and these bricks
    show how this target differs: afterwards all others can be predicted. Takes at most about
    ``budget_s`` seconds of measuring. Bricks that are already measured count, and are not
    measured again.
    """
    started = time.perf_counter()
    jobs = [bricks_job(workspace, model) for model in models]
    latencies = workspace.estimators.measured.latencies(workspace.target)
    for job in jobs:
        latencies.add_model(job.decomposition)
    chosen: list[str] = []
    if any(job.keys for job in jobs):
        chosen = probes(jobs, latencies, bricks)
        picked = [replace(job, chosen=frozenset(chosen)) for job in jobs]
        workspace.campaigns.measure_all([job for job in picked if job.keys], budget_s)
    keys = sorted({key for job in jobs for key in job.keys})
    results = workspace.store.measurements.results(workspace.target.key, keys)
    others = {target.key: target for target in workspace.known.systems.targets()}
    return Probed(
        models=len(jobs),
        bricks=len(keys),
        probes=len(results.keys() & set(chosen)),
        measured=sum(isinstance(result, Measurement) for result in results.values()),
        source_targets=tuple(others[other.target_key] for other in latencies.others),
        deviation=deviation(jobs, latencies),
        failures=tuple(r for k, r in results.items() if isinstance(r, Failure) and k in chosen),
        wall_s=time.perf_counter() - started,
    )
