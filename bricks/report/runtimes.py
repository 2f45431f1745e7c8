"""Comparisons of runtimes for terminals. Must not compute results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich.console import RenderableType

from bricks.analysis.runtimes import Loss, NoRuntimeEstimate, RuntimeChoice, RuntimeEstimate
from bricks.errors import printable
from bricks.report.columns import Column, part_column, table_of
from bricks.report.figures import interval_text, provenance_text
from bricks.report.tables import percent, seconds
from bricks.system.names import labels_of

# Smaller probabilities cannot be resolved by 95 % intervals.
_LEAST = 0.001
# The names of the operators of a brick take at most so many characters.
_LONG = 40

# A runtime under the title of its model.
_Row = tuple[str, RuntimeEstimate | NoRuntimeEstimate]


def runtime_parts(choices: Sequence[RuntimeChoice]) -> list[RenderableType]:
    """A table of all models that have an answer, in all runtimes, and lines for each model."""
    labels = labels_of(
        {choice.system.key: choice.system.name for choice in choices if choice.system}
    )
    titled = [(_title(choice, labels), choice) for choice in choices if choice.fastest]
    return [
        table_of(
            [(title, answer) for title, choice in titled for answer in choice.answers], _COLUMNS
        ),
        "",
        *(line for title, choice in titled for line in _answer(title, choice)),
        *(line for title, choice in titled for line in _losses(title, choice)),
        *(line for title, choice in titled for line in _unavailable(title, choice)),
        "Lower bound: each brick takes as long as the fastest known implementation of its work.",
    ]


def _title(choice: RuntimeChoice, labels: Mapping[str, str]) -> str:
    """The name of a model; with its system, where there are several."""
    where = f" on {labels[choice.system.key]}" if choice.system and len(labels) > 1 else ""
    return printable(f"{choice.model}{where}")


def _name(row: _Row) -> str:
    return " ".join(filter(None, (row[1].runtime, row[1].version)))


def _estimate(row: _Row) -> RuntimeEstimate | None:
    return row[1] if isinstance(row[1], RuntimeEstimate) else None


def _lower(row: _Row) -> float | None:
    return row[1].lower_s if isinstance(row[1], RuntimeEstimate) else None


def _measured(row: _Row) -> str:
    """The measured share of an estimate; a failure has its reason below the table."""
    if isinstance(row[1], NoRuntimeEstimate):
        return "no estimate" if row[1].available else "not available"
    return provenance_text(row[1].estimate.provenance)


_COLUMNS: tuple[Column[_Row], ...] = (
    Column("model", lambda row: row[0], left=True),
    Column("runtime", _name, left=True),
    part_column("estimate", _estimate, lambda of: seconds(of.estimate.estimate_s)),
    part_column("interval", _estimate, lambda of: interval_text(of.estimate.latency_s)),
    part_column("lower bound", _lower, seconds),
    Column("measured", _measured),
)


def _answer(title: str, choice: RuntimeChoice) -> Iterator[str]:
    """The fastest runtime of a model, if there are two to choose from."""
    if choice.ahead is None or choice.risk is None:
        return
    first, second = choice.estimates[:2]
    yield (
        f"{title}: take {first.runtime}; {second.runtime} takes {percent(choice.ahead)} longer."
        f" The probability that another is faster is {risk_text(choice.risk)}."
    )


def _losses(title: str, choice: RuntimeChoice) -> Iterator[str]:
    """The losses of each runtime of a model."""
    for answer in choice.answers:
        if answer.losses:
            yield f"{title}, {answer.runtime}: loses {loss_text(answer.losses)}."


def _unavailable(title: str, choice: RuntimeChoice) -> Iterator[str]:
    """The origin of each estimate in a runtime that this host lacks."""
    for answer in choice.estimates:
        if choice.system is not None and not answer.available:
            source = "predicted from other models"
            if answer.estimate.measured_share or answer.estimate.published_share:
                published = answer.estimate.published_share
                source = "measured by others" if published else "measured before"
            where = printable(choice.system.name)
            yield f"{title}, {answer.runtime}: not available here; {source} on {where}."


def loss_text(losses: Sequence[Loss]) -> str:
    """The seconds lost in each operator, and the runtimes that are faster there."""
    return "; ".join(
        f"{seconds(loss.lost_s)} in {_shortened(loss.operator)} to {' and '.join(loss.runtimes)}"
        for loss in losses
    )


def risk_text(risk: float) -> str:
    """A probability in percent, with a lower limit of what intervals can resolve."""
    return percent(risk) if risk >= _LEAST else f"below {percent(_LEAST)}"


def _shortened(operator: str) -> str:
    """Operators joined, without constants, and not too many of them."""
    text = "+".join(name for name in operator.split("+") if name != "Constant")
    return printable(text if len(text) <= _LONG else f"{text[: _LONG - 1]}…")
