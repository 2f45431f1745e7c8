"""Measures what the cache lacks: bricks of models, bricks by themselves, and whole models.

Must not know how anything is sampled, nor how results are used.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from bricks.measure.rounds import StopRule
from bricks.samples.measurement import Measurement
from bricks.samples.usual_conditions import SAME_PERIOD_S
from bricks.session.jobs import bricks_job, isolated_job, whole_job
from bricks.session.summaries import Measured

if TYPE_CHECKING:
    from bricks.decompose.plan import Brick, Decomposition
    from bricks.graph.model import Model
    from bricks.measure.campaign_result import CampaignResult
    from bricks.measure.jobs import ModelJob
    from bricks.session.workspace import Workspace

# Further rounds of known bricks: all those of a model are as precise as so many of the model.
_RENEWED = StopRule(min_rounds=5, max_rounds=5, passes=1, retries=0)


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
    jobs = _jobs(workspace, models, only)
    others = _isolated_jobs(workspace, isolated)
    result = workspace.campaigns.measure([*jobs, *others], rule=rule)
    summary = _summary(workspace, jobs, others, result)
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


def _jobs(
    workspace: Workspace, models: Iterable[Model], only: Collection[str] | None
) -> list[ModelJob]:
    chosen = None if only is None else frozenset(only)
    jobs = [bricks_job(workspace, model, chosen=chosen) for model in models]
    return jobs if chosen is None else [job for job in jobs if job.keys]


def _isolated_jobs(workspace: Workspace, bricks: Iterable[Brick | Decomposition]) -> list[ModelJob]:
    """The jobs of ``bricks``, which the cache has from now on."""
    jobs = [isolated_job(workspace, brick) for brick in bricks]
    workspace.store.plans.save_bricks(
        [b for job in jobs for b in job.decomposition.bricks.values()]
    )
    return jobs


def _summary(
    workspace: Workspace,
    jobs: Sequence[ModelJob],
    others: Sequence[ModelJob],
    result: CampaignResult,
) -> Measured:
    store, target = workspace.store, workspace.target
    keys = {key for job in (*jobs, *others) for key in job.keys}
    settled = store.measurements.settled(target.key, sorted(keys))
    return Measured(
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
