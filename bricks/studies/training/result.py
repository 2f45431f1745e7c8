"""What a training took, beside what was predicted; plain data.

Must not know how anything was measured, or how it is shown.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from bricks.backends.programs import TrainedEpoch
from bricks.samples.statistics import median
from bricks.system import Target


@dataclass(frozen=True, slots=True)
class PredictedTime:
    """A predicted time in seconds; the interval is meant to hold the time with 95 %."""

    estimate_s: float
    low_s: float
    high_s: float

    def times(self, count: int) -> PredictedTime:
        """As often one after the other: the error is common to all."""
        return PredictedTime(count * self.estimate_s, count * self.low_s, count * self.high_s)

    def plus(self, *others: PredictedTime) -> PredictedTime:
        """One after the other; independent errors add as squares."""
        every = (self, *others)
        total_s = sum(each.estimate_s for each in every)
        below_s = math.hypot(*(each.estimate_s - each.low_s for each in every))
        above_s = math.hypot(*(each.high_s - each.estimate_s for each in every))
        return PredictedTime(total_s, max(0.0, total_s - below_s), total_s + above_s)


@dataclass(frozen=True, slots=True)
class TrainingPrediction:
    """The parts that times of trainings are recomposed from.

    ``step`` is recomposed from bricks; None if it cannot be, with the ``reason``. ``loading`` of a
    batch, ``begin`` of iterating the data for an epoch, and ``evaluation`` are measured as a whole.
    ``loading_processes`` load beside the training: their work is not told apart from it, so that
    a prediction with any is too large.
    """

    step: PredictedTime | None
    loading: PredictedTime
    begin: PredictedTime
    evaluation: PredictedTime
    loading_processes: int = 0
    reason: str | None = None

    def of(self, steps: int, epochs: int) -> PredictedTime | None:
        """The time of so many steps in so many epochs, each with its evaluation."""
        if self.step is None:
            return None
        return self.step.times(steps).plus(
            self.loading.times(steps), self.begin.times(epochs), self.evaluation.times(epochs)
        )


@dataclass(frozen=True, slots=True)
class TrainingRun:
    """A training from one ``seed``, until the accuracy was ``reached`` or epochs ran out.

    ``new_epochs`` were trained now, the others before. ``predicted`` is the time of as many steps
    and epochs; None where there is no prediction of a step.
    """

    seed: int
    epochs: tuple[TrainedEpoch, ...]
    reached: bool
    predicted: PredictedTime | None
    new_epochs: int

    @property
    def steps(self) -> int:
        """Steps of all epochs."""
        return sum(len(epoch.losses) for epoch in self.epochs)

    @property
    def accuracy(self) -> float:
        """That after the last epoch, from 0 to 1."""
        return self.epochs[-1].accuracy

    @property
    def losses(self) -> tuple[float, ...]:
        """The loss of each step."""
        return tuple(loss for epoch in self.epochs for loss in epoch.losses)

    @property
    def measured_s(self) -> float:
        """Seconds of all steps, of loading their batches, and of evaluating."""
        return sum(map(epoch_s, self.epochs))

    @property
    def step_s(self) -> float:
        """Mean seconds of a step, without loading its batch."""
        return sum(sum(epoch.step_s) for epoch in self.epochs) / self.steps

    @property
    def loading_s(self) -> float:
        """Mean seconds of loading a batch."""
        return sum(sum(epoch.loading_s) for epoch in self.epochs) / self.steps

    @property
    def evaluation_s(self) -> float:
        """Mean seconds of an evaluation."""
        return sum(epoch.evaluation_s for epoch in self.epochs) / len(self.epochs)

    @property
    def ratio(self) -> float | None:
        """Predicted over measured time."""
        return None if self.predicted is None else self.predicted.estimate_s / self.measured_s


def epoch_s(epoch: TrainedEpoch) -> float:
    """Seconds of an epoch: steps, loading and evaluation."""
    return sum(epoch.step_s) + sum(epoch.loading_s) + epoch.begin_s + epoch.evaluation_s


@dataclass(frozen=True, slots=True)
class TrainingFailure:
    """A training from one ``seed`` that came to no end, and why."""

    seed: int
    error: str


@dataclass(frozen=True, slots=True)
class TrainingResult:
    """Trainings of one program from several seeds, until an accuracy of ``until``."""

    workload: str
    target: Target
    batch: int | None
    until: float
    max_epochs: int
    prediction: TrainingPrediction
    trainings: tuple[TrainingRun | TrainingFailure, ...]

    @property
    def runs(self) -> tuple[TrainingRun, ...]:
        """The trainings that came to an end."""
        return tuple(each for each in self.trainings if isinstance(each, TrainingRun))

    @property
    def reached(self) -> tuple[TrainingRun, ...]:
        """The trainings that reached the accuracy."""
        return tuple(run for run in self.runs if run.reached)

    @property
    def median_ratio(self) -> float | None:
        """The median of predicted over measured time to the accuracy; None if there is none."""
        return _median([run.ratio for run in self.reached if run.ratio is not None])

    @property
    def steps(self) -> tuple[int, float, int] | None:
        """The fewest, the median and the most steps to the accuracy; None if none reached it."""
        counts = sorted(run.steps for run in self.reached)
        return (counts[0], median(counts), counts[-1]) if counts else None


def _median(values: Sequence[float]) -> float | None:
    return median(values) if values else None
