"""A served model under a load: in one sentence, and for terminals. Must not compute results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import PurePath
from typing import TYPE_CHECKING

from bricks.compose.slo import MeetsSlo
from bricks.errors import printable
from bricks.report.tables import DASH, Column, number, percent, seconds, table_of
from bricks.report.words import (
    FigureRow,
    OptionalUnit,
    count_text,
    slo_text,
    source_text,
    uncertainty_text,
    value_text,
)
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
    served = () if result.checked is None else _served(result.checked, result.load)
    return [*served, *warnings, *_batch_remarks(result)]


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
    served = () if result.checked is None else _SERVED
    return table_of([*_rows(result)], [*_PREDICTED, *served])


def _rate(qps: float | None) -> str:
    return DASH if qps is None else rate_text(qps)


def _rows(result: ScenarioResult) -> Iterator[_ServedFigure]:
    served = result.checked
    figures: list[tuple[str, str, Interval | None, OptionalUnit]] = [
        (name, title, result.latencies.get(name), seconds) for name, title in _LATENCIES.items()
    ]
    if result.mean_batch:  # else no rate was found at which anything is served
        figures += [
            ("throughput", "throughput", result.throughput, _rate),
            ("utilisation", "utilisation", result.utilisation, partial(percent, digits=0)),
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


def rate_text(qps: float) -> str:
    """A rate of requests: ``6.69/s``."""
    return f"{float(f'{qps:.3g}'):,g}/s"


def scenario_text(result: ScenarioResult) -> str:
    """One sentence, such as ``resnet50 keeps 40/s under 100 ms at p99: 72.0 ms (±12 %) on …``."""
    match result.load.kind:
        case ScenarioKind.SERVER:
            return f"{_server_answer(result)}."
        case ScenarioKind.OFFLINE:
            rate = value_text(result.throughput, rate_text)
            return f"{_name(result)} answers {rate} {_place(result)}, with all samples at once."
    samples = "one sample" if result.load.kind is ScenarioKind.SINGLE_STREAM else (
        f"{result.load.samples} samples"
    )  # fmt: skip
    return f"{_name(result)} takes {_latency(result)} at {_percentile(result)} for {samples} at a \
time {_place(result)}{_meets(result)}."


def _server_answer(result: ScenarioResult) -> str:
    load, name, place = result.load, _name(result), _place(result)
    highest = result.max_qps
    if highest is not None and load.slo_s is not None and highest.value <= 0:
        return f"{name} keeps no rate under {_bound(result)} {place}"
    if highest is not None and load.slo_s is not None and load.qps == highest.value:
        rate = value_text(highest, rate_text)
        return f"{name} keeps up to {rate} under {_bound(result)} {place}"
    if result.saturated:
        rate = value_text(result.capacity_qps, rate_text)
        return f"{name} is saturated at {_offered_rate(result)}: {place}, it serves {rate} at most"
    if load.slo_s is None:
        at_most = value_text(result.capacity_qps, rate_text)
        return (
            f"{name} at {_offered_rate(result)} answers in {_latency(result)}"
            f" at {_percentile(result)} {place}; it saturates at {at_most}"
        )
    answer = f"{_kept(result)}: {_latency(result)} {place}"
    if highest is None or result.meets_slo is MeetsSlo.YES:
        return answer
    return f"{answer}; it keeps up to {value_text(highest, rate_text)}"


def _kept(result: ScenarioResult) -> str:
    kept = f"{_offered_rate(result)} under {_bound(result)}"
    match result.meets_slo:
        case MeetsSlo.YES:
            return f"{_name(result)} keeps {kept}"
        case MeetsSlo.UNCERTAIN:
            return f"It is uncertain whether {_name(result)} keeps {kept}"
    return f"{_name(result)} does not keep {kept}"


def _meets(result: ScenarioResult) -> str:
    if result.load.slo_s is None:
        return ""
    bound = slo_text(result.load.slo_s)
    if result.meets_slo is MeetsSlo.UNCERTAIN:
        return f"; whether that meets {bound} is uncertain"
    return f", which {'meets' if result.meets_slo is MeetsSlo.YES else 'does not meet'} {bound}"


def _name(result: ScenarioResult) -> str:
    return printable(PurePath(result.model).name.removesuffix(".onnx"))


def _place(result: ScenarioResult) -> str:
    threads = count_text(result.target.runtime.threads, "thread")
    instances = result.serving.instances
    several = "" if instances == 1 else f"{instances} instances of "
    return f"on {printable(result.target.system.name)} with {several}{threads}"


def _offered_rate(result: ScenarioResult) -> str:
    rate_qps = result.load.rate_qps
    assert rate_qps is not None
    return f"{rate_qps:.4g}/s"


def _percentile(result: ScenarioResult) -> str:
    return f"p{result.load.counted_percentile:g}"


def _bound(result: ScenarioResult) -> str:
    assert result.load.slo_s is not None
    return f"{slo_text(result.load.slo_s)} at {_percentile(result)}"


def _latency(result: ScenarioResult) -> str:
    counted_s = result.latencies["counted_s"]
    return value_text(counted_s, seconds)
