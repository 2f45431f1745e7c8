"""Runtimes beside each other for terminals.

Must not compute any of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich.console import RenderableType

from bricks.analysis.runtimes import Loss, RuntimeAnswer, RuntimeChoice
from bricks.errors import printable
from bricks.report.columns import Column, table_of
from bricks.report.tables import measured_text, percent, seconds
from bricks.system.names import labels_of

# Intervals do not tell smaller probabilities.
_LEAST = 0.001
# The names of the operators of a brick take at most so many characters.
_LONG = 40

# A runtime under the title of its model.
_Row = tuple[str, RuntimeAnswer]


def runtime_parts(choices: Sequence[RuntimeChoice]) -> list[RenderableType]:
    """A table of all models that have an answer, in all runtimes, and lines for each model."""
    labels = labels_of({each.system.key: each.system.name for each in choices if each.system})
    told = [(_title(choice, labels), choice) for choice in choices if choice.fastest]
    return [
        table_of([(title, each) for title, choice in told for each in choice.answers], _COLUMNS),
        "",
        *(line for title, choice in told for line in _answer(title, choice)),
        *(line for title, choice in told for line in _losses(title, choice)),
        *(line for title, choice in told for line in _unavailable(title, choice)),
        "Lower bound: each brick takes as long as the fastest known implementation of its work.",
    ]


def _title(choice: RuntimeChoice, labels: Mapping[str, str]) -> str:
    """The name of a model; with its system, where there are several."""
    where = f" on {labels[choice.system.key]}" if choice.system and len(labels) > 1 else ""
    return printable(f"{choice.model}{where}")


def _name(row: _Row) -> str:
    return " ".join(filter(None, (row[1].runtime, row[1].version)))


def _estimate(row: _Row) -> str | None:
    estimate = row[1].estimate
    return None if estimate is None else seconds(estimate.estimate_s)


def _interval(row: _Row) -> str | None:
    estimate = row[1].estimate
    return None if estimate is None else f"{seconds(estimate.low_s)} … {seconds(estimate.high_s)}"


def _lower(row: _Row) -> str | None:
    lower_s = row[1].lower_s
    return None if lower_s is None else seconds(lower_s)


def _measured(row: _Row) -> str:
    """How much of an estimate was measured; one without an estimate has its reason elsewhere."""
    answer = row[1]
    if answer.estimate is None:
        return "no estimate" if answer.available else "not available"
    return measured_text(answer.estimate.measured_share, answer.estimate.published_share)


_COLUMNS: tuple[Column[_Row], ...] = (
    Column("model", lambda row: row[0], left=True),
    Column("runtime", _name, left=True),
    Column("estimate", _estimate),
    Column("interval", _interval),
    Column("lower bound", _lower),
    Column("measured", _measured),
)


def _answer(title: str, choice: RuntimeChoice) -> Iterator[str]:
    """Which runtime to take, where there are two to choose from."""
    if choice.ahead is None or choice.risk is None:
        return
    first, second = choice.answers[:2]
    yield (
        f"{title}: take {first.runtime}; {second.runtime} takes {percent(choice.ahead)} longer."
        f" The probability that another is faster is {risk_text(choice.risk)}."
    )


def _losses(title: str, choice: RuntimeChoice) -> Iterator[str]:
    """Where each runtime of a model loses."""
    for answer in choice.answers:
        if answer.losses:
            yield f"{title}, {answer.runtime}: loses {loss_text(answer.losses)}."


def _unavailable(title: str, choice: RuntimeChoice) -> Iterator[str]:
    """Where the estimate in a runtime comes from that this host lacks."""
    for answer in choice.answers:
        estimate = answer.estimate
        if estimate is not None and choice.system is not None and not answer.available:
            source = "predicted from other models"
            if estimate.measured_share or estimate.published_share:
                source = "measured by others" if estimate.published_share else "measured before"
            where = printable(choice.system.name)
            yield f"{title}, {answer.runtime}: not available here; {source} on {where}."


def loss_text(losses: Sequence[Loss]) -> str:
    """What is lost in each of some operators, and to which runtimes."""
    return "; ".join(
        f"{seconds(loss.lost_s)} in {_shortened(loss.operator)} to {' and '.join(loss.runtimes)}"
        for loss in losses
    )


def risk_text(risk: float) -> str:
    """A probability, which intervals do not tell where it is tiny."""
    return percent(risk) if risk >= _LEAST else f"below {percent(_LEAST)}"


def _shortened(operator: str) -> str:
    """Operators joined, without constants, and not too many of them."""
    text = "+".join(name for name in operator.split("+") if name != "Constant")
    return printable(text if len(text) <= _LONG else f"{text[: _LONG - 1]}…")
