from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch_environment
from commands import CommandResult, Here
from torch_environment import workload


@pytest.fixture(autouse=True)
def _environment() -> None:
    torch_environment.python()


def train(here: Here, tmp_path: Path, name: str, *more: object) -> CommandResult:
    words = ("train", workload(name), "--threads", 1, "--precision", 0.5, "--cache", here.cache)
    return here.plain(*words, "--folder", tmp_path / "kept", *more)


def test_json_has_predicted_beside_measured_for_each_seed(here: Here, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    goal = ("--until", "accuracy=0.8", "--seeds", 2, "--max-epochs", 20)
    done = train(here, tmp_path, "good", *goal, "--json", "--out", page, "--validate")
    assert (done.status, done.err) == (0, "")
    facts = done.json
    assert facts["until"] == {"accuracy": 0.8}
    assert facts["reached"] == 2
    assert set(facts["predicted"]["step"]) == {"estimate_s", "low_s", "high_s"}
    assert [row["seed"] for row in facts["seeds"]] == [0, 1]
    for row in facts["seeds"]:
        assert row["error"] is None
        assert row["low_s"] <= row["predicted_s"] <= row["high_s"]
        assert row["ratio"] == pytest.approx(row["predicted_s"] / row["measured_s"])
        assert len(row["losses"]) == row["steps"]
    assert facts["median"]["ratio"] > 0
    assert facts["validation"]["verdict"] == "agrees"
    text = page.read_text(encoding="utf-8")
    assert facts["page"] == str(page)
    assert "Content-Security-Policy" in text
    (rows,) = (
        line.partition(">")[2].rpartition("</script>")[0]
        for line in text.splitlines()
        if line.startswith('<script type="application/json" id="data">')
    )
    assert {row["seed"] for row in json.loads(rows)["rows"]} == {"seed 0", "seed 1"}

    shown = train(here, tmp_path, "good", *goal)
    assert (shown.status, shown.err) == (0, "")
    assert "2 of 2 seeds reached an accuracy of 0.8" in shown.out
    assert "Nothing was trained: all epochs were kept" in shown.out
    assert "median" in shown.out


def test_what_deviates_and_what_is_not_reached_are_errors(here: Here, tmp_path: Path) -> None:
    goal = ("--until", "accuracy=1", "--max-epochs", 1)
    done = train(here, tmp_path, "wrong_gradient", "--validate", *goal)
    assert done.status == 1
    wrong, short = done.err.splitlines()
    assert "the gradient deviates from finite differences for 0.weight" in wrong
    assert "after 1 epochs, and not 1: raise --max-epochs" in short
    assert "2 deviate" in done.out
    assert "No seed reached an accuracy of 1 in 1 epochs." in done.out


@pytest.mark.parametrize("text", ["0.95", "loss=1", "accuracy=95", "accuracy=0", "accuracy"])
def test_another_goal_is_wrong_usage(here: Here, tmp_path: Path, text: str) -> None:
    done = train(here, tmp_path, "good", "--until", text)
    assert done.status == 2
    assert f"--until '{text}' is no goal: write it like accuracy=0.95" in done.complaint


def test_a_page_where_no_folder_is_is_refused_before_training(here: Here, tmp_path: Path) -> None:
    done = train(here, tmp_path, "good", "--out", tmp_path / "none" / "page.html")
    assert done.status == 2
    assert "there is no folder" in done.complaint
    assert not (tmp_path / "kept").exists()


def test_an_unknown_workload_is_told_with_the_known_ones(here: Here, tmp_path: Path) -> None:
    done = here.plain("train", "digits_cn", "--cache", here.cache)
    assert done.status == 1
    assert "did you mean digits_cnn?" in done.complaint


def test_a_runtime_without_programs_is_refused(here: Here, tmp_path: Path) -> None:
    done = train(here, tmp_path, "good", "--runtime", "fake")
    assert done.status == 1
    assert "runs ONNX models, not programs: choose --runtime torch" in done.complaint
