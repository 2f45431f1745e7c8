"""A training on several ranks: in sentences, for terminals, as a page, and as a trace of a step.

Curves over ranks and the timeline of a step are one self-contained HTML file (see
:mod:`bricks.report.page`). Trace events of a step, a process for each rank and one for the network,
open in ui.perfetto.dev. Must not compute results, nor know how a step was simulated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from bricks.errors import printable
from bricks.report.page import in_script, render_page, script
from bricks.report.tables import (
    DASH,
    Column,
    cells_of,
    duration,
    number,
    part_column,
    percent,
    seconds,
    size,
    table_of,
)
from bricks.report.trace_events import (
    Event,
    Rows,
    Track,
    microseconds,
    named,
    slice_on,
    trace_file,
)
from bricks.report.words import (
    count_text,
    links_text,
    runtime_text,
    target_text,
    uncertainty_text,
    value_text,
)
from bricks.studies.scaling.result import (
    ASSUMED,
    LOOPBACK,
    PUBLISHED,
    RankNetwork,
    ScalePoint,
    ScalingResult,
)
from bricks.studies.scaling.simulation import NETWORK

if TYPE_CHECKING:
    from rich.console import RenderableType

    from bricks.compose.lanes import LaneSpan
    from bricks.units.interval import Interval

STRATEGY: Column[ScalePoint] = Column("strategy", lambda point: point.strategy, left=True)
_RANKS: Column[ScalePoint] = Column("ranks", lambda point: str(point.ranks))

_TIMES: Sequence[Column[ScalePoint]] = (
    Column("step", lambda point: seconds(point.step_s.value)),
    Column("±", lambda point: uncertainty_text(point.step_s)),
    part_column("epoch", lambda point: point.epoch_s, lambda of: duration(of.value)),
    part_column("run", lambda point: point.run_s, lambda of: duration(of.value)),
    Column("samples/s", lambda point: f"{point.samples_per_s.value:.4g}"),
    Column("efficiency", lambda point: percent(point.efficiency.value, 0)),
    part_column("measured", lambda point: point.checked, lambda of: seconds(of.step_s)),
    Column("ratio", lambda point: number(point.ratio, 3) if point.checked is not None else None),
)

_DETAILS: Sequence[Column[ScalePoint]] = (
    Column("speed-up", lambda point: number(point.speedup.value)),
    Column(
        "exposed",
        lambda point: _sent(point, seconds(point.exposed_communication_s.value)),
    ),
    Column("sent", lambda point: _sent(point, size(point.bytes_sent))),
    part_column("cost/epoch", lambda of: of.cost_per_epoch, lambda cost: number(cost.value, 4)),
)

# All columns, for pages.
COLUMNS: Sequence[Column[ScalePoint]] = (_RANKS, *_TIMES, *_DETAILS)


def _sent(point: ScalePoint, text: str) -> str:
    """``text`` for several ranks; a dash for a single rank, which sends nothing."""
    return text if point.ranks > 1 else DASH


def scaling_parts(result: ScalingResult) -> list[RenderableType]:
    """The table of times, below the conditions other than those of a plain step."""
    if not result.predicted:
        return []
    return [*_conditions(result), table_of(result.predicted, [*_named(result), *_TIMES])]


def scaling_details(result: ScalingResult) -> list[RenderableType]:
    """Also a table of communication, and where figures come from."""
    points, system = result.predicted, printable(result.target.system.name)
    if not points:
        return []
    return [
        *scaling_parts(result), "", table_of(points, [*_named(result), *_DETAILS]), "",
        f"Ranks are of {system}, {runtime_text(result.target)}.",
        *_origins(points), *_pays(result), *_shared_host(result),
    ]  # fmt: skip


def _named(result: ScalingResult) -> list[Column[ScalePoint]]:
    return [*([STRATEGY] if len(result.strategies) > 1 else []), _RANKS]


def _conditions(result: ScalingResult) -> Iterator[str]:
    whole = max(point.batch for point in result.predicted)
    conditions = [f"ranks divide a batch of {whole}"] if result.step.strong else []
    if result.step.accumulate > 1:
        conditions.append(f"{result.step.accumulate} batches a step")
    if result.step.straggler > 1:
        conditions.append(f"one rank {result.step.straggler:g} times slower")
    if conditions:
        yield f"{'; '.join(conditions).capitalize()}."


def _origins(points: Sequence[ScalePoint]) -> Iterator[str]:
    by_origin: dict[str, list[int]] = {}
    for point in points:
        of = point.origins
        parts = [f"computing {of.compute}"]
        if of.network is not None:
            parts += [
                f"copies {of.copies}", f"network {of.network}",
                f"slowdown of computing {of.slowdown}",
            ]  # fmt: skip
        by_origin.setdefault(", ".join(parts), []).append(point.ranks)
    for origin, ranks in by_origin.items():
        numbers = ", ".join(map(str, dict.fromkeys(ranks)))
        yield f"{numbers} {'rank' if numbers == '1' else 'ranks'}: {origin}."


def _shared_host(result: ScalingResult) -> Iterator[str]:
    """The step of ranks that ran on one host, without communication.

    A prediction includes that they slow each other down only where its ranks share a host too.
    """
    single_rank_s = {point.strategy: point.step_s for point in result.predicted if point.ranks == 1}
    for point in result.predicted:
        if point.checked is None or result.step.strong:
            continue
        own = single_rank_s.get(point.strategy)
        own_s = None if own is None else own.value
        predicted_s = point.solo_s if result.network.one_host else own_s
        predicted = "" if predicted_s is None else f" ({seconds(predicted_s)} predicted)"
        line = (
            f"Without communication, a step of {point.ranks} ranks at once took"
            f" {seconds(point.checked.solo_s)}{predicted}"
        )
        if not result.network.one_host:
            line += ": ranks that share a host slow each other, which those on hosts of their own"
            line += " do not"
        yield f"{line}."


def _pays(result: ScalingResult) -> Iterator[str]:
    for scaling in result.strategies:
        name = f"{scaling.strategy}: " if len(result.strategies) > 1 else ""
        if scaling.pays_up_to is None:
            line = f"further ranks pay up to {scaling.looked_up_to} at least"
            line += " (each adds half of an isolated rank's samples/s or more)"
        else:
            count = count_text(scaling.pays_up_to, "rank")
            line = f"from {count} on, further ones no longer pay"
            line += " (each adds less than half of an isolated rank's samples/s)"
        yield f"{name}{line}." if name else f"{line[0].upper()}{line[1:]}."


def scaling_answer(result: ScalingResult) -> str:
    """Sentences such as ``A training epoch of 50,000 samples takes 5.1 min (±4 %) here, …``."""
    ranks = sorted({point.ranks for point in result.predicted})
    ends = dict.fromkeys((*ranks[:1], *ranks[-1:]))
    points = [
        min((p for p in result.predicted if p.ranks == n), key=lambda p: p.step_s.value)
        for n in ends
    ]
    if not points:
        return printable(f"No step of {result.workload} can be predicted.")
    sentences = [_first(result, points), *_run(result, points)]
    sentences += [
        f"A real step on {point.ranks} ranks took {seconds(point.checked.step_s)}, predicted"
        f" {value_text(point.step_s)}."
        for point in result.predicted
        if point.checked is not None
    ]
    return printable(" ".join(sentences))


def _first(result: ScalingResult, points: Sequence[ScalePoint]) -> str:
    samples = result.step.samples_per_epoch
    if samples is None:
        subject = f"A training step of {result.workload}"
        return f"{subject} takes {_times(result, points, lambda p: p.step_s)}{_efficiency(points)}."
    times = _times(result, points, lambda p: p.epoch_s)
    return f"A training epoch of {samples:,} samples takes {times}{_efficiency(points)}."


def _times(
    result: ScalingResult,
    points: Sequence[ScalePoint],
    time_s: Callable[[ScalePoint], Interval | None],
) -> str:
    texts = [
        f"{value_text(known, duration)} {_where(result, point)}"
        for point in points
        if (known := time_s(point)) is not None
    ]
    return ", ".join(texts)


def _where(result: ScalingResult, point: ScalePoint) -> str:
    name = result.target.system.name
    if point.ranks == 1:
        return "here" if result.here else f"on one {name}"
    return f"on {point.ranks} ranks"


def _efficiency(points: Sequence[ScalePoint]) -> str:
    most = points[-1]
    return "" if most.ranks == 1 else f" (efficiency {number(most.efficiency.value)})"


def _run(result: ScalingResult, points: Sequence[ScalePoint]) -> list[str]:
    epochs = result.step.epochs
    if epochs is None or points[0].run_s is None:
        return []
    times = [
        f"{duration(point.run_s.value)} {_where(result, point)}"
        for point in points
        if point.run_s is not None
    ]
    return [f"{count_text(epochs, 'epoch')}: {', '.join(times)}."]


def scaling_remarks(result: ScalingResult) -> list[str]:
    """What is assumed of ranks and network, and what the times lack."""
    network = result.network
    linked = network.origin == PUBLISHED
    return [
        _linked(network) if linked else (f"{_ranks(result)}; {_network(result.network)}"),
        _missing(result),
    ]


def _linked(network: RankNetwork) -> str:
    """GPUs joined by their maker's links, and the network between more of them, if any."""
    links = links_text(network.name, network.bandwidth or 0.0)
    if network.beyond is None:
        return f"Ranks are GPUs joined by {links}; yours: --bandwidth, --latency."
    return (
        f"Up to {network.most_ranks} ranks are GPUs joined by {links}; more are GPUs on hosts of"
        f" their own, {_network(network.beyond)}"
    )


