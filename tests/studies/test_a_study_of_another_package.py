"""A study that another package brings is a command, without a change of anything here.

``support/energy_study`` is the whole package; here it gets the entry point that an installation
would make.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from commands import CommandResult, Here, bricks
from factories import mlp, save
from study_packages import installed, installed_here


@pytest.fixture
def energy(here: Here, tmp_path: Path) -> Iterator[Callable[..., CommandResult]]:
    """The command, on a small model."""
    words = ("energy", save(mlp(), tmp_path, "mlp.onnx"), "--threads", 1)
    with installed_here(tmp_path / "packages", energy="energy_study:OFFER"):
        yield lambda *more: here(*words, *more)


def test_it_measures_predicts_and_checks_itself(energy: Callable[..., CommandResult]) -> None:
    done = energy("--watts", "100W", "--runs", 36, "--check", "--json")
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
    energy: Callable[..., CommandResult],
) -> None:
    done = energy()
    assert (done.status, done.err) == (0, "")
    assert "watts  65" in done.out
    head, row = done.out.strip().splitlines()[-2:]
    assert head.split() == ["model", "latency", "energy", "wh"]  # nothing was observed
    assert row.startswith("mlp") and "…" in row


def test_its_options_are_those_of_its_dataclass(
    here: Here, energy: Callable[..., CommandResult]
) -> None:
    shown = here.plain("energy", "--help").out
    assert "--watts 65W" in shown and "[default: 65W]" in shown
    assert "--runs N" in shown and "--check" in shown and "--precision" in shown
    done = energy("--watts", "much")
    assert (done.status, "--watts 'much' is no power" in done.complaint) == (2, True)
    assert energy("--runs", 0).status == 2


def test_what_cannot_be_predicted_is_a_row_and_an_error(
    energy: Callable[..., CommandResult],
) -> None:
    done = energy("--no-measure", "--json")
    assert done.status == 1
    (row,) = json.loads(done.out)["models"]
    assert row["error"] == done.complaint
    assert {value for key, value in row.items() if key not in ("model", "error")} == {None}


def test_one_that_cannot_be_loaded_stands_in_nobodys_way(here: Here, tmp_path: Path) -> None:
    offers = {"energy": "energy_study:NOTHING", "predict": "os:path"}
    with installed_here(tmp_path / "packages", **offers):
        done = here.plain("energy")
        assert (done.status, "'energy'" in done.complaint) == (1, True)
        listed = here.plain("backends", "list")
        assert (listed.status, listed.err) == (0, "")
        assert "MODEL…" in here.plain("predict", "--help").out  # not replaced


def test_a_process_finds_what_is_installed(tmp_path: Path) -> None:
    environment = installed(tmp_path / "packages", energy="energy_study:OFFER")
    assert bricks("energy", "--runs", 0, **environment).status == 2
