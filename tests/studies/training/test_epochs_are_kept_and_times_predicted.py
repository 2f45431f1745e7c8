"""What comes of the epochs that a worker trains, with one that learns nothing and takes no time."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from factories import mlp, save
from refusals import refused

from bricks import Bench, TrainingFailure, TrainingOptions, TrainingResult, WorkerError, train
from bricks.backends.programs import LoadingTimes, TrainedEpoch
from bricks.measure.protocol.request import Request
from bricks.measure.protocol.training import (
    BeginTraining,
    LoadTraining,
    TimeEvaluation,
    TimeLoading,
    TrainEpoch,
)
from bricks.reading.read import read_model
from bricks.session.workspace import Workspace
from bricks.sources import Function
from bricks.studies.training.result import TrainingPrediction, epoch_s
from bricks.units.interval import Interval

STEPS = 8  # of an epoch
DIVERGING = 13  # a seed
Train = Callable[..., TrainingResult]


class Interrupted(Exception):
    pass


class Learner:
    """Answers as a worker does: a fifth is learnt each epoch, and losses tell seed and epoch."""

    seed = 0
    epochs: tuple[TrainedEpoch, ...] = ()

    def ask(self, request: Request[Any], *, timeout_s: float) -> Any:
        match request:
            case BeginTraining(program):
                self.seed, self.epochs = program.seed, ()
                return "0" * 32
            case TimeLoading(batches):
                return LoadingTimes((0.1, 0.1), (0.01,) * batches)
            case TimeEvaluation(repeats):
                return (0.2,) * repeats
            case TrainEpoch(path):
                return self.train(Path(path))
            case LoadTraining(path):
                known = json.loads(Path(path).read_text())
                self.epochs = tuple(map(TrainedEpoch.from_json, known))
                return self.epochs

    def train(self, checkpoint: Path) -> TrainedEpoch:
        if self.seed == DIVERGING:
            raise WorkerError("the loss of step 3 is nan")
        number = len(self.epochs) + 1
        epoch = TrainedEpoch(
            losses=(self.seed + 1 / number,) * STEPS,
            step_s=(0.02,) * STEPS,
            loading_s=(0.01,) * STEPS,
            begin_s=0.1,
            accuracy=min(1.0, number / 5),
            evaluation_s=0.2,
        )
        self.epochs = (*self.epochs, epoch)
        checkpoint.write_text(json.dumps([asdict(each) for each in self.epochs]))
        return epoch


@pytest.fixture
def training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Train:
    model = read_model(save(mlp(), tmp_path))
    monkeypatch.setattr(Function, "record", lambda function, options: model)
    monkeypatch.setattr(Workspace, "worker", lambda _: nullcontext(Learner()))

    def trained(**options: Any) -> TrainingResult:
        progress = options.pop("progress", lambda what, share: None)
        with Bench(tmp_path / "cache", runtime="fake", progress=progress) as bench:
            given: dict[str, Any] = {"folder": tmp_path / "kept", "run": True, **options}
            return train(bench.workspace, TrainingOptions(workload="program.py:step", **given))

    return trained


def test_without_run_nothing_is_trained_and_epoch_and_run_are_predicted(training: Train) -> None:
    result = training(run=False, epochs=3)
    assert result.trainings == result.errors == ()
    steps = 50  # of two epochs, 100 batches were loaded
    assert result.prediction.epoch_steps == steps
    assert result.step_s is not None and result.epoch_s is not None and result.run_s is not None
    assert result.epoch_s.value == pytest.approx(steps * (result.step_s.value + 0.01) + 0.1 + 0.2)
    assert result.run_s.value == pytest.approx(3 * result.epoch_s.value)
    assert result.epoch_s.holds(result.epoch_s.value)
    samples = result.prediction.step_samples
    stated = training(run=False, samples_per_epoch=7 * samples - samples // 2)
    assert (stated.prediction.epoch_steps, stated.run_s) == (7, None)


def test_a_program_without_data_is_predicted_as_one_step(
    training: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(learner: Learner, request: Request[Any], *, timeout_s: float) -> Any:
        raise WorkerError("it gives no data and no accuracy")

    monkeypatch.setattr(Learner, "ask", refuse)
    result = training(run=False)
    assert (result.prediction.has_data, result.epoch_s, result.errors) == (False, None, ())
    assert result.step_s is not None
    samples = result.prediction.step_samples
    epoch_s = training(run=False, samples_per_epoch=10 * samples).epoch_s
    assert epoch_s is not None and epoch_s.value == pytest.approx(10 * result.step_s.value)
    with refused(WorkerError, "data"):
        training(run=True)


def test_predicted_times_are_compared_with_measured_ones(training: Train) -> None:
    result = training(until=0.8, seeds=[0, 1])
    parts = result.prediction
    assert parts.step is not None
    assert len(result.reached) == 2
    assert result.steps == dict.fromkeys(("min", "median", "max"), 4 * STEPS)
    for run in result.runs:
        assert [epoch.accuracy >= 0.8 for epoch in run.epochs] == [False, False, False, True]
        assert run.measured_s == pytest.approx(sum(map(epoch_s, run.epochs)))
        assert run.predicted is not None
        assert run.predicted.holds(run.predicted.value)
        assert run.predicted.value == pytest.approx(
            run.steps * (parts.step.value + 0.01) + 4 * (0.1 + 0.2)
        )
        assert run.ratio == pytest.approx(run.predicted.value / run.measured_s)


def test_an_interrupted_training_goes_on_as_if_it_had_not_been(
    training: Train, tmp_path: Path
) -> None:
    def interrupt(what: str, share: float) -> None:
        if what.endswith("epoch 3"):
            raise Interrupted

    (whole,) = training(until=0.8, folder=tmp_path / "whole").runs
    with pytest.raises(Interrupted):
        training(until=0.8, progress=interrupt)
    (run,) = training(until=0.8).runs
    assert run.new_epochs == 2
    assert run.losses == whole.losses


def test_what_is_kept_is_not_trained_again(training: Train) -> None:
    (first,) = training(until=1.0, max_epochs=3).runs
    # A goal that is met earlier needs a part of it.
    (run,) = training(until=1.0, max_epochs=2).runs
    assert (run.new_epochs, run.losses) == (0, first.losses[: 2 * STEPS])
    (anew,) = training(until=1.0, max_epochs=1, again=True).runs
    assert (first.new_epochs, anew.new_epochs) == (3, 1)


def test_a_seed_that_fails_leaves_the_others_alone(training: Train) -> None:
    result = training(until=0.8, seeds=[DIVERGING, 1])
    failure, run = result.trainings
    assert isinstance(failure, TrainingFailure)
    assert failure.seed == DIVERGING
    assert "program.py:step" in failure.error and "step 3" in failure.error
    assert result.runs == (run,)
    assert run.seed == 1


def test_independent_errors_of_a_training_add_as_squares() -> None:
    three, four, none = Interval(10, 7, 13), Interval(5, 3, 7), Interval.exact(0)
    prediction = TrainingPrediction(three, loading=none, begin=none, evaluation=four)
    assert prediction.of(1, 2) == Interval(20, 15, 25)
    assert prediction.of(2, 0) == Interval(20, 14, 26)  # common to all steps