def _ranks(result: ScalingResult) -> str:
    threads = count_text(result.target.runtime.threads, "thread")
    if result.network.one_host or result.network.origin == LOOPBACK:
        where = "this host" if result.here else result.target.system.name
        return f"All ranks run on {where} at once, {threads} each"
    if result.target.system.accelerator is None:
        return f"Each rank is a host of its own with {threads}"
    apart = " on a host of its own" if result.network.origin == ASSUMED else ""
    return f"Each rank is a GPU{apart}"


def _network(network: RankNetwork) -> str:
    if network.bandwidth is None or network.latency_s is None:
        kind = "loopback of this host" if network.origin == LOOPBACK else "as measured"
        return f"network: {printable(network.name)}, {kind}."
    facts = f"{network.bandwidth * 8 / 1e9:g} Gbit/s, {seconds(network.latency_s)} a message"
    if network.origin == ASSUMED:
        return f"network assumed: {facts}; yours: --bandwidth, --latency."
    return f"network stated: {facts}."


def _missing(result: ScalingResult) -> str:
    if result.step.samples_per_epoch is None:
        return "Add --samples-per-epoch N and --epochs N for the time of an epoch and a run."
    more = "" if result.step.epochs is not None else " Add --epochs N for the time of a run."
    return f"Loading data and evaluating are not counted.{more}"


