from pathlib import Path

import pytest
from commands import Here, chain, ended, rounds, started
from factories import branching_net, conv_net, mlp, save


@pytest.fixture
def models(tmp_path: Path) -> list[Path]:
    """Three models, in a folder."""
    folder = tmp_path / "models"
    folder.mkdir()
    return [
        save(conv_net(), folder, "conv.onnx"),
        save(mlp(), folder, "mlp.onnx"),
        save(branching_net(), folder, "branching.onnx"),
    ]


def test_a_second_run_measures_nothing(here: Here, models: list[Path]) -> None:
    first = here("measure", *models, "--json").json
    assert first["new_bricks"] == first["bricks"]
    kept = rounds(here.cache, "")
    for command in ("measure", "predict"):
        assert here(command, *reversed(models), "--json").status == 0
    assert here("measure", models[0].parent, "--json").json["new_bricks"] == 0
    assert rounds(here.cache, "") == kept


def test_a_brick_of_two_models_is_measured_for_the_first_alone(here: Here, tmp_path: Path) -> None:
    here("measure", save(mlp(widths=(8, 8, 4)), tmp_path, "small.onnx"))
    larger = save(mlp(widths=(8, 8, 8, 4), prefix="other_", seed=7), tmp_path, "larger.onnx")
    done = here("measure", larger, "--json").json
    assert done["bricks"] == 3
    assert done["new_bricks"] == 0


def test_threads_and_granularity_make_a_target_and_the_seed_does_not(
    here: Here, tmp_path: Path
) -> None:
    path = save(chain("Relu", "Neg", "Exp"), tmp_path, "chain.onnx")

    def new(*options: object) -> int:
        found: int = here("measure", path, "--json", *options).json["new_bricks"]
        return found

    every = new("--threads", 1)
    assert every > 0
    assert new("--threads", 1, "--seed", 5) == 0
    assert new("--threads", 2) == every
    # Pieces of the source graph run with all of the runtime's optimisation: another target.
    assert new("--threads", 1, "--granularity", 1) > 0
    assert new("--threads", 1, "--granularity", 1) == 0
    assert new("--threads", 1) == 0


def test_comparing_after_measuring_runs_whole_models_alone(here: Here, models: list[Path]) -> None:
    here("measure", *models)
    kept = rounds(here.cache)
    rows = here("compare", *models, "--json").json["models"]
    assert [row["new_bricks"] for row in rows] == [0] * 3
    assert rounds(here.cache) == kept
    everything = rounds(here.cache, "")
    assert here("compare", *models, "--json").status == 0
    assert rounds(here.cache, "") == everything


@pytest.mark.slow
def test_two_processes_share_the_work(here: Here, models: list[Path]) -> None:
    words = ("--json", "--runtime", "fake", "--cache", here.cache)
    pace = {"BRICKS_FAKE_PACE": "0.001"}
    with (
        started("measure", *models, *words, **pace) as one,
        started("measure", *reversed(models), *words, **pace) as two,
    ):
        done = [ended(one), ended(two)]
    assert [(d.status, d.err) for d in done] == [(0, "")] * 2
    assert sum(d.json["new_bricks"] for d in done) == done[0].json["bricks"]
    assert done[0].json["bricks"] == done[1].json["bricks"]
    assert {len(d.json["failures"]) + d.json["unfinished"] for d in done} == {0}
    assert here("predict", *models, "--no-measure").status == 0
    assert here.plain("cache", "verify", "--cache", here.cache).status == 0


@pytest.mark.slow
def test_two_processes_that_compare_at_once_both_get_all(here: Here, models: list[Path]) -> None:
    words = ("--json", "--runtime", "fake", "--cache", here.cache)
    with started("compare", *models, *words) as one, started("compare", *models, *words) as two:
        done = [ended(one), ended(two)]
    assert [(d.status, d.err) for d in done] == [(0, "")] * 2
    assert done[0].json["summary"]["models"] == done[1].json["summary"]["models"] == 3
    new = [row["new_bricks"] for d in done for row in d.json["models"]]
    assert sum(new) == done[0].json["summary"]["bricks"]
