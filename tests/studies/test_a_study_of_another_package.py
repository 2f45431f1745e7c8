"""A study that another package brings is a command, without a change of anything here.

``support/energy_study`` is the whole package; here it gets the entry point that an installation
would make.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commands import CommandResult, bricks
from factories import mlp, save
from study_packages import installed


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return installed(tmp_path / "packages", energy="energy_study:OFFER")


def energy(tmp_path: Path, environment: dict[str, str], *more: object) -> CommandResult:
    model = save(mlp(), tmp_path, "mlp.onnx")
    words = ("energy", model, "--runtime", "fake", "--threads", 1, "--cache", tmp_path / "cache")
    return bricks(*words, *more, **environment)


def test_it_measures_predicts_and_checks_itself(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    done = energy(tmp_path, environment, "--watts", "100W", "--runs", 36, "--check", "--json")
    assert (done.status, done.err) == (0, "")
    facts = done.json
    assert list(facts) == ["watts", "runs", "models"]
    (row,) = facts["models"]
    assert list(row) == [
        "model", "latency_s", "low_s", "high_s", "energy_wh", "energy_wh_low", "energy_wh_high",
        "observed_wh", "ratio", "error",
    ]  # fmt: skip
    assert row["energy_wh"] == pytest.approx(row["latency_s"])  # 100 W for 36 s is 1 Wh
    assert row["ratio"] == pytest.approx(row["energy_wh"] / row["observed_wh"])
    assert row["ratio"] == pytest.approx(1, abs=0.05)  # the fake runtime adds up


def test_its_answer_is_a_table_without_a_line_of_its_own(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    done = energy(tmp_path, environment)
    assert (done.status, done.err) == (0, "")
    assert "watts  65" in done.out
    head, row = done.out.strip().splitlines()[-2:]
    assert head.split() == ["model", "latency", "energy", "wh"]  # nothing was observed
    assert row.startswith("mlp") and "…" in row


def test_its_options_are_those_of_its_dataclass(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    done = bricks("energy", "--help", **environment)
    assert "--watts 65W" in done.out and "[default: 65W]" in done.out
    assert "--runs N" in done.out and "--check" in done.out and "--precision" in done.out
    done = energy(tmp_path, environment, "--watts", "much")
    assert (done.status, "--watts 'much' is no power" in done.complaint) == (2, True)
    assert bricks("energy", "nothing.onnx", "--runs", 0, **environment).status == 2


def test_what_cannot_be_predicted_is_a_row_and_an_error(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    done = energy(tmp_path, environment, "--no-measure", "--json")
    assert done.status == 1
    (row,) = json.loads(done.out)["models"]
    assert row["error"] == done.complaint
    assert {value for key, value in row.items() if key not in ("model", "error")} == {None}


def test_one_that_cannot_be_loaded_stands_in_nobodys_way(tmp_path: Path) -> None:
    broken = installed(tmp_path / "packages", energy="energy_study:NOTHING", predict="os:path")
    done = bricks("energy", **broken)
    assert (done.status, "'energy'" in done.complaint) == (1, True)
    listed = bricks("backends", "list", **broken)
    assert (listed.status, listed.err) == (0, "")
    assert "MODEL…" in bricks("predict", "--help", **broken).out  # not replaced
