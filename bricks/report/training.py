"""Trainings: in words, for terminals, and their loss curves as one self-contained HTML file.

See :mod:`bricks.report.page`. Must not compute results, except means of neighbouring losses where
there are too many.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from bricks.errors import printable
from bricks.report.page import in_script, render_page, script
from bricks.report.tables import Column, cells_of, duration, number, percent, seconds, table_of
from bricks.report.words import count_text, target_text, uncertainty_text, value_text, verb
from bricks.studies.training.result import TrainingFailure, TrainingResult
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

    from bricks.studies.training.result import TrainingRun
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


def training_answer(result: TrainingResult) -> str:
    """Sentences such as ``A training epoch of digits_cnn (44 steps of 32 samples) takes …``."""
    return printable(_trained(result) if result.runs else _predicted(result))


def _predicted(result: TrainingResult) -> str:
    if result.step_s is None:
        return f"No step of {result.workload} can be predicted."
    place = f"here with {count_text(result.target.runtime.threads, 'thread')}"
    if result.epoch_s is None:
        return (
            f"A training step of {result.workload} takes {value_text(result.step_s, duration)}"
            f" {place}."
        )
    steps = count_text(result.prediction.epoch_steps or 0, "step")
    epoch = f"{result.workload} ({steps} of {count_text(result.prediction.step_samples, 'sample')})"
    sentence = f"A training epoch of {epoch} takes {value_text(result.epoch_s, duration)} {place}"
    if result.epochs is None or result.run_s is None:
        return f"{sentence}."
    return f"{sentence}; {count_text(result.epochs, 'epoch')} take {duration(result.run_s.value)}."


def _trained(result: TrainingResult) -> str:
    seeds, reached = len(result.trainings), result.reached_count
    goal = f"an accuracy of {result.until:g}"
    if not reached:
        return (
            f"{result.workload} does not reach {goal} in"
            f" {count_text(result.max_epochs, 'epoch')} from {count_text(seeds, 'seed')}."
        )
    median = result.medians
    epochs = f"{median.epochs:g} {verb(int(median.epochs == 1), 'epoch', 'epochs')}"
    took = f"{duration(median.measured_s)}"
    if median.predicted_s is not None:
        took += f", predicted {duration(median.predicted_s)}"
    of_seeds = f"; {reached} of {seeds} seeds do" if seeds > 1 else ""
    return f"{result.workload} reaches {goal} after {epochs} ({took}){of_seeds}."


def training_remarks(result: TrainingResult) -> list[str]:
    """What the answer lacks, and how to get it."""
    remarks = []
    if result.runs:
        if result.steps is not None:
            least, most = result.steps["min"], result.steps["max"]
            remarks.append(f"It took {least:g} to {most:g} steps: counted, not predicted.")
        if not any(run.new_epochs for run in result.runs):
            remarks.append("Nothing was trained: all epochs were kept; --again trains anew.")
        return remarks
    if result.epoch_s is None:
        remarks.append(
            "It has no data of its own: add --samples-per-epoch N, and --epochs N for a run."
        )
    elif result.epochs is None:
        remarks.append("Add --epochs N for the time of a run.")
    if result.prediction.has_data:
        remarks.append(
            "Only a training shows how many epochs an accuracy takes: --run trains until"
            f" accuracy={result.until:g}."
        )
    elif result.epoch_s is not None:
        remarks.append("Loading data and evaluating are not counted.")
    if result.prediction.loading_processes:
        remarks.append(
            f"{count_text(result.prediction.loading_processes, 'other process')} load data during"
            " steps, which the prediction counts as if they did not: it is too large."
        )
    return remarks


# Points of a curve: more than a screen has columns would only enlarge the page.
_MAX_POINTS = 500


def training_page(result: TrainingResult, *, version: str, made: str) -> str:
    """The page; ``version`` is that of this package, ``made`` the time of its creation."""
    from bricks.report.charts import losses

    window = max((-(-run.steps // _MAX_POINTS) for run in result.runs), default=1)
    rows = [row for run in result.runs for row in _curve(run.seed, run.losses, window)]
    return render_page(
        "training",
        answer=training_answer(result),
        title=printable(result.workload),
        until=result.until,
        where=target_text(result.target),
        runs=cells_of(result.runs, COLUMNS),
        failures=[f.error for f in result.trainings if isinstance(f, TrainingFailure)],
        window=window,
        version=version,
        made=made,
        data=in_script({"rows": rows}),
        specs=in_script({"losses": losses()}),
        script=script("curves"),
    )  # fmt: skip


def _curve(seed: int, losses: tuple[float, ...], window: int) -> list[dict[str, Any]]:
    """Mean losses of every ``window`` steps, at the last step of each."""
    return [
        {
            "seed": f"seed {seed}",
            "step": min(start + window, len(losses)),
            "loss": float(f"{sum(part) / len(part):.4g}"),
        }
        for start in range(0, len(losses), window)
        for part in [losses[start : start + window]]
    ]
