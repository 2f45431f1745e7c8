"""How long a program takes to train, predicted and, if it was trained, measured, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bricks.errors import printable
from bricks.report.answers.words import value_text, verb
from bricks.report.figures import count_text
from bricks.report.tables import duration

if TYPE_CHECKING:
    from bricks.studies.training.result import TrainingResult


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
    """How many seeds reached the accuracy, after how many epochs, and how long that took."""
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
    if result.runs:
        return _of_runs(result)
    remarks = []
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


def _of_runs(result: TrainingResult) -> list[str]:
    remarks = []
    if result.steps is not None:
        least, most = result.steps["min"], result.steps["max"]
        remarks.append(f"It took {least:g} to {most:g} steps: counted, not predicted.")
    if not any(run.new_epochs for run in result.runs):
        remarks.append("Nothing was trained: all epochs were kept; --again trains anew.")
    return remarks
