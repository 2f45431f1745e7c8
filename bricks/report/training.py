"""Trainings for terminals. Must not compute results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from bricks.errors import printable
from bricks.report.answers.words import uncertainty_text
from bricks.report.columns import Column, table_of
from bricks.report.figures import target_text
from bricks.report.tables import duration, number, percent, seconds
from bricks.studies.training.validation import (
    AGREES,
    DEVIATES,
    UNKNOWN,
    GradientCheck,
    OptimizerCheck,
    SamplingCheck,
    TrainingValidation,
)

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from bricks.studies.training.result import TrainingResult, TrainingRun
    from bricks.units.interval import Interval

# The time of each seed until the accuracy, measured and predicted.
COLUMNS: Sequence[Column[TrainingRun]] = (
    Column("seed", lambda run: str(run.seed)),
    Column("steps", lambda run: str(run.steps)),
    Column("epochs", lambda run: f"{'' if run.reached else '> '}{run.epoch_count}"),
    Column("accuracy", lambda run: number(run.accuracy, 3)),
    Column("step", lambda run: seconds(run.step_s)),
    Column("measured", lambda run: seconds(run.measured_s)),
    Column("predicted", lambda run: seconds(run.predicted_s)),
    Column("±", lambda run: None if run.predicted is None else uncertainty_text(run.predicted)),
    Column("ratio", lambda run: number(run.ratio, 3)),
)


def training_parts(result: TrainingResult) -> list[RenderableType]:
    """The table of trainings, or of predicted times without any, and what was validated."""
    parts: list[RenderableType] = [_table(result) if result.runs else _predicted_table(result)]
    if result.validation is not None:
        parts += ["", *_validated(result.validation)]
    return parts


def training_details(result: TrainingResult) -> list[RenderableType]:
    """Also the target, and the predicted times next to the trainings."""
    parts = [target_text(result.target), *training_parts(result)]
    return [*parts, "", _predicted_table(result)] if result.runs else parts


def _predicted_table(result: TrainingResult) -> Table:
    of = result.prediction
    rows = [("step, from bricks", result.step_s)]
    if of.has_data:
        rows += [("loading a batch, timed", of.loading), ("evaluation, timed", of.evaluation)]
    rows += [("epoch", result.epoch_s), (f"{result.epochs} epochs", result.run_s)]
    return table_of([(title, time_s) for title, time_s in rows if time_s is not None], _PREDICTED)


_PREDICTED: Sequence[Column[tuple[str, Interval]]] = (
    Column("", lambda row: row[0], left=True),
    Column("predicted", lambda row: duration(row[1].value)),
    Column("±", lambda row: uncertainty_text(row[1], duration)),
)


def _table(result: TrainingResult) -> Table:
    """A row for each seed, and one for the medians of the seeds that reached the accuracy."""
    table, median = table_of(result.runs, COLUMNS), result.medians
    if median.steps is not None:
        table.add_section()
        table.add_row(
            "median",
            f"{median.steps:g}",
            f"{median.epochs:g}",
            "",
            seconds(median.step_s),
            seconds(median.measured_s),
            seconds(median.predicted_s),
            "",
            number(median.ratio, 3),
        )
    return table


def _validated(of: TrainingValidation) -> Iterator[str]:
    """A line for each of the three checks."""
    if of.gradients_reason is not None:
        yield f"Gradients: not compared, since {of.gradients_reason}."
    else:
        yield _gradients(of.gradients)
    yield from map(_optimizer, of.optimizer)
    yield _sampling(of.sampling)


def _gradients(gradients: Sequence[GradientCheck]) -> str:
    judged = [check for check in gradients if check.verdict != UNKNOWN]
    worst = max((check.deviation or 0.0 for check in judged), default=None)
    wrong = sum(check.verdict == DEVIATES for check in gradients)
    return (
        f"Gradients: {len(judged)} of {len(gradients)} parameters compared with finite"
        f" differences in float64, {wrong} deviate; the largest deviation is {percent(worst, 4)}."
    )


def _optimizer(of: OptimizerCheck) -> str:
    where = f"Optimizer {printable(of.optimizer)} on the {of.objective}"
    if of.reason is not None:
        return f"{where}: not compared, since {of.reason}."
    return (
        f"{where}: {of.verdict} {'with' if of.verdict == AGREES else 'from'} the definition of"
        f" {of.definition} over {len(of.differences)} steps, to {max(of.differences):.1e}."
    )


def _sampling(of: SamplingCheck) -> str:
    if of.even is None:
        return f"Data: not judged, since {of.reason}."
    often = "every item equally often in each of" if of.even else "items unequally often in"
    line = f"Data: {often} {of.epochs} epochs"
    if of.even_p is not None:
        chance = "as chance would have it" if of.verdict == AGREES else "not by chance"
        line += f", {chance} (p = {of.even_p:.2g})"
    if not of.shuffled:
        return f"{line}, always in the same order: not shuffled."
    line += ", in other orders each"
    if of.order_p is not None:
        line += f" (p = {of.order_p:.2g} that they are this far from uniform by chance)"
    return f"{line}."
