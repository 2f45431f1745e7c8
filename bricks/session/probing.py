"""Probes a target: measures the few most informative bricks, so that others are predicted.

Must not know how bricks are measured, nor how results are shown.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from bricks.samples.measurement import Failure, Measurement
from bricks.session.adaptive import deviation, probes
from bricks.session.defaults import PROBE_BRICKS, PROBING_S
from bricks.session.jobs import bricks_job
from bricks.session.summaries import Probed

if TYPE_CHECKING:
    from bricks.graph.model import Model
    from bricks.measure.jobs import ModelJob
    from bricks.session.latencies import Latencies
    from bricks.session.workspace import Workspace


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
    chosen = _measured_probes(workspace, jobs, latencies, bricks, budget_s)
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


def _measured_probes(
    workspace: Workspace,
    jobs: Sequence[ModelJob],
    latencies: Latencies,
    bricks: int,
    budget_s: float,
) -> list[str]:
    """The keys of the chosen ``bricks``, measured within ``budget_s`` seconds."""
    if not any(job.keys for job in jobs):
        return []
    chosen = probes(jobs, latencies, bricks)
    picked = [replace(job, chosen=frozenset(chosen)) for job in jobs]
    workspace.campaigns.measure_all([job for job in picked if job.keys], budget_s)
    return chosen
