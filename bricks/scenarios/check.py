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
from types import TracebackType
from typing import Any

import numpy as np
from scipy.stats import trim_mean

from bricks.errors import UsageError
from bricks.measure.served import (
    Batching,
    Queries,
    ServedModel,
    ServedQueries,
    refuse_without_loadgen,
)
from bricks.scenarios.outcome import expected_latencies_s, expected_throughput, keeps_bound
from bricks.scenarios.predict import read_sizes
from bricks.scenarios.result import PERCENTILES, CheckedScenario, ScenarioResult
from bricks.scenarios.scenario import ScenarioKind, ScenarioLoad, Serving
from bricks.scenarios.service import ServiceTimes
from bricks.session.bench import Bench

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
# Queries to a server that runs no model: in a stream, and so rare that the processor sleeps.
_EMPTY_QUERIES = 150
_RARE_QUERIES, _RARE_QPS = 30, 10.0
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


class ServedScenario:
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
        self._served = self._opened.enter_context(ServedModel(bench.worker(), batching))
        try:
            self.serving = self._with_costs(serving)
            self._served.load(read_sizes(bench, name, list(sizes), shapes, values))
        except BaseException:
            self._opened.close()
            raise
        self._series: list[ServedQueries] = []

    def __enter__(self) -> ServedScenario:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._opened.close()

    def _with_costs(self, serving: Serving) -> Serving:
        """``serving`` with what the server itself takes for a sample, a batch and on the way."""
        self._bench.progress("measuring the server itself", 0.0)
        with self._bench.timing():
            lone = self._served.serve(Queries("SingleStream", _EMPTY_QUERIES), empty=True)
            rare = self._served.serve(Queries("Server", _RARE_QUERIES, qps=_RARE_QPS), empty=True)
            several = Queries("MultiStream", _EMPTY_QUERIES, samples=serving.max_batch)
            full = self._served.serve(several, empty=True) if serving.max_batch > 1 else lone
        one_s, asleep_one_s, request_s = _own_s(lone, 1), _own_s(rare, 1), 0.0
        if serving.max_batch > 1:
            largest = max(batch.size for batch in full.batches)
            request_s = max(0.0, (_own_s(full, largest) - one_s) / max(1, largest - 1))
        way_s = max(0.0, _way_s(lone))
        return replace(
            serving,
            request_s=request_s,
            batch_s=max(0.0, one_s - request_s),
            transport_s=way_s,
            asleep_batch_s=max(0.0, asleep_one_s - one_s),
            asleep_transport_s=max(0.0, _way_s(rare) - way_s),
        )

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
        return _means([_real(each, self._load) for each in self._series])

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

        Where there is a bound, the highest rate that keeps it is looked for too.
        """
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
            samples = sum(batch.size for batch in series.batches)
            return {"throughput": expected_throughput(times, self.serving, samples)}
        latencies_s = expected_latencies_s(times, self._load, self.serving, series.issued_s)
        rate = {}
        if self._load.kind is ScenarioKind.SERVER:
            last_s = float(np.max(np.asarray(series.issued_s) + latencies_s))
            rate = {"throughput": len(latencies_s) / last_s}
        return {
            **rate,
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
            latencies_s = expected_latencies_s(times, self._load, self.serving, issued_s)
            return keeps_bound(latencies_s, 0, self._load)

        real = _last(really, low, high, _RATE_STEPS)
        told = _last(expectedly, low, high, 2 * _RATE_STEPS)
        return None if real is None or told is None else (real, told)


def _own_s(series: ServedQueries, size: int) -> float:
    """What a batch of ``size`` takes of an instance, besides what it runs."""
    return median(b.occupied_s - b.run_s for b in series.batches if b.size == size)


def _way_s(series: ServedQueries) -> float:
    """What a query and its answer take besides the batch, as LoadGen has it.

    It counts from when a query should have been issued, so what LoadGen is late is part of it.
    """
    latency_s = 1e-9 * series.summary["result_50.00_percentile_latency_ns"]
    return float(latency_s - median(batch.occupied_s for batch in series.batches))


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