def scaling_page(result: ScalingResult, *, version: str, made: str) -> str:
    """The page; ``version`` is that of this package, ``made`` the time of its creation."""
    from bricks.report import charts

    points = result.predicted
    most = max(result.strategies[0].predicted, key=lambda point: point.ranks, default=None)
    return render_page(
        "scaling",
        answer=scaling_answer(result),
        title=printable(result.workload),
        where=f"{target_text(result.target)}; network: {printable(result.network.name)}",
        points=cells_of(points, _COLUMNS),
        failures=result.errors,
        most=most,
        version=version,
        made=made,
        data=in_script({
            "rows": [_curve(point) for point in points],
            "spans": [] if most is None else [*_spans(most)],
        }),
        specs=in_script({
            "step": charts.over_ranks("step_ms", "step, ms", log=True),
            "speedup": charts.over_ranks("speedup", "speed-up", ideal="ranks", log=True),
            "efficiency": charts.over_ranks("efficiency", "efficiency", format_="%"),
            "timeline": charts.step_over_ranks(),
        }),
        script=script("curves"),
    )  # fmt: skip


# A page has room for whole words.
_TITLES = {
    "exposed": "exposed communication", "sent": "sent by a rank", "cost/epoch": "cost of an epoch",
}  # fmt: skip
_COLUMNS: Sequence[Column[ScalePoint]] = (
    STRATEGY,
    *(replace(column, title=_TITLES.get(column.title, column.title)) for column in COLUMNS),
    Column("network", lambda point: point.origins.network, left=True),
)


