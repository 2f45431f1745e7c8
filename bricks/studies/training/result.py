"""Measured and predicted times of trainings. Plain data.

Must not know how times are measured, or how they are shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar

from bricks.samples.statistics import median
from bricks.studies.study import Checked
from bricks.units.interval import Interval, independent_sum

if TYPE_CHECKING:
    from bricks.backends.programs import TrainedEpoch
    from bricks.studies.training.validation import TrainingValidation
    from bricks.system import Target


@dataclass(frozen=True, slots=True)
class TrainingPrediction:
    """The parts of a training's time, in seconds.

    ``step`` is recomposed from bricks; None for the ``reason``. ``loading`` of a batch, ``begin``
    of the iteration over an epoch's data, and ``evaluation`` are measured as a whole.
    ``loading_processes`` load data in parallel to the training: measurements do not separate their
    work, so a prediction with any is too large. An epoch has ``epoch_steps`` of
    ``step_samples``; None if that is not known. A program that ``has_data`` loads and evaluates;
    for others, both take no time.
    """

    step: Interval | None
    loading: Interval
    begin: Interval
    evaluation: Interval
    loading_processes: int = 0
    reason: str | None = None
    epoch_steps: int | None = None
    step_samples: int = 1
    has_data: bool = True

    def epochs(self, count: int) -> Interval | None:
        """The seconds of ``count`` epochs; None unless step and steps are known."""
        return None if self.epoch_steps is None else self.of(count * self.epoch_steps, count)

    def of(self, steps: int, epochs: int) -> Interval | None:
        """The seconds of ``steps`` steps in ``epochs`` epochs, each with its evaluation.

        The error of a part is common to all of its repetitions.
        """
        if self.step is None:
            return None
        parts = [
            *(part.scaled(steps) for part in (self.step, self.loading)),
            *(part.scaled(epochs) for part in (self.begin, self.evaluation)),
        ]
        return independent_sum(parts).at_least(0.0)

    def to_json(self) -> dict[str, Any]:
        """A JSON object."""
        return {
            "step": None if self.step is None else _seconds(self.step),
            "loading": _seconds(self.loading),
            "loading_begin": _seconds(self.begin),
            "loading_processes": self.loading_processes,
            "evaluation": _seconds(self.evaluation),
        }


def _seconds(of: Interval) -> dict[str, float]:
    return {"estimate_s": of.value, "low_s": of.low, "high_s": of.high}


@dataclass(frozen=True, slots=True)
class TrainingRun:
    """A training from one ``seed``, until the accuracy was ``reached`` or epochs ran out.

    ``new_epochs`` were trained now, the others before. ``predicted`` is the seconds of as many
    steps and epochs; None where there is no prediction of a step.
    """

    FACTS: ClassVar = (
        "seed", "steps", ("epoch_count", "epochs"), "new_epochs", "accuracy", "reached", "step_s",
        "loading_s", "evaluation_s", "epoch_s", "measured_s",
        ("predicted", "predicted_s", "low_s", "high_s"), "predicted_epoch_s", "ratio", "losses",
        "error",
    )  # fmt: skip

    seed: int
    epochs: tuple[TrainedEpoch, ...]
    reached: bool
    predicted: Interval | None
    new_epochs: int

    @property
    def steps(self) -> int:
        """Steps of all epochs."""
        return sum(len(epoch.losses) for epoch in self.epochs)

    @property
    def epoch_count(self) -> int:
        """All epochs, new or not."""
        return len(self.epochs)

    @property
    def accuracy(self) -> float:
        """The accuracy after the last epoch, from 0 to 1."""
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
    def epoch_s(self) -> float:
        """Mean seconds of an epoch."""
        return self.measured_s / len(self.epochs)

    @property
    def predicted_epoch_s(self) -> float | None:
        """Mean predicted seconds of an epoch."""
        return None if self.predicted_s is None else self.predicted_s / len(self.epochs)

    @property
    def predicted_s(self) -> float | None:
        """The predicted seconds without their interval."""
        return None if self.predicted is None else self.predicted.value

    @property
    def checked(self) -> Checked | None:
        """Predicted next to measured seconds."""
        return None if self.predicted is None else Checked(self.predicted, self.measured_s)

    @property
    def ratio(self) -> float | None:
        """Predicted over measured time."""
        return None if self.checked is None else self.checked.ratio


def epoch_s(epoch: TrainedEpoch) -> float:
    """Seconds of an epoch: steps, loading and evaluation."""
    return sum(epoch.step_s) + sum(epoch.loading_s) + epoch.begin_s + epoch.evaluation_s


@dataclass(frozen=True, slots=True)
class TrainingFailure:
    """A training from one ``seed`` that failed, and the reason."""

    LIKE: ClassVar = TrainingRun

    seed: int
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Medians:
    """Medians over trainings; None where there is none."""

    steps: float | None
    epochs: float | None
    step_s: float | None
    loading_s: float | None
    evaluation_s: float | None
    measured_s: float | None
    predicted_s: float | None
    ratio: float | None

    @classmethod
    def of(cls, runs: Sequence[TrainingRun]) -> Medians:
        """The median over ``runs`` of each attribute with the name of a field."""
        names = {field.name: field.name for field in fields(cls)} | {"epochs": "epoch_count"}
        series = {key: [getattr(run, name) for run in runs] for key, name in names.items()}
        known = {key: [x for x in values if x is not None] for key, values in series.items()}
        return cls(**{key: median(values) if values else None for key, values in known.items()})


@dataclass(frozen=True, slots=True)
class TrainingResult:
    """How long a program takes to train, and trainings from several seeds until an accuracy.

    ``epochs`` are those of a predicted run. Without ``run``, nothing was trained.
    """

    FACTS: ClassVar = (
        "workload", ("target.system", "system"), ("target.runtime", "runtime"), "batch",
        ("prediction.step_samples", "samples_per_step"),
        ("prediction.epoch_steps", "steps_per_epoch"), "epochs", "step_s", "epoch_s", "run_s",
        ("run", "trained"), ("goal", "until"), "max_epochs", ("prediction", "predicted"),
        ("trainings", "seeds"),
        ("reached_count", "reached"), ("medians", "median"), "steps", "validation",
    )  # fmt: skip

    workload: str
    target: Target
    batch: int | None
    until: float
    max_epochs: int
    prediction: TrainingPrediction
    trainings: tuple[TrainingRun | TrainingFailure, ...]
    validation: TrainingValidation | None = None
    epochs: int | None = None
    run: bool = True

    @property
    def step_s(self) -> Interval | None:
        """The predicted seconds of a step."""
        return self.prediction.step

    @property
    def epoch_s(self) -> Interval | None:
        """The predicted seconds of an epoch."""
        return self.prediction.epochs(1)

    @property
    def run_s(self) -> Interval | None:
        """The predicted seconds of ``epochs`` epochs."""
        return None if self.epochs is None else self.prediction.epochs(self.epochs)

    @property
    def goal(self) -> Mapping[str, float]:
        """The accuracy to reach, by name."""
        return {"accuracy": self.until}

    @property
    def runs(self) -> tuple[TrainingRun, ...]:
        """The trainings that did not fail."""
        return tuple(training for training in self.trainings if isinstance(training, TrainingRun))

    @property
    def reached(self) -> tuple[TrainingRun, ...]:
        """The trainings that reached the accuracy."""
        return tuple(run for run in self.runs if run.reached)

    @property
    def reached_count(self) -> int:
        """The number of trainings that reached the accuracy."""
        return len(self.reached)

    @property
    def medians(self) -> Medians:
        """Over the seeds that reached the accuracy."""
        return Medians.of(self.reached)

    @property
    def steps(self) -> Mapping[str, float] | None:
        """``min``, ``median`` and ``max`` of the steps to the accuracy; None if none reached it."""
        counts = [run.steps for run in self.reached]
        return {of.__name__: of(counts) for of in (min, median, max)} if counts else None

    @property
    def errors(self) -> tuple[str, ...]:
        """A line for each failed or inaccurate seed, each deviation, and a missing prediction."""
        lines = [] if self.validation is None else [*self.validation.errors]
        lines += [
            training.error for training in self.trainings if isinstance(training, TrainingFailure)
        ]
        if self.prediction.step is None:
            lines.append(f"{self.workload}: its step is not predicted: {self.prediction.reason}")
        lines += [
            f"{self.workload}, seed {run.seed}: its accuracy is {run.accuracy:.3f} after"
            f" {run.epoch_count} epochs, and not {self.until:g}: raise --max-epochs"
            for run in self.runs
            if not run.reached
        ]
        return tuple(lines)
