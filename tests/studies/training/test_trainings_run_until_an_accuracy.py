from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch_environment
from factories import save
from recorded_programs import inference_step
from refusals import refused
from torch_environment import workload

from bricks import (
    Bench,
    BricksError,
    ModelError,
    TrainingOptions,
    TrainingResult,
    UsageError,
    WorkerError,
)
from bricks import train as train_with
from bricks.backends.programs import SeededProgram
from bricks.measure.conditions import Conditions, StopRule
from bricks.measure.protocol.training import (
    BeginTraining,
    LoadTraining,
    TrainEpoch,
)
from bricks.measure.supervisor import Supervisor
from bricks.reading.read import read_model
from bricks.sources import Function
from bricks.zoo import trainings

# Nothing here depends on how long anything takes, so nobody need be waited for.
RULE = StopRule(min_rounds=1, max_rounds=1, passes=1)
QUICK = Conditions(rule=RULE, exclusive=False)
# An accuracy that is not reached, so that the number of epochs is known.
NEVER = 1.0


class Interrupted(Exception):
    pass


@pytest.fixture(scope="module")
def worker() -> Iterator[Supervisor]:
    with torch_environment.one_recorder(), torch_environment.one_worker() as asked:
        yield asked


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("training") / "cache"


@pytest.fixture(scope="module")
def bench(worker: Supervisor, cache: Path) -> Iterator[Bench]:
    with Bench(cache, runtime="torch", threads=1, conditions=QUICK) as opened:
        yield opened


def train(bench: Bench, workload: str, **options: Any) -> TrainingResult:
    return train_with(bench.workspace, TrainingOptions(workload=workload, run=True, **options))


def losses(bench: Bench, folder: Path, name: str, epochs: int, seed: int = 0) -> list[float]:
    result = train(
        bench, workload(name), until=NEVER, seeds=[seed], max_epochs=epochs, folder=folder
    )
    (run,) = result.runs
    return list(run.losses)


@pytest.mark.slow
def test_an_interrupted_training_goes_on_as_if_it_had_not_been(
    cache: Path, bench: Bench, tmp_path: Path
) -> None:
    name = "with_own_generator"
    whole = losses(bench, tmp_path / "whole", name, 4)

    def interrupt(what: str, share: float) -> None:
        if what.endswith("epoch 3"):
            raise Interrupted

    with Bench(
        cache, runtime="torch", threads=1, conditions=QUICK, progress=interrupt
    ) as interrupted:
        with pytest.raises(Interrupted):
            losses(interrupted, tmp_path / "parts", name, 4)
    result = train(bench, workload(name), until=NEVER, max_epochs=4, folder=tmp_path / "parts")
    (run,) = result.runs
    assert run.new_epochs == 2
    assert list(run.losses) == whole


def begun(worker: Supervisor, name: str, seed: int = 0) -> str:
    return worker.ask(BeginTraining(SeededProgram(workload(name), "", {}, seed)), timeout_s=60)


def trained(worker: Supervisor, checkpoint: Path) -> tuple[float, ...]:
    return worker.ask(TrainEpoch(str(checkpoint)), timeout_s=60).losses


def test_seeds_decide_the_course_of_a_training(worker: Supervisor, tmp_path: Path) -> None:
    courses = []
    for seed in (0, 0, 1):
        begun(worker, "good", seed)
        courses.append(trained(worker, tmp_path / "checkpoint.pt"))
    assert courses[0] == courses[1] != courses[2]


def test_a_checkpoint_holds_all_that_the_next_epoch_depends_on(
    worker: Supervisor, tmp_path: Path
) -> None:
    """Dropout, batch normalisation, momentum, and the order of the data."""
    checkpoint = tmp_path / "checkpoint.pt"
    begun(worker, "good")
    trained(worker, tmp_path / "first.pt")
    second = trained(worker, checkpoint)
    third = trained(worker, tmp_path / "third.pt")
    begun(worker, "good")
    known = worker.ask(LoadTraining(str(checkpoint)), timeout_s=60)
    assert known[1].losses == second
    assert trained(worker, checkpoint) == third


def test_another_learning_rate_is_another_training(worker: Supervisor, tmp_path: Path) -> None:
    text = torch_environment.TRAINING_PROGRAMS.read_text(encoding="utf-8")
    program = tmp_path / "program.py"
    found = set()
    for rate in ("0.05", "0.02"):
        program.write_text(text.replace("SGD(p, 0.05,", f"SGD(p, {rate},"), encoding="utf-8")
        begin = BeginTraining(SeededProgram(f"{program}:good", "", {}, seed=0))
        found.add(worker.ask(begin, timeout_s=60))
    assert len(found) == 2