def _curve(point: ScalePoint) -> dict[str, Any]:
    row: dict[str, Any] = {"strategy": point.strategy, "ranks": point.ranks}
    for name, figure, factor in (
        ("step_ms", point.step_s, 1e3),
        ("speedup", point.speedup, 1.0),
        ("efficiency", point.efficiency, 1.0),
    ):
        ends = {"": figure.value, "_low": figure.low, "_high": figure.high}
        row |= {f"{name}{end}": float(f"{factor * value:.5g}") for end, value in ends.items()}
    return row | {"text": f"{seconds(point.step_s.value)}, {number(point.speedup.value)} times"}


def _spans(point: ScalePoint) -> Iterator[dict[str, Any]]:
    """The spans of ranks and network; ranks with equal spans are one row."""
    for number_ in range(point.distinct_ranks):
        last = number_ == point.distinct_ranks - 1
        lane = f"ranks {number_} … {point.ranks - 1}" if last and point.ranks > number_ + 1 else (
            f"rank {number_}"
        )  # fmt: skip
        for span in point.spans_of(number_):
            yield _span(lane, span, span.kind)
    for span in point.simulated.of(NETWORK):
        yield _span("network", span, "communication")


def _span(lane: str, span: LaneSpan, color: str) -> dict[str, Any]:
    return {
        "lane": lane,
        "kind": span.kind,
        "color": color,
        "start_ms": float(f"{span.begin_s * 1e3:.6g}"),
        "end_ms": float(f"{span.end_s * 1e3:.6g}"),
        "length": seconds(span.length_s),
    }


# The network's process; ranks follow.
_NETWORK = Track(1)


def scaling_trace(result: ScalingResult) -> str:
    """The whole file, one event a line, of the step on the most ranks; empty if there is none."""
    first = result.strategies[0]
    if not first.predicted:
        return ""
    point = max(first.predicted, key=lambda point: point.ranks)
    about = {
        "workload": printable(result.workload),
        "system": printable(result.target.system.name),
        "network": printable(result.network.name),
        "strategy": first.strategy,
        "ranks": point.ranks,
        "step_us": microseconds(point.step_s.value),
        "low_us": microseconds(point.step_s.low),
        "high_us": microseconds(point.step_s.high),
    }
    return trace_file(about, _events(point))


def _events(point: ScalePoint) -> Iterator[Event]:
    rows = Rows()
    yield from _name_events(_NETWORK, "network")
    for span in point.simulated.of(NETWORK):
        isolated_s, longer = span.work.work_s, max(span.work.slowed.values())
        facts = {
            "bytes": span.work.size_bytes,
            "messages": len(span.members),
            "alone_us": microseconds(isolated_s),
            "while_computing_us": microseconds(longer * isolated_s),
        }
        yield slice_on(_NETWORK, span.kind, rows.place(_NETWORK, span.begin_s, span.end_s), facts)
    for rank in range(point.ranks):
        track = Track(_NETWORK.process + 1 + rank)
        yield from _name_events(track, f"rank {rank}")
        for span in point.spans_of(rank):
            extent = rows.place(track, span.begin_s, span.end_s)
            yield slice_on(track, span.kind, extent, {})


def _name_events(process: Track, name: str) -> Iterator[Event]:
    yield named(process, "process_name", name=name)
    yield named(process, "process_sort_index", sort_index=process.process)
    yield named(process, "thread_name", name=name)
