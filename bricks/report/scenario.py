"""A scenario of a served model for terminals. Must not compute results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bricks.report.answers.scenario import rate_text
from bricks.report.answers.words import source_text, uncertainty_text
from bricks.report.columns import DASH, Column, table_of
from bricks.report.figures import (
    FigureRow,
    OptionalUnit,
    count_text,
)
from bricks.report.tables import number, percent, seconds
from bricks.studies.serving.scenario import ScenarioKind, ScenarioLoad

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from bricks.studies.serving.result import CheckedScenario, ScenarioResult
    from bricks.studies.serving.service import BatchLatency
    from bricks.units.interval import Interval


def scenario_parts(result: ScenarioResult) -> list[RenderableType]:
    """The table of predicted quantities."""
    return [_figures(result)]


def scenario_details(result: ScenarioResult) -> list[RenderableType]:
    """The load and the server, the table of quantities, and one of the latencies of batches."""
    runtime = result.target.runtime
    parts: list[RenderableType] = [
        f"{_load(result.load)}, {runtime.backend} {runtime.version}",
        f"{_server(result)}.",
        "",
        _figures(result),
    ]
    if result.serving.max_batch > 1:
        parts += ["", table_of(result.times.batches, _BATCHES)]
    return parts


def scenario_remarks(result: ScenarioResult) -> list[str]:
    """Warnings first, then what batches gain and how real queries were served."""
    warnings = [f"{warning[0].upper()}{warning[1:]}." for warning in result.warnings]
    return [*_served_remarks(result), *warnings, *_batch_remarks(result)]


def _load(load: ScenarioLoad) -> str:
    if load.kind is ScenarioKind.MULTI_STREAM:
        return f"Multi-stream, {load.samples} samples a query"
    if load.arrivals is not None:
        return f"Server, a trace of {load.arrivals} arrivals"
    if load.qps is not None:
        return f"Server at {load.qps:.4g} queries/s"
    return str(load.kind).capitalize()


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


_PREDICTED: Sequence[Column[_ServedFigure]] = (
    Column("", lambda row: row.title, left=True),
    Column("predicted", lambda row: row.unit(row.predicted.value)),
    Column("±", lambda row: uncertainty_text(row.predicted, row.unit)),
)
_SERVED: Sequence[Column[_ServedFigure]] = (
    Column("same arrivals", lambda row: row.unit(row.expected)),
    Column("served", lambda row: row.unit(row.observed)),
    Column("ratio", lambda row: row.ratio),
)


# The name of each latency for people.
_LATENCIES = {
    "p50_s": "p50",
    "p90_s": "p90",
    "p99_s": "p99",
    "p999_s": "p99.9",
    "trimmed_mean_s": "trimmed mean",
}


def _figures(result: ScenarioResult) -> Table:
    """One row for each predicted quantity."""
    served = () if result.checked is None else _SERVED
    return table_of([*_rows(result)], [*_PREDICTED, *served])


def _rate(qps: float | None) -> str:
    return DASH if qps is None else rate_text(qps)


def _share(share: float | None) -> str:
    return percent(share, 0)


def _rows(result: ScenarioResult) -> Iterator[_ServedFigure]:
    served = result.checked
    figures: list[tuple[str, str, Interval | None, OptionalUnit]] = [
        (name, title, result.latencies.get(name), seconds) for name, title in _LATENCIES.items()
    ]
    if result.mean_batch:  # else no rate was found at which anything is served
        figures += [
            ("throughput", "throughput", result.throughput, _rate),
            ("utilisation", "utilisation", result.utilisation, _share),
        ]
    if result.serving.max_queue is not None:
        figures.append(("dropped_share", "dropped", result.dropped_share, percent))
    if result.load.kind is ScenarioKind.SERVER:
        figures.append(("capacity_qps", "saturates at", result.capacity_qps, _rate))
    if result.load.slo_s is not None:
        figures.append(("max_qps", "keeps the SLO up to", result.max_qps, _rate))
    for name, title, predicted, unit in figures:
        if predicted is not None:
            expected = None if served is None else served.expected.get(name)
            real = None if served is None else served.figures.get(name)
            yield _ServedFigure(title, predicted, unit, real, expected)


_BATCHES: Sequence[Column[BatchLatency]] = (
    Column("batch", lambda row: str(row.size)),
    Column("latency", lambda row: seconds(row.run.latency_s.value)),
    Column("±", lambda row: uncertainty_text(row.run.latency_s)),
    Column("samples/s", lambda row: f"{row.throughput.value:.4g}"),
    Column("latencies of bricks", lambda row: source_text(row.run.provenance)),
)


def _batch_remarks(result: ScenarioResult) -> Iterator[str]:
    if result.serving.max_batch > 1:
        grows = result.best_batch
        yield (
            f"Throughput of an instance grows up to batches of {grows}."
            if grows > 1
            else "Batches do not raise the throughput of an instance."
        )


def _served_remarks(result: ScenarioResult) -> Iterator[str]:
    if result.checked is not None:
        yield from _served(result.checked, result.load)


def _served(checked: CheckedScenario, load: ScenarioLoad) -> Iterator[str]:
    real, expected = checked.figures, checked.expected
    yield (
        f"Served: {count_text(checked.samples, 'real sample')} that MLPerf LoadGen asked for,"
        f" {number(checked.mean_batch, 1)} samples a batch. Same arrivals: predicted for the times"
        " at which these came."
    )
    latencies = (
        f"{title} {seconds(real[name])} ({seconds(expected[name])} predicted)"
        for title, name in (
            ("in the median", "worker_p50_s"),
            (f"at p{load.counted_percentile:g}", "worker_counted_s"),
        )
    )
    yield f"In the worker, without the queue, a batch takes {', '.join(latencies)}."
