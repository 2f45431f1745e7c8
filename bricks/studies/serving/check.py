"""A scenario really served on this host, beside what is predicted for the queries that came.

Half of the queries are served before bricks are measured and half after, so that both meet the
same machine. What the server itself takes is measured with one that runs no model. Must not know
how results are shown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from statistics import median
from typing import Any

import numpy as np
from scipy.stats import trim_mean

from bricks.api.bench import Bench
from bricks.closing import Closing
from bricks.errors import UsageError
from bricks.measure.served import (
    Batching,
    Queries,
    ServedModel,
    ServedQueries,
    refuse_without_loadgen,
)
from bricks.studies.serving.outcome import expected, keeps_bound, scenario_of
from bricks.studies.serving.predict import read_sizes
from bricks.studies.serving.result import PERCENTILES, CheckedScenario, ScenarioResult
from bricks.studies.serving.scenario import ScenarioKind, ScenarioLoad, Serving
from bricks.studies.serving.service import ServiceTimes

# LoadGen's names of the scenarios.
_NAMES = {
    ScenarioKind.SINGLE_STREAM: "SingleStream",
    ScenarioKind.MULTI_STREAM: "MultiStream",
    ScenarioKind.SERVER: "Server",
    ScenarioKind.OFFLINE: "Offline",
}

# Each size of a batch is a session with weights of its own.
_MAX_BATCH = 32

# So many queries are slower than the percentile that counts.
_BEYOND = 20
_MIN_QUERIES, _MAX_QUERIES = 200, 100_000
# They are served before and after bricks are measured.
_SERIES = 2
# Queries to a server that runs no model: in a stream, and at the rate that is checked.
_EMPTY_QUERIES, _RATED_QUERIES = 150, 300
# Their arrivals are not those of the real ones.
_OWN_SEED = 1000
# The highest rate is looked for within these factors of the one predicted, in steps of halves.
_RATES = (0.7, 1.3)
_RATE_STEPS = 5


def queries_for(load: ScenarioLoad) -> int:
    """How many queries tell the percentile that counts."""
    enough = int(_BEYOND / (1 - load.counted_percentile / 100) + 0.5)
    return min(_MAX_QUERIES, max(_MIN_QUERIES, enough))


def refuse_unchecked(load: ScenarioLoad, serving: Serving) -> None:
    """:class:`UsageError` for what real queries cannot show, or LoadGen cannot ask."""
    refuse_without_loadgen()
    if load.arrivals_s is not None:
        raise UsageError("--check has LoadGen ask, which knows no --arrivals: give --qps")
    if serving.max_batch > _MAX_BATCH:
        raise UsageError(
            f"--check loads the model for each size of a batch, and {serving.max_batch} are too"
            f" many: give --batching {_MAX_BATCH} or less"
        )
    if serving.max_queue is not None:
        raise UsageError("--check has LoadGen ask, which waits for every answer: leave out"
                         " --max-queue")  # fmt: skip
    if serving.request_s or serving.batch_s or serving.transport_s:
        raise UsageError(
            "--check measures what the server takes: leave out --request-cost, --batch-cost and"
            " --transport"
        )


class ServedScenario(Closing):
    """A model served here under a scenario; a context manager.

    ``queries`` are those of both series together.
    """

    def __init__(
        self,
        bench: Bench,
        name: str,
        load: ScenarioLoad,
        serving: Serving,
        *,
        queries: int,
        shapes: Mapping[str, Sequence[int | None]] | None = None,
        values: Mapping[str, Any] | None = None,
    ) -> None:
        self._load, self._queries = load, queries
        self._bench, self._name = bench, name
        sizes = range(1, serving.max_batch + 1)
        self._opened = ExitStack()
        batching = Batching(serving.max_batch, serving.timeout_s, serving.instances)
        self.serving = serving
        self._served = self._opened.enter_context(ServedModel(bench.worker(), batching))
        try:
            self._served.load(read_sizes(bench, name, list(sizes), shapes, values))
        except BaseException:
            self._opened.close()
            raise
        self._series: list[ServedQueries] = []

    def close(self) -> None:
        """End the workers."""
        self._opened.close()

    def _with_costs(self, result: ScenarioResult) -> Serving:
        """``serving`` with what the server itself takes for a sample, a batch and on the way.

        In the server scenario it is asked at the same rate, and kept busy for as long as a model.
        """
        self._bench.progress("measuring the server itself", 0.0)
        serving, sizes = self.serving, range(1, self.serving.max_batch + 1)
        with self._bench.timing():
            alone = self._empty(Queries("SingleStream", _EMPTY_QUERIES), [0.0] * len(sizes))
            request_s = self._request_s(alone)
            if result.load.qps is None:
                batch_s = max(0.0, _own_s(alone, request_s))
                return replace(
                    serving, request_s=request_s, batch_s=batch_s, transport_s=_way_s(alone)
                )
            rated = Queries("Server", _RATED_QUERIES, result.load.qps, seed=_OWN_SEED)
            found = self._empty(rated, [result.times.latency(size).value for size in sizes])
        ways_s = _ways_s(found)
        return replace(
            serving,
            request_s=request_s,
            batch_s=max(0.0, _own_s(found, request_s)),
            batches_s=_owns_s(found, request_s),
            transport_s=max(0.0, float(np.median(ways_s))),
            transports_s=ways_s,
        )

    def _empty(self, queries: Queries, stand_in_s: Sequence[float]) -> ServedQueries:
        return self._served.serve(queries, stand_in_s=stand_in_s)

    def _request_s(self, alone: ServedQueries) -> float:
        """What a further sample in a batch takes."""
        largest = self.serving.max_batch
        if largest == 1:
            return 0.0
        several = Queries("MultiStream", _EMPTY_QUERIES, samples=largest)
        full = self._empty(several, [0.0] * largest)
        largest = max(batch.size for batch in full.batches)
        batches = [batch for batch in full.batches if batch.size == largest]
        more_s = _own_s(replace(full, batches=batches), 0.0) - _own_s(alone, 0.0)
        return max(0.0, more_s / max(1, largest - 1))

    def serve(self, qps: float | None = None) -> None:
        """Serve half of the queries, at ``qps`` in the server scenario."""
        number = len(self._series)
        self._bench.progress(f"serving {self._name}", number / _SERIES)
        with self._bench.timing():
            self._series.append(
                self._served.serve(self._asked(qps, self._queries // _SERIES, number))
            )

    @property
    def real(self) -> dict[str, float]:
        """The figures of the series so far; see :class:`CheckedScenario`."""
        return _means(
            [
                _real(each, self._load) | self._in_worker([b.occupied_s for b in each.batches])
                for each in self._series
            ]
        )

    def _in_worker(self, occupied_s: Sequence[float] | np.ndarray) -> dict[str, float]:
        """What batches take in the worker, without those that they wait for."""
        counted = self._load.counted_percentile
        return {
            "worker_p50_s": float(np.median(occupied_s)),
            "worker_counted_s": float(np.percentile(occupied_s, counted)),
        }

    def _asked(self, qps: float | None, count: int, number: int) -> Queries:
        load = self._load
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
        """``result`` with what queries showed, after those that are left were served.

        It is predicted anew with what the server itself takes. Where there is a bound, the highest
        rate that keeps it is looked for too.
        """
        if result.load.kind is not ScenarioKind.SERVER or result.load.qps is not None:
            self.serving = self._with_costs(result)
            result = scenario_of(
                result.model, result.target, result.times, self._load, self.serving,
                seed=self._bench.options.seed,
            )  # fmt: skip
        if self._load.kind is ScenarioKind.SERVER and result.load.qps is None:
            nothing = "nothing was served, since no rate is predicted to keep the bound"
            return replace(result, warnings=[*result.warnings, nothing])
        while len(self._series) < _SERIES:
            self.serve(result.load.qps)
        max_qps = None if result.max_qps is None else result.max_qps.value
        return replace(result, checked=self._checked(result.times, max_qps))

    def _checked(self, times: ServiceTimes, max_qps: float | None) -> CheckedScenario:
        real = self.real
        told = _means([self._expected(each, times) for each in self._series])
        if max_qps and self._load.slo_s is not None:
            rates = self._highest_qps(times, max_qps)
            if rates is not None:
                real["max_qps"], told["max_qps"] = rates
        return CheckedScenario(
            samples=sum(batch.size for each in self._series for batch in each.batches),
            figures=real,
            expected=told,
            mean_batch=float(np.mean([b.size for each in self._series for b in each.batches])),
            serving=self.serving,
            summaries=[each.summary for each in self._series],
        )

    def _expected(self, series: ServedQueries, times: ServiceTimes) -> dict[str, float]:
        """The figures of ``series`` as predicted for its own arrivals."""
        if self._load.kind is ScenarioKind.OFFLINE:
            at_once = [0.0] * sum(batch.size for batch in series.batches)
            run = expected(times, self._load, self.serving, at_once)
            return {"throughput": run.samples / run.span_s, **self._in_worker(run.occupied_s)}
        run = expected(times, self._load, self.serving, series.issued_s)
        latencies_s, rate = run.latencies_s, dict[str, float]()
        if self._load.kind is ScenarioKind.SERVER:
            last_s = float(np.max(np.asarray(series.issued_s) + latencies_s))
            rate = {"throughput": len(latencies_s) / last_s}
        return {
            **rate,
            **self._in_worker(run.occupied_s),
            **{name: float(np.percentile(latencies_s, p)) for name, p in PERCENTILES.items()},
            "counted_s": float(np.percentile(latencies_s, self._load.counted_percentile)),
            "trimmed_mean_s": float(trim_mean(latencies_s, 0.1)),
        }

    def _highest_qps(self, times: ServiceTimes, around: float) -> tuple[float, float] | None:
        """The highest rate that keeps the bound, real and as predicted for the same arrivals.

        All rates have the same arrivals, scaled, so that they differ in nothing else. None where
        all the rates that were tried keep it, or none does.
        """
        low, high = (factor * around for factor in _RATES)
        units: list[float] = []

        def really(qps: float) -> bool:
            with self._bench.timing():
                found = self._served.serve(self._asked(qps, self._queries // _SERIES, 0))
            units[:] = [qps * issued_s for issued_s in found.issued_s]
            return keeps_bound(np.asarray(found.latencies_s), 0, self._load)

        def expectedly(qps: float) -> bool:
            issued_s = [unit / qps for unit in units]
            run = expected(times, self._load, self.serving, issued_s)
            return keeps_bound(run.latencies_s, 0, self._load)

        real = _last(really, low, high, _RATE_STEPS)
        told = _last(expectedly, low, high, 2 * _RATE_STEPS)
        return None if real is None or told is None else (real, told)


def _own_s(series: ServedQueries, request_s: float) -> float:
    """What a batch takes of an instance, besides what it runs and ``request_s`` for each sample."""
    return float(trim_mean(_owns_s(series, request_s), 0.1))


def _owns_s(series: ServedQueries, request_s: float) -> list[float]:
    return [b.occupied_s - b.run_s - request_s * b.size for b in series.batches]


def _way_s(series: ServedQueries) -> float:
    """What a query and its answer take besides the batch, as LoadGen has it, in a stream."""
    latency_s = 1e-9 * series.summary["result_50.00_percentile_latency_ns"]
    return max(0.0, float(latency_s - median(batch.occupied_s for batch in series.batches)))


def _ways_s(series: ServedQueries) -> list[float]:
    """What each query and its answer take besides their time in the server.

    LoadGen counts from when a query should have been issued, so what it is late is part of it: all
    of them are as late as they are in the mean. Some seconds are a little below 0, as an answer may
    arrive before the server goes on.
    """
    here_s = [s for batch in series.batches for s in batch.here_s]
    late_s = 1e-9 * series.summary["result_mean_latency_ns"] - float(np.mean(series.latencies_s))
    ways_s = np.asarray(series.latencies_s) - np.asarray(here_s) + max(0.0, late_s)
    return [*map(float, ways_s)]


def _real(series: ServedQueries, load: ScenarioLoad) -> dict[str, float]:
    """The figures of a series: LoadGen's own, and of the client where LoadGen has none."""
    summary = series.summary
    if load.kind is ScenarioKind.OFFLINE:
        return {"throughput": summary["result_samples_per_second"]}
    per_query = "per_query_" if load.kind is ScenarioKind.MULTI_STREAM else ""
    rate = "result_completed_samples_per_sec"  # LoadGen has it in the server scenario
    return {
        **({"throughput": summary[rate]} if rate in summary else {}),
        **{
            name: 1e-9 * summary[f"result_{percent:.2f}_percentile_{per_query}latency_ns"]
            for name, percent in PERCENTILES.items()
        },
        "counted_s": float(np.percentile(series.latencies_s, load.counted_percentile)),
        "trimmed_mean_s": float(trim_mean(series.latencies_s, 0.1)),
    }


def _means(of: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: float(np.mean([each[name] for each in of])) for name in of[0]}


def _last(keeps: Callable[[float], bool], low: float, high: float, steps: int) -> float | None:
    """The middle of the interval in which ``keeps`` ends to hold; None if it ends elsewhere."""
    ends = low, high
    for _ in range(steps):
        middle = (low + high) / 2
        if keeps(middle):
            low = middle
        else:
            high = middle
    return None if low == ends[0] or high == ends[1] else (low + high) / 2
