from __future__ import annotations

import math
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from commands import ELEMENTWISE, Here, chain, disjoint_models, rounds
from factories import mlp, save

import bricks
from bricks.measure.campaign_result import CampaignResult
from bricks.measure.conditions import Conditions
from bricks.measure.jobs import ModelJob
from bricks.predict.effort import EFFORTS
from bricks.predict.predictor import MIN
from bricks.samples.measurement import combined
from bricks.session import adaptive, measuring


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return disjoint_models(tmp_path_factory.mktemp("models"), 8)


@pytest.fixture(scope="module")
def known(
    probed: Path, models: list[Path], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, list[Path]]:
    """A cache that has measured some of the models, and which."""
    cache = shutil.copytree(probed, tmp_path_factory.mktemp("known") / "cache")
    some = models[:4]
    with bricks.Bench(cache, runtime="fake") as bench:
        bench.measure([bench.read(path) for path in some])
    return cache, some


@pytest.fixture
def cache(known: tuple[Path, list[Path]], here: Here) -> Path:
    """A copy of it, for commands here."""
    return shutil.copytree(known[0], here.cache, dirs_exist_ok=True)


@pytest.fixture(autouse=True)
def _learning_takes_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if it took none, though models are small: else all of them were measured."""
    monkeypatch.setattr(adaptive, "SOON_S", 0.0)


def test_an_effort_measures_some_and_predicts_the_rest(here: Here, models: list[Path]) -> None:
    done = here("measure", *models, "--effort", "quick", "--json").json
    assert done["unfinished"] == 0
    assert 0 < done["new_bricks"] < done["bricks"]
    assert done["new_bricks"] + done["predicted_bricks"] == done["bricks"]
    rows = here("predict", *models, "--no-measure", "--json").json["models"]
    assert any(row["predicted_share"] > 0 for row in rows)
    for row in rows:
        assert row["error"] is None
        assert row["low_s"] < row["estimate_s"] < row["high_s"]
        assert row["measured_share"] == pytest.approx(1 - row["predicted_share"])
        predicted = sum(b["share"] for b in row["bricks"] if b["predicted"])
        assert predicted == pytest.approx(row["predicted_share"])
        assert row["published_share"] == 0
    output = here("predict", models[0], "--no-measure").out
    assert ("is predicted from bricks of other models" in output) == (
        rows[0]["predicted_share"] > 0
    )


def test_few_models_are_measured_until_the_rest_can_be_predicted(
    here: Here, models: list[Path]
) -> None:
    """However soon they would be known well enough: else there were no estimates at all."""
    done = here("measure", *models[:3], "--effort", "quick", "--json").json
    assert MIN <= done["new_bricks"] < done["bricks"] == 60
    rows = here("predict", *models[:3], "--no-measure", "--json").json["models"]
    assert [row["error"] for row in rows] == [None] * 3
    (few,) = here("measure", models[3], "--effort", "quick", "--json").json["models"]
    assert few["error"] is None  # what was learned from the others is enough


@pytest.mark.slow
def test_the_same_effort_again_measures_nothing(here: Here, models: list[Path]) -> None:
    assert here("measure", *models, "--effort", "quick").status == 0
    kept = rounds(here.cache)
    again = here("measure", *models, "--effort", "quick", "--json").json
    assert again["new_bricks"] <= 0.1 * again["bricks"]
    full = here("measure", *models, "--json").json
    assert (full["predicted_bricks"], full["unfinished"]) == (0, 0)
    assert all(rounds(here.cache)[key][: len(of)] == of for key, of in kept.items())


@pytest.mark.usefixtures("cache")
def test_what_is_wholly_measured_is_not_predicted(here: Here, models: list[Path]) -> None:
    (row,) = here("predict", models[0], "--json").json["models"]
    assert (row["predicted_share"], row["measured_share"]) == (0.0, 1.0)


def test_too_little_to_learn_from_is_a_named_gap(here: Here, tmp_path: Path) -> None:
    assert here("measure", save(chain(*ELEMENTWISE[:5]), tmp_path, "few.onnx")).status == 0
    other = save(chain("Exp", "Log", width=32), tmp_path, "other.onnx")
    done = here("predict", other, "--no-measure", "--json")
    assert done.status == 1
    (row,) = done.json["models"]
    assert row["estimate_s"] is None
    assert {gap["reason"] for gap in row["missing"]} == {"not measured on this target"}


@pytest.mark.usefixtures("cache")
def test_a_brick_that_failed_is_a_gap_and_never_predicted(
    here: Here, models: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BRICKS_FAKE_FAULTS", "Tanh=error")
    (row,) = here("predict", models[-1], "--no-measure", "--json").json["models"]
    assert row["estimate_s"] is not None  # of which nothing is measured yet
    assert here("measure", models[-1]).status == 1
    (row,) = here("predict", models[-1], "--no-measure", "--json").json["models"]
    assert row["estimate_s"] is None
    assert len(row["missing"]) == 1


@pytest.mark.slow
def test_a_budget_measures_what_tells_most_and_can_be_gone_on_with(
    here: Here, models: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BRICKS_FAKE_PACE", "0.002")
    first = here("measure", *models, "--budget", 5, "--json")
    assert first.status == 1
    assert "ended with" in first.complaint
    assert "run the same command again to go on" in first.complaint
    assert 0 < first.json["new_bricks"] < first.json["bricks"]
    assert first.json["unfinished"] == first.json["bricks"] - first.json["new_bricks"]
    monkeypatch.delenv("BRICKS_FAKE_PACE")
    second = here("measure", *models, "--budget", 300, "--json")
    assert second.status == 0
    assert second.json["new_bricks"] == first.json["unfinished"]


@pytest.mark.usefixtures("cache")
def test_a_budget_measures_all_that_one_of_many_models_lacks(
    here: Here, models: list[Path]
) -> None:
    # Most models being known is enough for an effort, and not here.
    done = here("measure", *models[:5], "--budget", 300, "--json")
    assert done.status == 0
    assert done.json["new_bricks"] == len(ELEMENTWISE)


def test_an_effort_that_nobody_knows_is_refused(here: Here, models: list[Path]) -> None:
    done = here("measure", models[0], "--effort", "lazy")
    assert done.status == 2
    assert done.complaint.startswith("there is no effort 'lazy': give one of full, balanced, quick")


@pytest.mark.slow
def test_comparing_with_an_effort_runs_all_models(here: Here, models: list[Path]) -> None:
    done = here("compare", *models, "--effort", "quick", "--json").json
    assert all(row["error"] is None for row in done["models"])
    assert sum(row["new_bricks"] for row in done["models"]) < done["summary"]["bricks"]
    assert any(row["coverage"] < 1 for row in done["models"])


@pytest.mark.slow
def test_comparing_says_what_is_predicted(here: Here, models: list[Path]) -> None:
    output = here("compare", *models, "--effort", "quick").out
    assert "is predicted from bricks of other models" in " ".join(output.split())


def test_whole_models_can_be_run_without_their_bricks(here: Here, models: list[Path]) -> None:
    with bricks.Bench(here.cache, runtime="fake") as bench:
        read = [bench.read(path) for path in models[:2]]
        done = measuring.measure_whole(bench.workspace, read)
        digests = {model.digest for model in read}
        assert set().union(*done.measured.values()) == digests
        resolved = bench.store.measurements.results(
            bench.target.key, [*digests, *bench.decompose(read[0]).plan.keys]
        )
    assert resolved.keys() == digests


def test_progress_says_how_well_models_are_known(cache: Path, models: list[Path]) -> None:
    reports: list[tuple[str, float]] = []

    def tell(what: str, share: float) -> None:
        reports.append((what, share))

    with bricks.Bench(cache, runtime="fake", effort="quick", progress=tell) as bench:
        bench.measure([bench.read(path) for path in models[-2:]])
    assert any(what.startswith("models known to ± ") for what, _ in reports)
    assert all(0.0 <= share <= 1.0 for _, share in reports)


def test_a_short_budget_measures_first_what_takes_longest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planning would take as long as all of it."""
    order: list[frozenset[str]] = []
    with bricks.Bench(tmp_path / "cache", runtime="fake") as bench:
        read = bench.read(save(mlp(widths=(8, 8, 4000, 8)), tmp_path))
        plan = bench.decompose(read)
        job = ModelJob(read, plan, whole=False)
        adaptive_one = adaptive.AdaptiveMeasurement(
            [job], bench.workspace.estimators.latencies(), EFFORTS["full"], 1e9, lambda *_: None
        )
        monkeypatch.setattr(adaptive, "PLANNED_S", math.inf)
        monkeypatch.setattr(adaptive, "affordable", lambda keys, *_: frozenset(keys[:1]))

        def run(jobs: Sequence[ModelJob], *_: object) -> CampaignResult:
            order.append(jobs[0].chosen or frozenset())
            return CampaignResult({}, (), frozenset(), **combined([]).sampling_fields)

        adaptive_one.run(run)
    weights = [max(plan.bricks[key].weight_bytes for key in chosen) for chosen in order]
    assert len(order) == len(plan.bricks)
    assert weights[0] == max(weights)


def test_a_budget_counts_from_when_the_command_began(tmp_path: Path) -> None:
    def left_s(began_s: float | None) -> float | None:
        conditions = Conditions(budget_s=100.0, budget_began_s=began_s)
        with bricks.Bench(tmp_path, runtime="fake", conditions=conditions) as bench:
            return bench.workspace.campaigns.budget_s()

    now_s = time.monotonic()
    assert left_s(None) == 100.0
    assert 0 < (left_s(now_s - 60) or 0) <= 40
    assert left_s(now_s - 1000) == 0
