"""The charts of a report as Vega-Lite specifications, made with Altair.

Data stays outside: each chart draws the rows that the page stores under the name ``rows``, so that
data shared by several charts is in the page once. The style sheet sets the colours of text and
lines. Must not compute results.
"""

from __future__ import annotations

from typing import Any

import altair as alt

# A colour-blind safe palette (after Okabe and Ito, 2008), readable on light and on dark; all
# further operators share a grey.
_HUES = ["#2B83C4", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#B3A100", "#999999"]
_BLUE, _VERMILION, _GREY = _HUES[0], _HUES[4], _HUES[-1]

# For counts, ticks only at whole numbers.
_WHOLE = alt.ExprRef("min(6, domain('y')[1])")

# Pixels of one model's row, and of one operator's.
_ROW, _BAR = 15, 18

Spec = dict[str, Any]


def _rows() -> alt.Chart:
    return alt.Chart(alt.NamedData(name="rows"))


def _done(chart: Any, height: int | None = None, *, step: int = 0, by: str = "title") -> Spec:
    """As wide as the page allows; ``height`` pixels high, or ``step`` for each value of ``by``.

    Only the page's script knows the number of values: its parameters are in ``usermeta``.
    """
    spec: Spec = chart.properties(width="container").to_dict()
    if height is not None:
        spec["height"] = height
    else:
        spec["usermeta"] = {"step": step, "by": by}
    spec["autosize"] = {"type": "fit-x", "contains": "padding"}
    spec["background"] = "transparent"
    spec["config"] = {
        "view": {"stroke": None},
        "axis": {"labelLimit": 220, "titleFontWeight": "normal"},
        "legend": {"titleFontWeight": "normal", "orient": "bottom", "columns": 4},
        "font": "system-ui, sans-serif",
    }
    return spec


def _model(title: str | None = None) -> alt.Y:
    return alt.Y("title:N", sort=None, title=title, axis=alt.Axis(grid=True))


def _tips(*fields: tuple[str, str]) -> list[alt.Tooltip]:
    return [alt.Tooltip(field, title=title) for field, title in fields]


def _hues(field: str, **options: Any) -> alt.Color:
    return alt.Color(field, title=None, sort=None, scale=alt.Scale(range=_HUES), **options)


_BRICK_TIPS = _tips(
    ("operator:N", "operator"),
    ("shapes:N", "shapes"),
    ("brick:N", "brick"),
    ("latency:N", "latency"),
    ("rates:N", "reaches"),
    ("peak:N", "of peak"),
)


def breakdown() -> Spec:
    """A model's time by operator."""
    bars = _rows().mark_bar()
    return _done(
        bars.encode(
            y=alt.Y("operator:N", sort=None, title=None),
            x=alt.X("ms:Q", title="ms in all"),
            color=_hues("color:N", legend=None),
            tooltip=_tips(
                ("operator:N", "operator"), ("occurrences:Q", "occurrences"),
                ("latency:N", "in all"), ("text:N", "share"),
            ),
        ),
        step=_BAR,
        by="operator",
    )  # fmt: skip


def timeline() -> Spec:
    """A model's bricks in execution order."""
    bars = _rows().mark_bar(height={"band": 0.9}, minBandSize=1)
    return _done(
        bars.encode(
            x=alt.X("start_ms:Q", title="ms since the start"),
            x2="end_ms:Q",
            y=alt.Y("lane:N", sort=None, title=None),
            color=_hues("color:N", legend=None),
            tooltip=[alt.Tooltip("number:Q", title="occurrence"), *_BRICK_TIPS],
        ),
        step=_BAR,
        by="lane",
    )


def roofline() -> Spec:
    """The roofline chart: each brick's rate over its operations per byte, below the peaks."""
    x = alt.X(
        "intensity:Q",
        title="operations per byte",
        scale=alt.Scale(type="log", nice=False, padding=10),
    )
    y = alt.Y("gflops:Q", title="GFLOP/s", scale=alt.Scale(type="log", nice=False, padding=10))
    dots = (
        _rows()
        .mark_point(filled=True, opacity=0.8)
        .encode(
            x=x,
            y=y,
            size=alt.Size("share:Q", scale=alt.Scale(range=[20, 500]), legend=None),
            color=_hues("color:N"),
            tooltip=_BRICK_TIPS,
        )
    )
    roof = (
        alt.Chart(alt.NamedData(name="roof"))
        .mark_line(color=_GREY, strokeDash=[4, 3])
        .encode(x="intensity:Q", y="gflops:Q", detail="level:N")
    )
    return _done(roof + dots, 280)


def losses() -> Spec:
    """The loss of each step, one curve for each seed."""
    line = _rows().mark_line(strokeWidth=1.5, clip=True)
    return _done(
        line.encode(
            x=alt.X("step:Q", title="step"),
            y=alt.Y("loss:Q", title="loss", scale=alt.Scale(type="symlog")),
            color=_hues("seed:N"),
            tooltip=_tips(("seed:N", "seed"), ("step:Q", "step"), ("loss:Q", "loss")),
        ),
        360,
    )


def over_ranks(
    field: str, title: str, *, ideal: str | None = None, format_: str = "", log: bool = False
) -> Spec:
    """A figure over numbers of ranks, with its interval; ``ideal`` is the field of a grey line."""
    base = _rows()
    x = alt.X("ranks:Q", title="ranks", scale=alt.Scale(type="log", base=2, nice=False))
    scale = alt.Scale(type="log", nice=False, padding=8) if log else alt.Scale(zero=True)
    axis = alt.Axis(format=format_) if format_ else alt.Axis()
    y = alt.Y(f"{field}:Q", title=title, axis=axis, scale=scale)
    color = _hues("strategy:N", legend=alt.Legend(symbolOpacity=1))
    tips = _tips(("strategy:N", "strategy"), ("ranks:Q", "ranks"), ("text:N", "step, speed-up"))
    ends = {"y": alt.Y(f"{field}_low:Q", title=title), "y2": f"{field}_high:Q"}
    band = base.mark_area(opacity=0.2).encode(x=x, color=color, **ends)
    line = base.mark_line(point=True).encode(x=x, y=y, color=color, tooltip=tips)
    if ideal is None:
        return _done(band + line, 240)
    grey = base.mark_line(color=_GREY, strokeDash=[4, 3]).encode(x=x, y=alt.Y(f"{ideal}:Q"))
    return _done(grey + band + line, 240)


def step_over_ranks() -> Spec:
    """The timeline of ranks and their network during a step."""
    bars = alt.Chart(alt.NamedData(name="spans")).mark_bar(height={"band": 0.9}, minBandSize=1)
    return _done(
        bars.encode(
            x=alt.X("start_ms:Q", title="ms since the step began"),
            x2="end_ms:Q",
            y=alt.Y("lane:N", sort=None, title=None),
            color=_hues("color:N"),
            tooltip=_tips(("kind:N", "what"), ("length:N", "takes")),
        ),
        120,
    )
