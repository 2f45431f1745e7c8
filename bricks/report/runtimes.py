"""Runtimes beside each other for terminals, from what ``--json`` prints too.

Must not compute any of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import RenderableType
from rich.table import Table

from bricks.errors import printable
from bricks.report.tables import measured_text, percent, seconds
from bricks.system.names import labels_of

Row = Mapping[str, Any]

# Intervals do not tell smaller probabilities.
_LEAST = 0.001
# The names of the operators of a brick take at most so many characters.
_LONG = 40


def runtime_parts(facts: Row) -> list[RenderableType]:
    """A table of all models that have an answer, in all runtimes, and lines for each model."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for place, title in enumerate(
        ("model", "runtime", "estimate", "interval", "lower bound", "measured")
    ):
        table.add_column(title, justify="left" if place < 2 else "right", no_wrap=True)
    labels = labels_of({model["system_key"]: model["system"] for model in facts["models"]})
    told = [(_title(model, labels), model) for model in facts["models"] if model["fastest"]]
    for title, model in told:
        for row in model["runtimes"]:
            table.add_row(title, *_cells(row))
    return [
        table,
        "",
        *(_answer(title, model) for title, model in told if model["ahead"] is not None),
        *(line for title, model in told for line in _losses(title, model)),
        *(line for title, model in told for line in _unavailable(title, model)),
        "Lower bound: each brick takes as long as the fastest known implementation of its work.",
    ]


def _cells(row: Row) -> tuple[str, ...]:
    """A model in a runtime; one without an estimate has a row too, and its reason elsewhere."""
    name = " ".join(str(each) for each in (row["runtime"], row["version"]) if each is not None)
    if row["error"] is not None:
        return name, "–", "–", "–", "no estimate" if row["available"] else "not available"
    return (
        name,
        seconds(row["estimate_s"]),
        f"{seconds(row['low_s'])} … {seconds(row['high_s'])}",
        seconds(row["lower_s"]),
        measured_text(row["measured_share"], row["published_share"]),
    )


def _unavailable(title: str, model: Row) -> Iterator[str]:
    """Where the estimate in a runtime comes from that this host lacks."""
    for row in model["runtimes"]:
        if row["error"] is None and not row["available"]:
            source = "predicted from other models"
            if row["measured_share"] or row["published_share"]:
                source = "measured by others" if row["published_share"] else "measured before"
            where = printable(model["system"])
            yield f"{title}, {row['runtime']}: not available here; {source} on {where}."


def _title(model: Row, labels: Mapping[str, str]) -> str:
    """The name of a model; with its system, where there are several."""
    where = f" on {labels[model['system_key']]}" if len(labels) > 1 else ""
    return printable(f"{model['model']}{where}")


def _answer(title: str, model: Row) -> str:
    (first, second), risk = model["runtimes"][:2], model["risk"]
    return (
        f"{title}: take {first['runtime']}; {second['runtime']} takes"
        f" {percent(model['ahead'])} longer. The probability that another is faster is"
        f" {risk_text(risk)}."
    )


def _losses(title: str, model: Row) -> Iterator[str]:
    """Where each runtime of a model loses."""
    for row in model["runtimes"]:
        if row["losses"]:
            yield f"{title}, {row['runtime']}: loses {loss_text(row['losses'])}."


def loss_text(losses: Sequence[Row]) -> str:
    """What is lost in each of some operators, and to which runtimes."""
    return "; ".join(
        f"{seconds(loss['lost_s'])} in {_shortened(loss['operator'])} to"
        f" {' and '.join(loss['runtimes'])}"
        for loss in losses
    )


def risk_text(risk: float) -> str:
    """A probability, which intervals do not tell where it is tiny."""
    return percent(risk) if risk >= _LEAST else f"below {percent(_LEAST)}"


def _shortened(operator: str) -> str:
    """Operators joined, without constants, and not too many of them."""
    text = "+".join(name for name in operator.split("+") if name != "Constant")
    return printable(text if len(text) <= _LONG else f"{text[: _LONG - 1]}…")
