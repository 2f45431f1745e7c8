"""Probes a target: measures the few bricks that tell most about it, so that others are predicted.

Must not know how bricks are measured, nor how what was found is shown.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from bricks.measure.jobs import Job
from bricks.samples.measurement import Failure, Measurement
from bricks.session.adaptive import deviation, probes
from bricks.session.campaigns import Campaigns
from bricks.session.latency_model import LatencyModel
from bricks.session.summaries import Probed
from bricks.store import Reading


def probe(
    jobs: Iterable[Job],
    bricks: int,
    budget_s: float,
    *,
    known: Reading,
    results: Callable[[Sequence[str]], Mapping[str, Measurement | Failure]],
    latency_model: LatencyModel,
    campaigns: Campaigns,
) -> Probed:
    """Measure ``bricks`` of ``jobs`` within ``budget_s`` seconds; see :meth:`Bench.probe`.

    ``known`` tells what targets there are, and ``results`` what is measured on this one.
    """
    started = time.perf_counter()
    jobs = list(jobs)
    for job in jobs:
        latency_model.add_model(job.decomposition)
    keys = {key for job in jobs for key in job.keys}
    chosen: list[str] = []
    if keys:
        chosen = probes(jobs, latency_model, bricks)
        picked = [replace(job, chosen=frozenset(chosen)) for job in jobs]
        campaigns.measure_all([job for job in picked if job.keys], budget_s)
    found = results(sorted(keys))
    others = {target.key: target for target in known.targets()}
    return Probed(
        models=len(jobs),
        bricks=len(keys),
        probes=len(found.keys() & set(chosen)),
        measured=sum(isinstance(result, Measurement) for result in found.values()),
        teachers=tuple(others[other.target_key] for other in latency_model.others),
        deviation=deviation(jobs, latency_model),
        failures=tuple(r for k, r in found.items() if isinstance(r, Failure) and k in chosen),
        wall_s=time.perf_counter() - started,
    )
