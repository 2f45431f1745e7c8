"""Serves a scenario on this host, and predicts the metrics of its real arrivals to compare.

Half of the queries are served before bricks are measured and half after, so that both see the same
machine state. Must not know how results are shown.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from bricks.closing import Closing
from bricks.measure.load_generator import Queries
from bricks.measure.served import (
    Batching,
    ServedModel,
    ServedQueries,
)
from bricks.studies.serving.batches import read_sizes
from bricks.studies.serving.figures import Figures, expected_figures, means, real_figures
from bricks.studies.serving.options import ScenarioOptions, queries_for
from bricks.studies.serving.outcome import expected, keeps_bound, scenario_of
from bricks.studies.serving.result import CheckedScenario, ScenarioResult
from bricks.studies.serving.scenario import ScenarioKind
from bricks.studies.serving.server_costs import with_costs

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
            result = self._with_costs(result)
        if server and result.load.qps is None:
            nothing = "nothing was served, since no rate is predicted to keep the bound"
            return replace(result, warnings=[*result.warnings, nothing])
        while len(self._series) < _SERIES:
            self.serve(result.load.qps)
        return replace(result, checked=self._checked(result))

    def _with_costs(self, result: ScenarioResult) -> ScenarioResult:
        """``result`` with the server's own costs."""
        self._workspace.progress("measuring the server itself", 0.0)
        with self._workspace.timing():
            self.serving = with_costs(self._served, self.serving, result.times, result.load.qps)
        return scenario_of(
            result.model, result.target, result.times, self._load, self.serving,
            seed=self._workspace.options.seed,
        )  # fmt: skip

    def _checked(self, result: ScenarioResult) -> CheckedScenario:
        real, times = self.real, result.times
        predicted = means(
            [expected_figures(series, self._load, self.serving, times) for series in self._series]
        )
        if result.max_qps is not None and result.max_qps.value and self._load.slo_s is not None:
            rates = self._highest_qps(times, result.max_qps.value)
            if rates is not None:
                real["max_qps"], predicted["max_qps"] = rates
        sizes = [batch.size for series in self._series for batch in series.batches]
        return CheckedScenario(
            samples=sum(sizes),
            figures=real,
            expected=predicted,
            mean_batch=float(np.mean(sizes)),
            serving=self.serving,
            summaries=[series.summary for series in self._series],
        )

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
