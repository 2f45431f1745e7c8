"""Curves of a training over ranks and the timeline of a step, as one self-contained HTML file.

See :mod:`bricks.report.page`. Must not compute results.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from bricks.errors import printable
from bricks.report.answers.scaling import scaling_answer
from bricks.report.columns import Column, cells_of
from bricks.report.figures import target_text
from bricks.report.page import in_script, render_page, script
from bricks.report.scaling import COLUMNS, STRATEGY
from bricks.report.tables import number, seconds
from bricks.studies.scaling.simulation import NETWORK

if TYPE_CHECKING:
    from bricks.compose.lanes import LaneSpan
    from bricks.studies.scaling.result import ScalePoint, ScalingResult
    from bricks.units.interval import Interval


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
    """The points of all curves."""
    row: dict[str, Any] = {"strategy": point.strategy, "ranks": point.ranks}
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
