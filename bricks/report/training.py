"""Trainings for terminals, from what ``--json`` prints too. Must not compute any of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import RenderableType
from rich.table import Table

from bricks.errors import printable
from bricks.report.tables import number, percent, seconds

Row = Mapping[str, Any]

_COLUMNS = ("seed", "steps", "epochs", "accuracy", "step", "measured", "predicted", "interval",
            "ratio")  # fmt: skip


def training_parts(facts: Row) -> list[RenderableType]:
    """Lines and tables in the order to show them."""
    runtime, threads = facts["runtime"], facts["runtime"]["threads"]
    parts: list[RenderableType] = [
        f"{printable(facts['system']['name'])}, {runtime['backend']} {runtime['version']},"
        f" {threads} {'thread' if threads == 1 else 'threads'}",
        *_predicted(facts["predicted"]),
    ]
    if any(row["error"] is None for row in facts["seeds"]):
        parts += ["", _table(facts)]
        parts += _spread(facts)
    if facts["validation"] is not None:
        parts += ["", *_validated(facts["validation"])]
    return parts


def _predicted(of: Row) -> Iterator[str]:
    step = "is not predicted" if of["step"] is None else f"takes {_interval(of['step'])}"
    yield (
        f"Predicted: a step {step} (from bricks), loading its batch {_interval(of['loading'])},"
        f" an evaluation {_interval(of['evaluation'])} (both timed as a whole)."
    )
    if of["loading_processes"]:
        yield (
            f"Data are loaded by {of['loading_processes']} other processes beside the steps, which"
            " the prediction counts as if they were not: it is too large."
        )


def _interval(of: Row) -> str:
    low, high = seconds(of["low_s"]), seconds(of["high_s"])
    return f"{seconds(of['estimate_s'])} ({low} … {high})"


def _table(facts: Row) -> Table:
    """The measured and predicted time of each seed until the accuracy, and their medians."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in _COLUMNS:
        table.add_column(name, justify="right", no_wrap=True)
    for row in facts["seeds"]:
        if row["error"] is not None:
            continue
        low, high = seconds(row["low_s"]), seconds(row["high_s"])
        table.add_row(
            str(row["seed"]),
            str(row["steps"]),
            str(row["epochs"]) if row["reached"] else f"> {row['epochs']}",
            number(row["accuracy"], 3),
            seconds(row["step_s"]),
            seconds(row["measured_s"]),
            seconds(row["predicted_s"]),
            f"{low} … {high}" if row["predicted_s"] is not None else "–",
            number(row["ratio"], 3),
        )
    middle = facts["median"]
    if middle["steps"] is not None:
        table.add_section()
        table.add_row(
            "median",
            f"{middle['steps']:g}",
            f"{middle['epochs']:g}",
            "",
            seconds(middle["step_s"]),
            seconds(middle["measured_s"]),
            seconds(middle["predicted_s"]),
            "",
            number(middle["ratio"], 3),
        )
    return table


def _spread(facts: Row) -> Iterator[str]:
    spread, count = facts["steps"], len(facts["seeds"])
    until = facts["until"]["accuracy"]
    yield ""
    if spread is None:
        yield f"No seed reached an accuracy of {until:g} in {facts['max_epochs']} epochs."
        return
    yield (
        f"{facts['reached']} of {count} {'seed' if count == 1 else 'seeds'} reached an accuracy of"
        f" {until:g}, in {spread['min']} to {spread['max']} steps: counted, not predicted."
    )
    if not any(row["new_epochs"] for row in facts["seeds"]):
        yield "Nothing was trained: all epochs were kept; --again trains anew."


def _validated(of: Row) -> Iterator[str]:
    """A line for each of the three checks."""
    gradients = of["gradients"]
    if of["gradients_reason"] is not None:
        yield f"Gradients: not compared, since {of['gradients_reason']}."
    else:
        judged = [each for each in gradients if each["verdict"] != "unknown"]
        worst = max((each["deviation"] for each in judged), default=None)
        wrong = sum(each["verdict"] == "deviates" for each in gradients)
        yield (
            f"Gradients: {len(judged)} of {len(gradients)} parameters compared with finite"
            f" differences in float64, {wrong} deviate; the largest deviation is"
            f" {percent(worst, 4)}."
        )
    for each in of["optimizer"]:
        where = f"Optimizer {printable(each['optimizer'])} on the {each['objective']}"
        if each["reason"] is not None:
            yield f"{where}: not compared, since {each['reason']}."
        else:
            yield (
                f"{where}: {each['verdict']} {'with' if each['verdict'] == 'agrees' else 'from'}"
                f" the definition of {each['definition']} over {len(each['differences'])} steps, to"
                f" {max(each['differences']):.1e}."
            )
    yield _sampled(of["sampling"])


def _sampled(of: Row) -> str:
    if of["even"] is None:
        return f"Data: not judged, since {of['reason']}."
    often = "every item equally often in each of" if of["even"] else "items unequally often in"
    line = f"Data: {often} {of['epochs']} epochs"
    if of["even_p"] is not None:
        chance = "as chance would have it" if of["verdict"] == "agrees" else "not by chance"
        line += f", {chance} (p = {of['even_p']:.2g})"
    if not of["shuffled"]:
        return f"{line}, always in the same order: not shuffled."
    line += ", in other orders each"
    if of["order_p"] is not None:
        line += f" (p = {of['order_p']:.2g} that they are this far from uniform by chance)"
    return f"{line}."
