"""Metrics of a scenario, and warnings: a server simulated on the latencies of its batches.

The server has a batching policy, a queue and transport, as :class:`Serving` says. Each metric is
simulated for draws of the latencies too, with the same arrivals and the same noise: the ends of its
interval are the outermost results. Must not know models, nor how latencies are estimated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from bricks.compose.queueing.batching import BatchPolicy, BatchSeconds
from bricks.compose.queueing.idle import NO_IDLE_PENALTY, IdleModel
from bricks.compose.queueing.simulation import (
    ServerRun,
    metric,
    percentiles,
    poisson_s,
    simulate,
    simulate_in_turn,
    trimmed_mean,
    without_warm_up,
)
from bricks.studies.serving.result import PERCENTILES, ScenarioResult
from bricks.studies.serving.scenario import ScenarioKind, ScenarioLoad, Serving
from bricks.units.draws import VALUE, Draw, Drawn, interval_of
from bricks.units.interval import Interval

if TYPE_CHECKING:
    import numpy as np

    from bricks.studies.serving.service import BatchLatency, ServiceTimes
    from bricks.system import Target
    from bricks.system.limits import Quota

# Simulated queries: the slowest thousandth are a hundred.
QUERIES = 100_000
# Simulated queries at each rate of a search for the highest rate.
SEARCH_QUERIES = 20_000
# The relative precision of the highest rate.
_RATE_PRECISION = 0.002
# Further samples in a batch pay as long as throughput grows by more than this share.
_GROWTH = 0.02

# Above this share of the capacity, 1 % of the rate changes percentiles by tens of per cent.
NEAR_SATURATION = 0.9


def scenario_of(
    name: str,
    target: Target,
    times: ServiceTimes,
    load: ScenarioLoad,
    serving: Serving,
    *,
    seed: int = 0,
) -> ScenarioResult:
    """The result of the scenario, with the latencies ``times`` of batches."""
    capacity = interval_of(times.draws.map(lambda draw: times.capacity_qps(serving, draw)))
    max_qps = _max_qps(times, load, serving, capacity, seed)
    rate_qps = load.rate_qps
    if rate_qps is None and max_qps is not None:
        rate_qps = max_qps.value
        load = replace(load, qps=rate_qps or None)
    saturated = rate_qps is not None and rate_qps >= capacity.value
    runs: Drawn[ServerRun] | None = None
    if rate_qps is None or rate_qps > 0:
        runs = times.draws.map(lambda draw: _run(times, load, serving, draw, seed, QUERIES))
    drops = serving.max_queue is not None
    latencies: dict[str, Interval] = {}
    if runs is not None and load.kind is not ScenarioKind.OFFLINE and (drops or not saturated):
        may_saturate = rate_qps is not None and rate_qps >= capacity.low
        latencies = _latencies(runs, load, unbounded=may_saturate and not drops)
    return ScenarioResult(
        model=name,
        target=target,
        load=load,
        serving=serving,
        latencies=latencies,
        # Above saturation, the queue is served after the last arrival: that is no throughput.
        throughput=capacity if saturated else _of_all(runs, lambda run: run.samples / run.span_s),
        utilisation=_of_all(runs, lambda run: run.busy_s / (serving.instances * run.span_s)),
        dropped_share=_of_all(runs, lambda run: run.dropped / (run.dropped + run.samples)),
        mean_batch=0.0 if runs is None else runs.value.mean_batch,
        capacity_qps=capacity,
        max_qps=max_qps,
        saturated=saturated,
        times=times,
        best_batch=best_batch(times.batches),
        warnings=_warnings_of(times, load, serving, rate_qps, capacity),
    )


def _max_qps(
    times: ServiceTimes, load: ScenarioLoad, serving: Serving, capacity: Interval, seed: int
) -> Interval | None:
    """The highest rate that meets the SLO, without one the ``capacity``; None: no server."""
    if load.kind is not ScenarioKind.SERVER:
        return None
    if load.slo_s is None:
        return capacity
    return interval_of(times.draws.map(lambda draw: highest_qps(times, load, serving, draw, seed)))


def best_batch(batches: Sequence[BatchLatency]) -> int:
    """The batch size after which throughput grows by less than 2 %."""
    best = batches[0]
    for batch in batches[1:]:
        if batch.throughput.value > (1 + _GROWTH) * best.throughput.value:
            best = batch
    return best.size


def expected(
    times: ServiceTimes, load: ScenarioLoad, serving: Serving, issued_s: Sequence[float]
) -> ServerRun:
    """Simulate queries with the arrival times ``issued_s``; offline, single samples."""
    sample = times.sampler(serving, VALUE, seed=0)
    match load.kind:
        case ScenarioKind.SERVER:
            return serve(issued_s, serving, sample, times.idle_model, times.quota)
        case ScenarioKind.MULTI_STREAM:
            return serve_in_turn(len(issued_s), load.samples, serving, sample, times.quota)
        case ScenarioKind.OFFLINE:
            everything = replace(serving, timeout_s=0.0)
            return serve([0.0] * len(issued_s), everything, sample, quota=times.quota)
    return serve_in_turn(len(issued_s), 1, serving, sample, times.quota)


def _run(
    times: ServiceTimes, load: ScenarioLoad, serving: Serving, draw: Draw, seed: int, queries: int
) -> ServerRun:
    sample = times.sampler(serving, draw, seed=seed)
    match load.kind:
        case ScenarioKind.SINGLE_STREAM:
            return serve_in_turn(queries, 1, serving, sample, times.quota)
        case ScenarioKind.MULTI_STREAM:
            return serve_in_turn(
                max(1, queries // load.samples), load.samples, serving, sample, times.quota
            )
        case ScenarioKind.OFFLINE:
            everything = replace(serving, max_queue=None, timeout_s=0.0)
            return serve([0.0] * queries, everything, sample, times.idle_model, times.quota)
    if load.arrivals_s is not None:
        return serve(load.arrivals_s, serving, sample, times.idle_model, times.quota)
    assert load.qps is not None
    return serve(poisson_s(load.qps, queries, seed), serving, sample, times.idle_model, times.quota)


def _steady_s(run: ServerRun, load: ScenarioLoad) -> np.ndarray:
    """Latencies of the run in seconds, without the warm-up unless arrivals are a trace."""
    if load.kind is not ScenarioKind.SERVER or load.arrivals_s is not None:
        return run.latencies_s
    return without_warm_up(run.latencies_s)


def highest_qps(
    times: ServiceTimes, load: ScenarioLoad, serving: Serving, draw: Draw, seed: int = 0
) -> float:
    """The highest rate of Poisson arrivals that meets the SLO; 0 if none does.

    Latencies are those of ``draw``. A dropped sample counts as late.
    """
    assert load.slo_s is not None
    low, high = 0.0, times.capacity_qps(serving, draw)
    while high - low > _RATE_PRECISION * high:
        qps = (low + high) / 2
        tried = replace(load, qps=qps, arrivals_s=None)
        run = _run(times, tried, serving, draw, seed, SEARCH_QUERIES)
        if keeps_bound(_steady_s(run, tried), run.dropped, load):
            low = qps
        else:
            high = qps
        if high < 1e-6:
            return 0.0
    return low


def keeps_bound(latencies_s: np.ndarray, dropped: int, load: ScenarioLoad) -> bool:
    """Whether the percentile of the SLO is within its bound; dropped samples are late."""
    assert load.slo_s is not None
    late = int((latencies_s > load.slo_s).sum()) + dropped
    return late <= (1 - load.counted_percentile / 100) * (len(latencies_s) + dropped)


def _latencies(
    runs: Drawn[ServerRun], load: ScenarioLoad, *, unbounded: bool
) -> dict[str, Interval]:
    steady_s = runs.map(lambda run: _steady_s(run, load))
    percents = {**PERCENTILES, "counted_s": load.counted_percentile}
    return {
        **percentiles(steady_s, percents, unbounded=unbounded),
        "trimmed_mean_s": metric(steady_s, trimmed_mean, unbounded=unbounded),
    }


def _of_all(runs: Drawn[ServerRun] | None, of: Callable[[ServerRun], float]) -> Interval:
    return Interval.exact(0.0) if runs is None else metric(runs, of)


def _warnings_of(
    times: ServiceTimes,
    load: ScenarioLoad,
    serving: Serving,
    rate_qps: float | None,
    capacity: Interval,
) -> tuple[str, ...]:
    """Warnings for the mean rate ``rate_qps`` of samples; None if samples have no rate."""
    lines: list[str] = []
    share = 0.0 if rate_qps is None else rate_qps / capacity.value
    if share >= 1:
        what = "the queue grows without end" if serving.max_queue is None else "drops others"
        lines.append(
            f"{rate_qps:.4g} queries/s are above saturation: the server can answer"
            f" {capacity.value:.4g} a second, and {what}"
        )
    elif rate_qps is not None and rate_qps >= capacity.low:
        lines.append(
            f"{rate_qps:.4g} queries/s may be above saturation, which lies between"
            f" {capacity.low:.4g} and {capacity.high:.4g}: percentiles have no upper end"
        )
    elif share >= NEAR_SATURATION:
        lines.append(
            f"{rate_qps:.4g} queries/s are {100 * share:.0f} % of what the server can answer:"
            " percentiles tell the order of magnitude alone"
        )
    if serving.instances > 1 and times.busy is None:
        lines.append(
            "how instances slow each other down was not measured here: they are assumed not to"
        )
    if load.kind is ScenarioKind.SERVER and times.batches[0].idle_penalty is None:
        lines.append(
            "how much longer runs take after idling was not measured here: at low rates, latencies"
            " are longer than this"
        )
    return tuple(lines)


def serve(
    arrivals_s: Sequence[float],
    serving: Serving,
    batch_s: BatchSeconds,
    idle_model: IdleModel = NO_IDLE_PENALTY,
    quota: Quota | None = None,
) -> ServerRun:
    """Simulate samples with the ascending arrival times ``arrivals_s``."""
    return simulate(
        arrivals_s,
        _instances(serving, batch_s, serving.timeout_s),
        max_queue=serving.max_queue,
        idle_model=idle_model,
        quota=quota,
        transport_s=serving.drawn_transports_s,
    )


def serve_in_turn(
    queries: int,
    samples: int,
    serving: Serving,
    batch_s: BatchSeconds,
    quota: Quota | None = None,
) -> ServerRun:
    """Simulate ``queries`` of ``samples`` each; the next arrives when one is done.

    All samples of a query arrive at once, so instances do not wait for a full batch.
    """
    instances = _instances(serving, batch_s, 0.0)
    transport_s = serving.drawn_transports_s
    return simulate_in_turn(queries, samples, instances, transport_s=transport_s, quota=quota)


def _instances(serving: Serving, batch_s: BatchSeconds, timeout_s: float) -> list[BatchPolicy]:
    return [BatchPolicy(serving.max_batch, timeout_s, batch_s) for _ in range(serving.instances)]
