"""Serves a scenario on this host, and predicts the metrics of its real arrivals to compare.

Half of the queries are served before bricks are measured and half after, so that both see the same
machine state. The server's own costs of a sample, of a batch and of transport are measured without
a model. Must not know how results are shown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from bricks.closing import Closing
from bricks.compose.queueing.simulation import trimmed_mean
from bricks.measure.load_generator import Queries
from bricks.measure.served import Batching, ServedModel, ServedQueries
from bricks.studies.serving.options import ScenarioOptions, queries_for
from bricks.studies.serving.outcome import expected, keeps_bound, scenario_of
from bricks.studies.serving.result import PERCENTILES, CheckedScenario, ScenarioResult
from bricks.studies.serving.scenario import ScenarioKind, ScenarioLoad, Serving
from bricks.studies.serving.service import read_sizes

if TYPE_CHECKING:
    from bricks.session.workspace import Workspace
    from bricks.studies.serving.service import ServiceTimes

# LoadGen's names of the scenarios.
_NAMES = {
    ScenarioKind.SINGLE_STREAM: "SingleStream",
    ScenarioKind.MULTI_STREAM: "MultiStream",
    ScenarioKind.SERVER: "Server",
    ScenarioKind.OFFLINE: "Offline",
}

# Series of queries: one before bricks are measured and one after.
_SERIES = 2
# The highest rate is searched by bisection within these factors of the predicted one.
_RATES = (0.7, 1.3)
_RATE_STEPS = 5

# Queries to a server that runs no model: in a stream, and at the rate that is checked.
_EMPTY_QUERIES, _RATED_QUERIES = 150, 300
# The seed of their arrivals, other than that of real queries.
_OWN_SEED = 1000


class ServedScenario(Closing):
    """A model that is served on this host under a scenario; a context manager.

    ``serving`` gets the server's own costs once they are measured.
    """

    def __init__(self, workspace: Workspace, options: ScenarioOptions) -> None:
        self.serving, self._load, self._name = options.serving, options.load, options.model
        self._queries = options.queries or queries_for(options.load)
        self._workspace, self._series = workspace, list[ServedQueries]()
        serving, self._opened = self.serving, ExitStack()
        batching = Batching(serving.max_batch, serving.timeout_s, serving.instances)
        self._served = self._opened.enter_context(ServedModel(workspace.worker(), batching))
        sizes = range(1, serving.max_batch + 1)
        try:
            self._served.load(
                read_sizes(workspace, self._name, sizes, options.shapes, options.values)
            )
        except BaseException:
            self._opened.close()
            raise

    def close(self) -> None:
        """End the server."""
        self._opened.close()

    def serve(self, qps: float | None = None) -> None:
        """Serve half of the queries, at ``qps`` in the server scenario."""
        number = len(self._series)
        self._workspace.progress(f"serving {self._name}", number / _SERIES)
        with self._workspace.timing():
            self._series.append(self._served.serve(self._asked(qps, number)))

    @property
    def real(self) -> Figures:
        """The figures of the series so far; see :class:`CheckedScenario`."""
        return means([real_figures(series, self._load) for series in self._series])

    def _asked(self, qps: float | None, number: int) -> Queries:
        load, count = self._load, self._queries // _SERIES
        return Queries(
            _NAMES[load.kind],
            max(1, count // load.samples) if load.kind is ScenarioKind.MULTI_STREAM else count,
            1.0 if qps is None else qps,
            load.samples,
            1e6 if load.slo_s is None else load.slo_s,
            load.counted_percentile,
            seed=number + 1,
        )

    def checked(self, result: ScenarioResult) -> ScenarioResult:
        """Serve the second half of the queries; return ``result`` with the metrics of all.

        The result is predicted again with the server's own costs. With an SLO, the highest rate
        that meets it is searched too.
        """
        server = self._load.kind is ScenarioKind.SERVER
        if not server or result.load.qps is not None:
            self._workspace.progress("measuring the server itself", 0.0)
            with self._workspace.timing():
                self.serving = with_costs(self._served, self.serving, result.times, result.load.qps)
            seed = self._workspace.options.seed
            result = scenario_of(
                result.model, result.target, result.times, self._load, self.serving, seed=seed
            )
        if server and result.load.qps is None:
            nothing = "nothing was served, since no rate is predicted to keep the bound"
            return replace(result, warnings=[*result.warnings, nothing])
        while len(self._series) < _SERIES:
            self.serve(result.load.qps)
        real, times = self.real, result.times
        predicted = means(
            [expected_figures(series, self._load, self.serving, times) for series in self._series]
        )
        if result.max_qps is not None and result.max_qps.value and self._load.slo_s is not None:
            rates = self._highest_qps(times, result.max_qps.value)
            if rates is not None:
                real["max_qps"], predicted["max_qps"] = rates
        sizes = [batch.size for series in self._series for batch in series.batches]
        checked = CheckedScenario(
            samples=sum(sizes),
            figures=real,
            expected=predicted,
            mean_batch=float(np.mean(sizes)),
            serving=self.serving,
            summaries=[series.summary for series in self._series],
        )
        return replace(result, checked=checked)

    def _highest_qps(self, times: ServiceTimes, predicted_qps: float) -> tuple[float, float] | None:
        """The highest rate that meets the SLO, measured and predicted for the same arrivals.

        All rates have the same arrivals, scaled. None if all tried rates meet it, or none does.
        """
        low, high = (factor * predicted_qps for factor in _RATES)
        unit_arrivals: list[float] = []

        def measured_meets(qps: float) -> bool:
            with self._workspace.timing():
                series = self._served.serve(self._asked(qps, 0))
            unit_arrivals[:] = [qps * issued_s for issued_s in series.issued_s]
            return keeps_bound(np.asarray(series.latencies_s), 0, self._load)

        def predicted_meets(qps: float) -> bool:
            issued_s = [unit / qps for unit in unit_arrivals]
            run = expected(times, self._load, self.serving, issued_s)
            return keeps_bound(run.latencies_s, 0, self._load)

        real = _last(measured_meets, low, high, _RATE_STEPS)
        predicted = _last(predicted_meets, low, high, 2 * _RATE_STEPS)
        return None if real is None or predicted is None else (real, predicted)


def _last(keeps: Callable[[float], bool], low: float, high: float, steps: int) -> float | None:
    """The rate at which ``keeps`` turns False, by bisection; None if it is outside the range."""
    ends = low, high
    for _ in range(steps):
        middle = (low + high) / 2
        if keeps(middle):
            low = middle
        else:
            high = middle
    return None if low == ends[0] or high == ends[1] else (low + high) / 2


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


def with_costs(
    served: ServedModel, serving: Serving, times: ServiceTimes, qps: float | None
) -> Serving:
    """``serving`` with the server's own costs; no other process may time meanwhile.

    In the server scenario, empty queries arrive at the same rate ``qps``, and occupy the server for
    as long as the model.
    """
    sizes = range(1, serving.max_batch + 1)
    isolated = served.serve(Queries("SingleStream", _EMPTY_QUERIES), stand_in_s=[0.0] * len(sizes))
    request_s = _request_s(served, serving.max_batch, isolated)
    if qps is None:
        batch_s = max(0.0, _batch_cost_s(isolated, request_s))
        # That of a query and its answer in a stream, as LoadGen measures it.
        latency_s = 1e-9 * isolated.summary["result_50.00_percentile_latency_ns"]
        occupied_s = median(batch.occupied_s for batch in isolated.batches)
        transport_s = max(0.0, float(latency_s - occupied_s))
        return replace(serving, request_s=request_s, batch_s=batch_s, transport_s=transport_s)
    rated = Queries("Server", _RATED_QUERIES, qps, seed=_OWN_SEED)
    series = served.serve(rated, stand_in_s=[times.latency(size).value for size in sizes])
    transports_s = _transports_s(series)
    return replace(
        serving,
        request_s=request_s,
        batch_s=max(0.0, _batch_cost_s(series, request_s)),
        batches_s=_batch_costs_s(series, request_s),
        transport_s=max(0.0, float(np.median(transports_s))),
        transports_s=transports_s,
    )


def _request_s(served: ServedModel, largest: int, isolated: ServedQueries) -> float:
    """Seconds that a further sample adds to a batch of up to ``largest``."""
    if largest == 1:
        return 0.0
    several = Queries("MultiStream", _EMPTY_QUERIES, samples=largest)
    full = served.serve(several, stand_in_s=[0.0] * largest)
    largest = max(batch.size for batch in full.batches)
    batches = [batch for batch in full.batches if batch.size == largest]
    more_s = _batch_cost_s(replace(full, batches=batches), 0.0) - _batch_cost_s(isolated, 0.0)
    return max(0.0, more_s / max(1, largest - 1))


def _batch_cost_s(series: ServedQueries, request_s: float) -> float:
    """Seconds that a batch occupies an instance beyond its run and ``request_s`` a sample."""
    return trimmed_mean(_batch_costs_s(series, request_s))


def _batch_costs_s(series: ServedQueries, request_s: float) -> Sequence[float]:
    return [b.occupied_s - b.run_s - request_s * b.size for b in series.batches]


def _transports_s(series: ServedQueries) -> Sequence[float]:
    """Transport seconds of each query and its answer: latency minus time in the server.

    LoadGen counts from the time at which a query should be issued: its mean delay is added to each
    query. Some are a little below 0, since an answer may arrive before the server continues.
    """
    here_s = [s for batch in series.batches for s in batch.here_s]
    late_s = 1e-9 * series.summary["result_mean_latency_ns"] - float(np.mean(series.latencies_s))
    transports_s = np.asarray(series.latencies_s) - np.asarray(here_s) + max(0.0, late_s)
    return [*map(float, transports_s)]