def test_a_damaged_checkpoint_is_named(worker: Supervisor, tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint.pt"
    begun(worker, "good")
    trained(worker, checkpoint)
    checkpoint.write_bytes(checkpoint.read_bytes()[:100])
    with refused(WorkerError, checkpoint):
        worker.ask(LoadTraining(str(checkpoint)), timeout_s=60)


def test_a_checkpoint_of_another_program_is_refused(worker: Supervisor, tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint.pt"
    begun(worker, "good")
    trained(worker, checkpoint)
    begun(worker, "good", seed=1)
    with refused(WorkerError, checkpoint):
        worker.ask(LoadTraining(str(checkpoint)), timeout_s=60)
    begun(worker, "good")
    worker.ask(LoadTraining(str(checkpoint)), timeout_s=60)  # so the file is whole


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("without_data", "cannot be trained: it gives no data and no accuracy"),
        ("without_accuracy", "cannot be trained: it gives no accuracy"),
        ("inference", "it gives no loss and no optimizer and no data and no accuracy"),
        ("data_of_type_int", "its data are of type int: give an iterable of batches"),
        ("one_epoch_alone", "which ends with the first epoch: give an iterable that begins anew"),
        ("targets_of_type_int", "its targets are of type int: give a tuple of tensors"),
        ("accuracy_is_a_number", "its accuracy is of type float: give a function without"),
        ("seeds_itself", "seeds PyTorch itself, so that every --seeds would be the same"),
        ("no_batch", "its data yield no batch in epoch 1"),
        ("accuracy_above_one", "its accuracy is 93: return a number from 0 to 1"),
        ("last_batch_shorter", "has (50, 8) of torch.float32 for input 0, which is (16, 8)"),
        ("batches_without_targets", "is of 1 parts: yield tuples of 2 tensors"),
        ("diverging", "lower the learning rate"),
        ("data_raise", "raised OSError: the disk is gone (training_programs.py, line "),
    ],
)
def test_a_program_that_cannot_be_trained_is_told_in_one_line(
    name: str, text: str, worker: Supervisor, tmp_path: Path
) -> None:
    with pytest.raises(BricksError) as caught:
        begun(worker, name)
        trained(worker, tmp_path / "checkpoint.pt")
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_cannot_be_trained_is_refused_before_anything_is_measured(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded = read_model(save(inference_step(), tmp_path))  # as good as another here
    monkeypatch.setattr(Function, "record", lambda function, options: recorded)
    before = bench.store.contents.stats().samples
    with refused(WorkerError, workload("without_data"), "data", "accuracy"):
        train(bench, workload("without_data"), until=0.9, folder=tmp_path)
    assert bench.store.contents.stats().samples == before


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"until": 0.0}, ("accuracy", 0)),
        ({"until": 95}, ("accuracy", 95)),
        ({"seeds": []}, ("seeds",)),
        ({"seeds": [1, 1]}, ("seeds",)),
        ({"max_epochs": 0}, ("epochs", 0)),
    ],
)
def test_a_goal_that_makes_no_sense_is_refused(
    wrong: dict[str, Any], named: tuple[object, ...], bench: Bench, tmp_path: Path
) -> None:
    with refused(UsageError, *named):
        train(bench, workload("good"), folder=tmp_path, **{"until": 0.9, **wrong})


def test_the_zoo_has_workloads_to_train(bench: Bench, tmp_path: Path) -> None:
    assert len(trainings()) >= 6
    with refused(ModelError, "digits_cn", "digits_cnn"):
        train(bench, "digits_cn", until=0.9, folder=tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["digits_cnn", "clusters_adagrad", "sequences_lstm"])
def test_workloads_of_the_zoo_learn(name: str, bench: Bench, tmp_path: Path) -> None:
    result = train(bench, name, until=0.95, max_epochs=40, folder=tmp_path)
    assert len(result.reached) == 1
    (run,) = result.runs
    assert [epoch.accuracy >= 0.95 for epoch in run.epochs].index(True) == len(run.epochs) - 1
    assert run.predicted is not None
    assert run.predicted.holds(run.predicted.value)
    assert run.ratio is not None
