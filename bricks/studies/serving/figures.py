"""Metrics of queries that were really served, and their predictions for the same arrivals.

Must not know how queries are served.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from bricks.compose.queueing.metrics import trimmed_mean
from bricks.studies.serving.outcome import expected
from bricks.studies.serving.result import PERCENTILES
from bricks.studies.serving.scenario import ScenarioKind, ScenarioLoad, Serving

if TYPE_CHECKING:
    from bricks.measure.served import ServedQueries
    from bricks.studies.serving.service import ServiceTimes

Figures = dict[str, float]


def means(of: Sequence[Mapping[str, float]]) -> Figures:
    """The mean of each figure of several series."""
    return {name: float(np.mean([figures[name] for figures in of])) for name in of[0]}


def real_figures(series: ServedQueries, load: ScenarioLoad) -> Figures:
    """The figures of a series: LoadGen's own, and of the client where LoadGen has none."""
    worker = _in_worker([batch.occupied_s for batch in series.batches], load)
    summary = series.summary
    if load.kind is ScenarioKind.OFFLINE:
        return {"throughput": summary["result_samples_per_second"]} | worker
    per_query = "per_query_" if load.kind is ScenarioKind.MULTI_STREAM else ""
    rate = "result_completed_samples_per_sec"  # LoadGen has it in the server scenario
    return {
        **({"throughput": summary[rate]} if rate in summary else {}),
        **{
            name: 1e-9 * summary[f"result_{percent:.2f}_percentile_{per_query}latency_ns"]
            for name, percent in PERCENTILES.items()
        },
        "counted_s": float(np.percentile(series.latencies_s, load.counted_percentile)),
        "trimmed_mean_s": trimmed_mean(series.latencies_s),
        **worker,
    }


def expected_figures(
    series: ServedQueries, load: ScenarioLoad, serving: Serving, times: ServiceTimes
) -> Figures:
    """The figures of ``series`` as predicted for its own arrivals."""
    if load.kind is ScenarioKind.OFFLINE:
        at_once = [0.0] * sum(batch.size for batch in series.batches)
        run = expected(times, load, serving, at_once)
        return {"throughput": run.samples / run.span_s, **_in_worker(run.occupied_s, load)}
    run = expected(times, load, serving, series.issued_s)
    latencies_s, rate = run.latencies_s, Figures()
    if load.kind is ScenarioKind.SERVER:
        last_s = float(np.max(np.asarray(series.issued_s) + latencies_s))
        rate = {"throughput": len(latencies_s) / last_s}
    return {
        **rate,
        **_in_worker(run.occupied_s, load),
        **{name: float(np.percentile(latencies_s, p)) for name, p in PERCENTILES.items()},
        "counted_s": float(np.percentile(latencies_s, load.counted_percentile)),
        "trimmed_mean_s": trimmed_mean(latencies_s),
    }


def _in_worker(occupied_s: Sequence[float] | np.ndarray, load: ScenarioLoad) -> Figures:
    """Seconds that batches occupy the worker, without their time in the queue."""
    return {
        "worker_p50_s": float(np.median(occupied_s)),
        "worker_counted_s": float(np.percentile(occupied_s, load.counted_percentile)),
    }
