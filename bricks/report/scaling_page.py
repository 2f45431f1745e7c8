"""Curves of a training over ranks and the timeline of a step, as one self-contained HTML file.

See :mod:`bricks.report.page`. Must not compute what it shows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from bricks.compose.lanes import Span
from bricks.errors import printable
from bricks.report.page import environment, in_script, library, style
from bricks.report.tables import number, percent, seconds, size
from bricks.studies.scaling.result import ScalePoint, ScaleResult
from bricks.studies.scaling.simulation import NETWORK
from bricks.units.interval import Interval


def scaling_page(results: Sequence[ScaleResult], *, version: str, made: str) -> str:
    """The page; ``version`` is that of this package, ``made`` the time of its creation."""
    from bricks.report import charts

    first = results[0]
    target = first.target
    points = [(result, point) for result in results for point in result.predicted]
    most = max((point for point in first.predicted), key=lambda p: p.ranks, default=None)
    page: str = environment().get_template("scaling.html.jinja").render(
        title=printable(first.workload),
        where=printable(
            f"{target.system.name}, {target.runtime.backend} {target.runtime.version},"
            f" threads: {target.runtime.threads}; network: {first.network}"
        ),
        rows=[_row(result, point) for result, point in points],
        failures=[
            each.error for result in results for each in result.points
            if not isinstance(each, ScalePoint)
        ],
        most=None if most is None else {"ranks": most.ranks, "strategy": first.strategy},
        version=version,
        made=made,
        data=in_script({
            "rows": [_curve(result, point) for result, point in points],
            "spans": [] if most is None else [*_spans(most)],
        }),
        specs=in_script({
            "step": charts.over_ranks("step_ms", "step, ms", log=True),
            "speedup": charts.over_ranks("speedup", "speed-up", ideal="ranks", log=True),
            "efficiency": charts.over_ranks("efficiency", "efficiency", format_="%"),
            "timeline": charts.step_over_ranks(),
        }),
        library=library(),
        style=style(),
    )  # fmt: skip
    return page


def _row(result: ScaleResult, point: ScalePoint) -> dict[str, Any]:
    """The cells of the table."""
    return {
        "strategy": result.strategy,
        "ranks": point.ranks,
        "step": seconds(point.step_s.value),
        "interval": f"{seconds(point.step_s.low)} … {seconds(point.step_s.high)}",
        "samples": f"{point.samples_per_s.value:.4g}",
        "speedup": number(point.speedup.value),
        "efficiency": percent(point.efficiency.value, 0),
        "exposed": seconds(point.exposed_communication_s.value) if point.ranks > 1 else "–",
        "sent": size(point.bytes_sent) if point.ranks > 1 else "–",
        "cost": "–" if point.cost_per_epoch is None else number(point.cost_per_epoch.value, 4),
        "network": point.origins.network or "–",
        "measured": "–" if point.checked is None else seconds(point.checked.step_s),
    }


def _curve(result: ScaleResult, point: ScalePoint) -> dict[str, Any]:
    """The points of all curves."""
    row: dict[str, Any] = {"strategy": result.strategy, "ranks": point.ranks}
    for name, figure, factor in (
        ("step_ms", point.step_s, 1e3),
        ("speedup", point.speedup, 1.0),
        ("efficiency", point.efficiency, 1.0),
    ):
        row |= _scaled(name, figure, factor)
    return row | {"text": f"{seconds(point.step_s.value)}, {number(point.speedup.value)} times"}


def _scaled(name: str, figure: Interval, factor: float) -> dict[str, float]:
    ends = {"": figure.value, "_low": figure.low, "_high": figure.high}
    return {f"{name}{end}": float(f"{factor * value:.5g}") for end, value in ends.items()}


def _spans(point: ScalePoint) -> Iterator[dict[str, Any]]:
    """What ranks and network do; ranks that do the same are one row."""
    for number_ in range(point.unlike_ranks):
        last = number_ == point.unlike_ranks - 1
        lane = f"ranks {number_} … {point.ranks - 1}" if last and point.ranks > number_ + 1 else (
            f"rank {number_}"
        )  # fmt: skip
        for span in point.spans_of(number_):
            yield _span(lane, span, span.kind)
    for span in point.simulated.of(NETWORK):
        yield _span("network", span, "communication")


def _span(lane: str, span: Span, color: str) -> dict[str, Any]:
    return {
        "lane": lane,
        "kind": span.kind,
        "color": color,
        "start_ms": float(f"{span.begin_s * 1e3:.6g}"),
        "end_ms": float(f"{span.end_s * 1e3:.6g}"),
        "length": seconds(span.length_s),
    }
