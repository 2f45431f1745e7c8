"""`bricks train`: its options, and how it shows what a training took beside the prediction."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch_environment
from commands import CommandResult, Here
from torch_environment import workload

from bricks.backends.programs import TrainedEpoch
from bricks.studies.training.result import (
    TrainingFailure,
    TrainingPrediction,
    TrainingResult,
    TrainingRun,
)
from bricks.studies.training.study import TrainingStudy
from bricks.units.interval import Interval

GOAL = ("--run", "--until", "accuracy=0.8", "--seeds", 2, "--max-epochs", 20)
FACTS = {
    "answer", "workload", "system", "runtime", "batch", "samples_per_step", "steps_per_epoch",
    "epochs", "trained", "until", "max_epochs", "predicted", "seeds", "reached", "median", "steps",
    "validation", "page",
    *(f"{name}{end}" for name in ("step_s", "epoch_s", "run_s") for end in ("", "_low", "_high")),
}  # fmt: skip
SEED = {
    "seed", "steps", "epochs", "new_epochs", "accuracy", "reached", "step_s", "loading_s",
    "evaluation_s", "epoch_s", "measured_s", "predicted_s", "low_s", "high_s",
    "predicted_epoch_s", "ratio", "losses", "error",
}  # fmt: skip

EPOCH = TrainedEpoch((2.0, 1.0), (1e-3, 1e-3), (1e-4, 1e-4), 1e-5, 0.9, 1e-3)
TIME = Interval(1e-3, 5e-4, 2e-3)


def made_up(study: TrainingStudy, **_: Any) -> TrainingResult:
    """Each seed takes an epoch, which was kept; the accuracy of seed 2 is none."""
    prediction = TrainingPrediction(TIME, TIME, TIME, TIME, epoch_steps=2, step_samples=32)
    options = study.options
    if not options.run:
        return study.result(prediction, None)
    runs = [
        TrainingFailure(seed, "not seed 2")
        if seed == 2
        else TrainingRun(seed, (EPOCH,), EPOCH.accuracy >= options.until, prediction.of(2, 1), 0)
        for seed in options.seeds
    ]
    return study.result(prediction, tuple(runs))


def hold(done: CommandResult, page: Path) -> Any:
    """The facts of two seeds, which agree with each other and with the page."""
    assert (done.status, done.err) == (0, "")
    facts = done.json
    assert facts.keys() == FACTS
    assert facts["until"] == {"accuracy": 0.8}
    assert facts["reached"] == 2
    assert set(facts["predicted"]["step"]) == {"estimate_s", "low_s", "high_s"}
    assert [row["seed"] for row in facts["seeds"]] == [0, 1]
    for row in facts["seeds"]:
        assert row.keys() == SEED
        assert row["error"] is None
        assert row["low_s"] <= row["predicted_s"] <= row["high_s"]
        assert row["ratio"] == pytest.approx(row["predicted_s"] / row["measured_s"])
        assert len(row["losses"]) == row["steps"]
    assert facts["median"]["ratio"] > 0
    text = page.read_text(encoding="utf-8")
    assert facts["page"] == str(page)
    assert "Content-Security-Policy" in text
    (rows,) = (
        line.partition(">")[2].rpartition("</script>")[0]
        for line in text.splitlines()
        if line.startswith('<script type="application/json" id="data">')
    )
    assert {row["seed"] for row in json.loads(rows)["rows"]} == {"seed 0", "seed 1"}
    return facts


def kept(done: CommandResult) -> None:
    """What is told of two seeds whose epochs were all kept."""
    assert (done.status, done.err) == (0, "")
    assert "reaches an accuracy of 0.8 after " in done.out
    assert "; 2 of 2 seeds do." in done.out
    assert "Nothing was trained: all epochs were kept" in done.out
    assert "median" in done.out


def test_json_table_and_page_have_predicted_beside_measured_for_each_seed(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bricks.studies.study.ask", made_up)
    page, words = tmp_path / "page.html", ("train", "learn.py:task", "--threads", 1)
    assert hold(here(*words, *GOAL, "--json", "--out", page), page)["validation"] is None
    kept(here(*words, *GOAL))
    failed = here(*words, "--run", "--until", "accuracy=0.95", "--seeds", 3, "--json")
    assert failed.status == 1
    assert [row.keys() == SEED for row in failed.json["seeds"]] == [True] * 3
    assert [row["error"] for row in failed.json["seeds"]] == [None, None, "not seed 2"]
    assert (failed.json["reached"], failed.json["steps"]) == (0, None)
    lines = failed.err.splitlines()
    assert lines[0] == "bricks: not seed 2"
    assert [f"seed {n}:" in line for n, line in enumerate(lines[1:])] == [True] * 2
    assert all("0.900" in line and "--max-epochs" in line for line in lines[1:])


def test_without_run_the_first_line_has_an_epoch_and_a_run(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bricks.studies.study.ask", made_up)
    monkeypatch.setenv("COLUMNS", "80")
    words = ("train", "learn.py:task", "--threads", 1)
    facts = here(*words, "--epochs", 10, "--json").json
    assert facts.keys() == FACTS
    assert (facts["trained"], facts["seeds"], facts["steps_per_epoch"]) == (False, [], 2)
    assert facts["epoch_s"] == pytest.approx(6e-3)
    assert facts["run_s"] == pytest.approx(10 * facts["epoch_s"])
    assert facts["answer"].startswith(
        "A training epoch of learn.py:task (2 steps of 32 samples) takes 6.00 ms ("
    )
    assert facts["answer"].endswith("here with 1 thread; 10 epochs take 60.0 ms.")
    shown = " ".join(here(*words).out.split())
    assert "Add --epochs N for the time of a run." in shown
    assert "--run trains until accuracy=0.95." in shown


def train(here: Here, tmp_path: Path, name: str, *more: object) -> CommandResult:
    torch_environment.python()
    words = ("train", workload(name), "--threads", 1, "--precision", 0.5, "--cache", here.cache)
    return here.plain(*words, "--folder", tmp_path / "kept", *more)


@pytest.mark.slow
def test_a_program_is_trained_once(here: Here, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    done = train(here, tmp_path, "good", *GOAL, "--json", "--out", page, "--validate")
    assert hold(done, page)["validation"]["verdict"] == "agrees"
    kept(train(here, tmp_path, "good", *GOAL))


@pytest.mark.slow
def test_what_deviates_and_what_is_not_reached_are_errors(here: Here, tmp_path: Path) -> None:
    goal = ("--run", "--until", "accuracy=1", "--max-epochs", 1)
    done = train(here, tmp_path, "wrong_gradient", "--validate", *goal)
    assert done.status == 1
    wrong, short = done.err.splitlines()
    assert "the gradient deviates from finite differences for 0.weight" in wrong
    assert "after 1 epochs, and not 1: raise --max-epochs" in short
    assert "2 deviate" in done.out
    assert "does not reach an accuracy of 1 in 1 epoch" in done.out


def test_another_goal_is_wrong_usage(here: Here) -> None:
    for text in ("0.95", "loss=1", "accuracy=95", "accuracy=0", "accuracy"):
        done = here("train", "learn.py:task", "--until", text)
        assert done.status == 2, text
        assert f"--until '{text}'" in done.complaint and "accuracy=0.95" in done.complaint


def test_a_page_where_no_folder_is_is_refused_before_training(here: Here, tmp_path: Path) -> None:
    page, folder = tmp_path / "none" / "page.html", tmp_path / "kept"
    done = here("train", "learn.py:task", "--out", page, "--folder", folder)
    assert done.status == 2
    assert str(page.parent) in done.complaint
    assert not folder.exists()


def test_seeds_are_those_of_a_training(here: Here) -> None:
    for words in (("--seeds", 5), ("--max-epochs", 20)):
        done = here("train", "learn.py:task", *words)
        assert (done.status, "add --run" in done.complaint) == (2, True)


def test_what_cannot_be_trained_is_one_line(here: Here) -> None:
    done = here("train", "digits_cn")
    assert (done.status, "did you mean digits_cnn?" in done.complaint) == (1, True)
    done = here("train", workload("good"))
    assert done.status == 1
    assert "fake" in done.complaint and "--runtime torch" in done.complaint
