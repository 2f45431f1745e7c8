"""What follows for a scenario from the latencies of its batches: a simulated server's figures.

Each figure is simulated for both ends of the latencies' intervals too, with the same arrivals and
the same luck. Must not know models, nor how latencies are estimated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from scipy.stats import trim_mean

from bricks.compose.figure import Figure
from bricks.studies.serving.queueing import Served, serve, serve_in_turn
from bricks.studies.serving.result import PERCENTILES, ScenarioResult
from bricks.studies.serving.scenario import ScenarioKind, ScenarioLoad, Serving
from bricks.studies.serving.service import BatchLatency, ServiceTimes
from bricks.system import Target

# Queries that are simulated: of the slowest thousandth there are a hundred.
QUERIES = 100_000
# At each rate that is tried to find the highest one.
SEARCH_QUERIES = 20_000
# A server begins without a queue; what it then answers first tells little of the rest.
_WARM_UP = 0.05
# Rates are searched until they are known this well.
_RATE_PRECISION = 0.002
# Above this share of what a server can serve, a per cent of the rate moves percentiles by tens.
NEAR_SATURATION = 0.9
# Further samples in a batch pay as long as throughput grows by more than this share.
_GROWTH = 0.02

_ENDS = ("value", "low", "high")


def scenario_of(
    name: str,
    target: Target,
    times: ServiceTimes,
    load: ScenarioLoad,
    serving: Serving,
    *,
    seed: int = 0,
) -> ScenarioResult:
    """The scenario with batches that take ``times``."""
    capacity = _figure({end: times.capacity_qps(serving, end) for end in _ENDS})
    rate_qps = _rate_qps(load)
    max_qps: Figure | None = None
    if load.kind is ScenarioKind.SERVER:
        max_qps = capacity
        if load.slo_s is not None:
            found = {end: highest_qps(times, load, serving, end, seed) for end in _ENDS}
            max_qps = _figure(found)
            if rate_qps is None:
                rate_qps = max_qps.value
                load = replace(load, qps=rate_qps or None)
    warnings = _warnings(times, load, serving, rate_qps, capacity)
    saturated = rate_qps is not None and rate_qps >= capacity.value
    runs = {
        end: _run(times, load, serving, end, seed, QUERIES)
        for end in _ENDS
        if rate_qps is None or rate_qps > 0
    }
    latencies: dict[str, Figure] = {}
    if (
        runs
        and load.kind is not ScenarioKind.OFFLINE
        and not (saturated and serving.max_queue is None)
    ):
        may_saturate = rate_qps is not None and rate_qps >= capacity.low
        unbounded = may_saturate and serving.max_queue is None
        latencies = _latencies(runs, load, unbounded=unbounded)
    return ScenarioResult(
        model=name,
        target=target,
        load=load,
        serving=serving,
        latencies=latencies,
        throughput=_throughput(runs, capacity, saturated=saturated),
        utilisation=_of_all(runs, lambda run: run.busy_s / (serving.instances * run.span_s)),
        dropped_share=_of_all(runs, lambda run: run.dropped / (run.dropped + run.samples)),
        mean_batch=float(runs["value"].batches.mean()) if runs else 0.0,
        capacity_qps=capacity,
        max_qps=max_qps,
        saturated=saturated,
        times=times,
        best_batch=best_batch(times.batches),
        warnings=warnings,
    )


def best_batch(batches: Sequence[BatchLatency]) -> int:
    """The size after which throughput no longer grows by 2 % or more."""
    best = batches[0]
    for batch in batches[1:]:
        if batch.throughput.value > (1 + _GROWTH) * best.throughput.value:
            best = batch
    return best.size


def poisson_s(qps: float, count: int, seed: int) -> list[float]:
    """``count`` arrivals of a Poisson process, in seconds."""
    gaps = np.random.default_rng(seed).exponential(1.0, count)
    arrivals: list[float] = (np.cumsum(gaps) / qps).tolist()
    return arrivals


def expected(
    times: ServiceTimes, load: ScenarioLoad, serving: Serving, issued_s: Sequence[float]
) -> Served:
    """How queries that came at ``issued_s`` are served; offline, single samples."""
    sample = times.sampler(serving, "value", seed=0)
    match load.kind:
        case ScenarioKind.SERVER:
            return serve(issued_s, serving, sample, times.waking)
        case ScenarioKind.MULTI_STREAM:
            return serve_in_turn(len(issued_s), load.samples, serving, sample)
        case ScenarioKind.OFFLINE:
            return serve([0.0] * len(issued_s), replace(serving, timeout_s=0.0), sample)
    return serve_in_turn(len(issued_s), 1, serving, sample)


def _rate_qps(load: ScenarioLoad) -> float | None:
    if load.arrivals_s is None:
        return load.qps
    return (len(load.arrivals_s) - 1) / (load.arrivals_s[-1] - load.arrivals_s[0])


def _run(
    times: ServiceTimes, load: ScenarioLoad, serving: Serving, end: str, seed: int, queries: int
) -> Served:
    """The scenario with latencies at an ``end`` of their intervals."""
    sample = times.sampler(serving, end, seed=seed)
    match load.kind:
        case ScenarioKind.SINGLE_STREAM:
            return serve_in_turn(queries, 1, serving, sample)
        case ScenarioKind.MULTI_STREAM:
            return serve_in_turn(max(1, queries // load.samples), load.samples, serving, sample)
        case ScenarioKind.OFFLINE:
            everything = replace(serving, max_queue=None, timeout_s=0.0)
            return serve([0.0] * queries, everything, sample, times.waking)
    if load.arrivals_s is not None:
        return serve(load.arrivals_s, serving, sample, times.waking)
    assert load.qps is not None
    return serve(poisson_s(load.qps, queries, seed), serving, sample, times.waking)


def _steady_s(run: Served, load: ScenarioLoad) -> np.ndarray:
    """The latencies without those of the beginning; of a trace, all."""
    if load.kind is not ScenarioKind.SERVER or load.arrivals_s is not None:
        return run.latencies_s
    return run.latencies_s[int(_WARM_UP * len(run.latencies_s)) :]


def highest_qps(
    times: ServiceTimes, load: ScenarioLoad, serving: Serving, end: str, seed: int = 0
) -> float:
    """The highest rate of Poisson arrivals that keeps the bound; 0 if none does.

    With latencies at an ``end`` of their intervals: ``value``, ``low`` or ``high``. With a bounded
    queue, a dropped sample counts as one that is late.
    """
    assert load.slo_s is not None
    low, high = 0.0, times.capacity_qps(serving, end)
    while high - low > _RATE_PRECISION * high:
        qps = (low + high) / 2
        tried = replace(load, qps=qps, arrivals_s=None)
        run = _run(times, tried, serving, end, seed, SEARCH_QUERIES)
        if keeps_bound(_steady_s(run, tried), run.dropped, load):
            low = qps
        else:
            high = qps
        if high < 1e-6:
            return 0.0
    return low


def keeps_bound(latencies_s: np.ndarray, dropped: int, load: ScenarioLoad) -> bool:
    """Whether the percentile that counts is within the bound, dropped samples being late."""
    assert load.slo_s is not None
    late = int((latencies_s > load.slo_s).sum()) + dropped
    return late <= (1 - load.counted_percentile / 100) * (len(latencies_s) + dropped)


def _latencies(
    runs: Mapping[str, Served], load: ScenarioLoad, *, unbounded: bool
) -> dict[str, Figure]:
    wanted: dict[str, Callable[[np.ndarray], float]] = {
        name: partial(_percentile, percent=percent)
        for name, percent in {**PERCENTILES, "counted_s": load.counted_percentile}.items()
    }
    wanted["trimmed_mean_s"] = lambda latencies_s: float(trim_mean(latencies_s, 0.1))
    steady = {end: _steady_s(run, load) for end, run in runs.items()}
    found = {}
    for name, of in wanted.items():
        told = _figure({end: of(steady[end]) for end in _ENDS})
        found[name] = replace(told, high=float("inf")) if unbounded else told
    return found


def _percentile(latencies_s: np.ndarray, percent: float) -> float:
    return float(np.percentile(latencies_s, percent))


def _throughput(runs: Mapping[str, Served], capacity: Figure, *, saturated: bool) -> Figure:
    if saturated:  # what waits is served after the last arrival, and would count as if before
        return capacity
    return _of_all(runs, lambda run: run.samples / run.span_s)


def _of_all(runs: Mapping[str, Served], of: Callable[[Served], float]) -> Figure:
    return _figure({end: of(run) for end, run in runs.items()} or dict.fromkeys(_ENDS, 0.0))


def _figure(found: Mapping[str, float]) -> Figure:
    """The ends of latencies may be in the other order for what follows from them."""
    return Figure(found["value"], min(found.values()), max(found.values()))


def _warnings(
    times: ServiceTimes,
    load: ScenarioLoad,
    serving: Serving,
    rate_qps: float | None,
    capacity: Figure,
) -> tuple[str, ...]:
    found = []
    if rate_qps is not None:
        share = rate_qps / capacity.value
        if share >= 1:
            found.append(
                f"{rate_qps:.4g} queries/s are above saturation: the server can answer"
                f" {capacity.value:.4g} a second, and the queue grows without end"
                if serving.max_queue is None
                else f"{rate_qps:.4g} queries/s are above saturation: the server can answer"
                f" {capacity.value:.4g} a second, and drops others"
            )
        elif rate_qps >= capacity.low:
            found.append(
                f"{rate_qps:.4g} queries/s may be above saturation, which lies between"
                f" {capacity.low:.4g} and {capacity.high:.4g}: percentiles have no upper end"
            )
        elif share >= NEAR_SATURATION:
            found.append(
                f"{rate_qps:.4g} queries/s are {100 * share:.0f} % of what the server can answer:"
                " percentiles tell the order of magnitude alone"
            )
    if serving.instances > 1:
        found.append("instances are assumed not to slow each other down")
    if load.kind is ScenarioKind.SERVER and times.batches[0].asleep_share is None:
        found.append(
            "how much longer runs take after idling was not measured here: at low rates, latencies"
            " are longer than this"
        )
    return tuple(found)
