"""``bricks advise``: what keeps a latency, how sure that is, what it costs, what is not known."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from commands import Here
from factories import conv_net, mlp, save
from systems import copied, measure_on

from bricks.compose.advice import per_million, risk
from bricks.compose.estimate import Estimate
from bricks.compose.uncertainty import Uncertainty
from bricks.session.targets import short_names
from bricks.store import Store
from bricks.system import fingerprint

HOME = fingerprint()
BIG = replace(HOME, name="big", identity={**HOME.identity, "logical_cpus": 97})
ARM = replace(
    HOME, name="arm", identity={**HOME.identity, "architecture": "aarch64", "logical_cpus": 98}
)
# Of the systems in a cache of two.
NAMES = ", ".join(sorted(short_names((HOME.name, BIG.name)).values()))


def estimate(low_s: float, estimate_s: float, high_s: float) -> Estimate:
    return Estimate(
        "m", "executed", estimate_s, low_s, high_s, 0.0, 0.0, 0.0, 0.0, 1.0, (), Uncertainty()
    )


def test_the_risk_follows_from_the_interval() -> None:
    found = estimate(0.008, 0.010, 0.0125)
    assert risk(found, 0.010) == pytest.approx(0.5)
    assert risk(found, 0.0125) == pytest.approx(0.025, rel=0.01)
    assert risk(found, 0.008) == pytest.approx(0.975, rel=0.01)
    risks = [risk(found, slo_s / 1000) for slo_s in range(5, 20)]
    assert risks == sorted(risks, reverse=True)
    lopsided = estimate(0.005, 0.010, 0.011)
    assert risk(lopsided, 0.011) == pytest.approx(0.025, rel=0.01)
    assert risk(lopsided, 0.005) == pytest.approx(0.975, rel=0.01)


def test_without_an_interval_it_is_yes_or_no() -> None:
    exact = estimate(0.01, 0.01, 0.01)
    assert [risk(exact, slo_s) for slo_s in (0.009, 0.01, 0.011)] == [1.0, 0.0, 0.0]
    assert risk(estimate(0.0, 0.0, 0.0), 0.001) == 0.0


def test_a_million_inferences_cost_their_share_of_an_hour() -> None:
    assert per_million(3.6, 0.001, 1) == pytest.approx(1.0)
    assert per_million(3.6, 0.004, 8) == pytest.approx(0.5)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("models")
    return save(conv_net(blocks=1), folder, "conv.onnx"), save(mlp(), folder, "mlp.onnx")


@pytest.fixture(scope="module")
def known(models: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache of two systems that measured one model, and one of them the other model too."""
    cache = tmp_path_factory.mktemp("fleet") / "cache"
    measure_on(HOME, cache, models)
    measure_on(BIG, cache, models[:1])
    with Store.open(cache) as store:
        store.systems.describe(HOME.key, price_per_hour=3)
        store.systems.describe(BIG.key, price_per_hour=2)
    return cache


@pytest.fixture
def fleet(here: Here, known: Path) -> Here:
    return copied(known, here)


def answers(here: Here, *words: object) -> list[dict[str, Any]]:
    done = here("advise", *words, "--json")
    assert (done.status, done.err) == (0, "")
    rows: list[dict[str, Any]] = done.json["answers"]
    return rows


def test_each_system_of_the_cache_answers(fleet: Here, models: tuple[Path, Path]) -> None:
    rows = answers(fleet, models[0], "--slo", "1s")
    assert [row["system"] for row in rows] == ["big", HOME.name]  # the cheaper one first
    known = fleet("predict", models[0], "--no-measure", "--json").json["models"][0]
    mine = next(row for row in rows if row["system"] == HOME.name)
    assert mine["estimate_s"] == known["estimate_s"]
    assert (mine["keeps"], mine["risk"], mine["measured_share"]) == (True, 0.0, 1.0)
    assert mine["cost_per_million"] == pytest.approx(3 / 3600 * known["estimate_s"] * 1e6)
    late = answers(fleet, models[0], "--slo", "1us")
    assert [row["keeps"] for row in late] == [False, False]
    assert [row["risk"] for row in late] == [1.0, 1.0]


def test_what_keeps_the_latency_comes_before_what_is_cheap(
    fleet: Here, models: tuple[Path, Path]
) -> None:
    (row, _) = answers(fleet, models[0], "--slo", "1s")
    between = f"{row['estimate_s'] * 1e6:.3f}us"
    rows = answers(fleet, models[0], "--slo", between)
    assert all(0.2 < row["risk"] < 0.8 and not row["keeps"] for row in rows)


def test_batches_are_part_of_the_search(fleet: Here, models: tuple[Path, Path]) -> None:
    assert fleet("measure", models[1], "--batch", 4).status == 0
    rows = answers(fleet, models[1], "--slo", "1s", "--batches", "1,4", "--on", HOME.name)
    assert {row["batch"] for row in rows} == {1, 4}
    by_batch = {row["batch"]: row for row in rows}
    for batch, row in by_batch.items():
        price = 3 / 3600 * row["estimate_s"] / batch * 1e6
        assert row["cost_per_million"] == pytest.approx(price)


def test_a_model_never_decomposed_there_is_taken_as_it_is_executed_on_hosts_alike(
    fleet: Here, models: tuple[Path, Path]
) -> None:
    """On those with other instructions nobody knows, and that is said."""
    measure_on(ARM, fleet.cache, models[:1])
    done = fleet("advise", models[1], "--slo", "1s", "--json")
    assert done.status == 1
    by_system = {row["system"]: row for row in done.json["answers"]}
    assert by_system[HOME.name]["measured_share"] == 1.0
    assert by_system["big"]["error"] is not None or by_system["big"]["measured_share"] < 1.0
    assert "was never decomposed on arm" in by_system["arm"]["error"]
    assert "was never decomposed on big" not in str(by_system["big"]["error"])


def test_people_see_a_table(fleet: Here, models: tuple[Path, Path]) -> None:
    shown = fleet("advise", models[0], "--slo", "20ms").out
    assert "a million costs" in shown
    assert "yes" in shown
    assert "big" in shown


def test_what_cannot_be_meant_is_refused(fleet: Here, models: tuple[Path, Path]) -> None:
    for words, said in (
        (("--slo", "20"), "--slo '20' is no latency: write it like 20ms"),
        (("--slo", "0ms"), "is no latency"),
        (("--slo", "-3ms"), "is no latency"),
        (("--slo", "1h"), "is no latency"),
        (("--slo", "1ms", "--batches", "1,x"), "are no batch sizes: write them like 1,4,8"),
        (("--slo", "1ms", "--batches", "0"), "are no batch sizes"),
        (("--slo", "1ms", "--batches", "1", "--batch", "2"), "leave one out"),
        (
            ("--slo", "1ms", "--on", "bigg"),
            f"no bigg among the known systems ({NAMES}): did you",
        ),
        (("--slo", "1ms", "--granularity", "3"), "was measured with fake like that"),
    ):
        done = fleet("advise", models[0], *words)
        assert (done.status, done.out) == (2, ""), words
        assert said in done.complaint, words


def test_a_cache_that_is_not_there_is_not_made(here: Here, models: tuple[Path, Path]) -> None:
    done = here("advise", models[0], "--slo", "1ms")
    assert done.status == 1
    assert "there is no cache in" in done.complaint
    assert not here.cache.exists()
