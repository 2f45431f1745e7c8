"""Runtimes beside each other for terminals, from what ``--json`` prints too.

Must not compute any of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import RenderableType
from rich.table import Table

from bricks.errors import printable
from bricks.report.tables import percent, seconds

Row = Mapping[str, Any]

# Intervals do not tell smaller probabilities.
_LEAST = 0.001


def runtime_parts(facts: Row) -> list[RenderableType]:
    """A table of all models in all runtimes, and a line for each model."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for place, title in enumerate(
        ("model", "runtime", "estimate", "interval", "lower bound", "measured")
    ):
        table.add_column(title, justify="left" if place < 2 else "right", no_wrap=True)
    for model in facts["models"]:
        for row in model["runtimes"]:
            if row["error"] is not None:
                continue
            table.add_row(
                printable(model["model"]),
                f"{row['runtime']} {row['version']}",
                seconds(row["estimate_s"]),
                f"{seconds(row['low_s'])} … {seconds(row['high_s'])}",
                seconds(row["lower_s"]),
                percent(row["measured_share"], 0),
            )
    return [
        table,
        "",
        *(_answer(model) for model in facts["models"] if model["ahead"] is not None),
        "Lower bound: each brick takes as long as the fastest known implementation of its work.",
    ]


def _answer(model: Row) -> str:
    (first, second), risk = model["runtimes"][:2], model["risk"]
    return (
        f"{printable(model['model'])}: take {first['runtime']}; {second['runtime']} takes"
        f" {percent(model['ahead'])} longer. The probability that another is faster is"
        f" {percent(risk) if risk >= _LEAST else f'below {percent(_LEAST)}'}."
    )
