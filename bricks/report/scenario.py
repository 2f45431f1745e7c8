"""A scenario of a served model for terminals. Must not compute results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import RenderableType
from rich.table import Table

from bricks.errors import printable
from bricks.report.columns import Column, table_of
from bricks.report.figures import (
    FigureRow,
    OptionalUnit,
    count_text,
    figure_columns,
    interval_text,
    provenance_text,
    rate_text,
)
from bricks.report.tables import number, percent, seconds
from bricks.studies.serving.result import CheckedScenario, ScenarioResult
from bricks.studies.serving.scenario import ScenarioKind, ScenarioLoad
from bricks.studies.serving.service import BatchLatency
from bricks.units.interval import Interval


def scenario_parts(result: ScenarioResult) -> list[RenderableType]:
    """Lines and tables in the order to show them."""
    runtime = result.target.runtime
    parts: list[RenderableType] = [
        f"{printable(result.model)}, {_load(result.load)}, on"
        f" {printable(result.target.system.name)}, {runtime.backend} {runtime.version}",
        f"{_server(result)}.",
        "",
        _figures(result),
    ]
    if result.serving.max_batch > 1:
        parts += ["", table_of(result.times.batches, _BATCHES)]
    parts += ["", *_answer(result)]
    parts += [f"Mind: {line}." for line in result.warnings]
    return parts


def _load(load: ScenarioLoad) -> str:
    if load.kind is ScenarioKind.MULTI_STREAM:
        return f"multi-stream, {load.samples} samples a query"
    if load.arrivals is not None:
        return f"server, a trace of {load.arrivals} arrivals"
    if load.qps is not None:
        return f"server at {load.qps:.4g} queries/s"
    return str(load.kind)


def _server(result: ScenarioResult) -> str:
    serving, threads = result.serving, result.target.runtime.threads
    parts = [
        f"{count_text(serving.instances, 'instance')} with {count_text(threads, 'thread')}"
        f"{'' if serving.instances == 1 else ' each'}"
    ]
    if serving.max_batch > 1:
        waits_s = serving.timeout_s
        parts.append(
            f"batches of up to {serving.max_batch}"
            + (f", filled for {seconds(waits_s)} at most" if waits_s else "")
        )
    if serving.max_queue is not None:
        parts.append(f"a queue of {serving.max_queue}")
    costs = [
        f"{seconds(cost_s)} a {what}"
        for cost_s, what in ((serving.request_s, "sample"), (serving.batch_s, "batch"))
        if cost_s
    ]
    if costs:
        parts.append(f"the server itself takes {' and '.join(costs)}")
    return "; ".join(parts)


@dataclass(frozen=True, slots=True)
class _ServedFigure(FigureRow):
    """A quantity of served queries; ``expected`` is predicted for the same arrival times."""

    expected: float | None = None

    @property
    def ratio(self) -> str | None:
        """Expected over observed; None without either."""
        if not self.observed or self.expected is None:
            return None
        return number(self.expected / self.observed, 3)


_SERVED: Sequence[Column[_ServedFigure]] = (
    Column("so asked", lambda row: row.unit(row.expected)),
    Column("served", lambda row: row.unit(row.observed)),
    Column("ratio", lambda row: row.ratio),
)


# The name of each figure for people, and how it is written.
_LATENCIES = {
    "p50_s": "50th percentile",
    "p90_s": "90th percentile",
    "p99_s": "99th percentile",
    "p999_s": "99.9th percentile",
    "trimmed_mean_s": "trimmed mean",
}


def _figures(result: ScenarioResult) -> Table:
    """One row for each predicted quantity."""
    served = () if result.checked is None else _SERVED
    return table_of([*_rows(result)], [*figure_columns(), *served])


def _rows(result: ScenarioResult) -> Iterator[_ServedFigure]:
    served = result.checked
    figures: list[tuple[str, str, Interval | None, OptionalUnit]] = [
        (name, title, result.latencies.get(name), seconds) for name, title in _LATENCIES.items()
    ]
    if result.mean_batch:  # else no rate was found at which anything is served
        figures += [
            ("throughput", "throughput", result.throughput, rate_text),
            ("utilisation", "utilisation", result.utilisation, percent),
        ]
    if result.serving.max_queue is not None:
        figures.append(("dropped_share", "dropped", result.dropped_share, percent))
    figures.append(("max_qps", "highest rate", result.max_qps, rate_text))
    for name, title, predicted, unit in figures:
        if predicted is not None:
            expected = None if served is None else served.expected.get(name)
            real = None if served is None else served.figures.get(name)
            yield _ServedFigure(title, predicted, unit, real, expected)


_BATCHES: Sequence[Column[BatchLatency]] = (
    Column("batch", lambda row: str(row.size)),
    Column("latency", lambda row: seconds(row.run.latency_s.value)),
    Column("interval", lambda row: interval_text(row.run.latency_s, seconds)),
    Column("samples/s", lambda row: f"{row.throughput.value:.4g}"),
    Column("measured", lambda row: provenance_text(row.run.provenance)),
)


def _answer(result: ScenarioResult) -> Iterator[str]:
    if result.serving.max_batch > 1:
        grows = result.best_batch
        yield (
            f"Throughput of an instance grows up to batches of {grows}."
            if grows > 1
            else "Batches do not raise the throughput of an instance."
        )
    if result.load.kind is ScenarioKind.SERVER:
        yield f"The server saturates at {rate_text(result.capacity_qps.value)}."
    if result.load.slo_s is not None:
        yield _bound(result, result.load.slo_s)
    if result.checked is not None:
        yield from _served(result.checked, result.load)


def _bound(result: ScenarioResult, slo_s: float) -> str:
    bound = f"The bound of {result.load.counted_percentile:g} % within {seconds(slo_s)}"
    highest = result.max_qps
    if highest is not None and highest.value <= 0:
        return f"{bound} is kept at no rate."
    if highest is not None and result.load.qps == highest.value:
        return f"{bound} is kept up to {rate_text(highest.value)}."
    kept = {"yes": "is kept", "no": "is missed", "uncertain": "may be kept or missed"}
    return f"{bound} {kept[str(result.meets_slo)]}."


def _served(checked: CheckedScenario, load: ScenarioLoad) -> Iterator[str]:
    real, expected = checked.figures, checked.expected
    latencies = (
        f"{title} {seconds(real[name])} ({seconds(expected[name])} predicted)"
        for title, name in (
            ("in the median", "worker_p50_s"),
            (f"at the {load.counted_percentile:g}th percentile", "worker_counted_s"),
        )
    )
    yield f"In the worker, without the queue, a batch takes {', '.join(latencies)}."
    yield (
        f"Served: {count_text(checked.samples, 'real sample')} that MLPerf LoadGen asked for,"
        f" {number(checked.mean_batch, 1)} samples a batch. So asked: what is predicted for"
        " the very times at which these came."
    )
