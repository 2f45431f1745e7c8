"""``bricks advise``: what keeps a latency, how sure that is, what it costs, what is not known."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from commands import Here
from factories import conv_net, mlp, save
from hypothesis import given
from hypothesis import strategies as st
from store_examples import make_target
from systems import copied, measure_on

from bricks.compose.estimate import Estimate, Uncertainty
from bricks.compose.slo import per_million, risk
from bricks.session.targets import short_names
from bricks.store import Store
from bricks.studies.serving.service import most_instances
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
        "m", "executed", estimate_s, low_s, high_s, 0.0, 0.0, 0.0, 1.0, (), Uncertainty()
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


def settings(here: Here, *words: object) -> list[dict[str, Any]]:
    done = here("advise", *words, "--json")
    assert (done.status, done.err) == (0, "")
    rows: list[dict[str, Any]] = done.json["settings"]
    return rows


def test_each_system_of_the_cache_answers(fleet: Here, models: tuple[Path, Path]) -> None:
    rows = settings(fleet, models[0], "--slo", "1s")
    assert [row["system"] for row in rows] == ["big", HOME.name]  # the cheaper one first
    known = fleet("predict", models[0], "--no-measure", "--json").json["models"][0]
    mine = next(row for row in rows if row["system"] == HOME.name)
    assert mine["latency_s"] == known["estimate_s"]
    assert (mine["meets_slo"], mine["hosts"], mine["measured_share"]) == ("yes", None, 1.0)
    assert mine["cost_per_million"] == pytest.approx(3 / 3600 * known["estimate_s"] * 1e6)
    late = settings(fleet, models[0], "--slo", "1us")
    assert [row["meets_slo"] for row in late] == ["no", "no"]


def test_the_first_line_names_who_meets_the_slo(fleet: Here, models: tuple[Path, Path]) -> None:
    done = fleet("advise", models[0], "--slo", "1s", "--json")
    (candidate,) = done.json["candidates"]
    assert (candidate["model"], candidate["meets_slo"]) == ("conv", "yes")
    assert candidate["best"]["system"] == "big"
    assert done.json["answer"] == "conv meets 1 s, cheapest on big."
    assert fleet("advise", models[0], "--slo", "1s").out.startswith(done.json["answer"] + "\n")
    none = fleet("advise", models[0], "--slo", "1us", "--json").json
    assert none["answer"] == "conv does not meet 1 us on any known system.".replace("us", "µs")
    assert none["deciding"] == []


def test_a_bound_within_the_interval_is_uncertain_and_measuring_decides(
    fleet: Here, models: tuple[Path, Path]
) -> None:
    (row,) = settings(fleet, models[0], "--slo", "1s", "--on", HOME.name)
    bound = f"{(row['latency_s'] + row['latency_s_high']) / 2 * 1e6:.3f}us"
    done = fleet("advise", models[0], "--slo", bound, "--on", HOME.name, "--json").json
    (candidate,), (deciding,) = done["candidates"], done["deciding"]
    assert (candidate["meets_slo"], candidate["hosts"]) == ("uncertain", None)
    assert (deciding["models"], deciding["system"]) == (["conv"], None)
    assert deciding["wall_s"] > 0
    assert deciding["command"].startswith(f"bricks measure {models[0]} ")
    assert "conv is uncertain about" in done["answer"]
    assert f"`{deciding['command']}`" in done["answer"] and "decides" in done["answer"]
    assert fleet.plain(*shlex.split(deciding["command"])[1:]).status == 0


def test_batches_are_part_of_the_search(fleet: Here, models: tuple[Path, Path]) -> None:
    assert fleet("measure", models[1], "--batch", 4).status == 0
    for flag in ("--batch", "--batches"):
        rows = settings(fleet, models[1], "--slo", "1s", flag, "1,4", "--on", HOME.name)
        assert {row["batch"] for row in rows} == {1, 4}
    for row in rows:
        price = 3 / 3600 * row["latency_s"] / row["batch"] * 1e6
        assert row["cost_per_million"] == pytest.approx(price)


def test_a_percentile_of_single_runs_is_that_of_measured_ones(
    fleet: Here, models: tuple[Path, Path]
) -> None:
    one = (models[0], "--slo", "1s", "--on", HOME.name)
    typical, rare = (settings(fleet, *one, *more)[0] for more in ((), ("--percentile", "99")))
    assert rare["latency_s"] >= typical["latency_s"]
    assert fleet("advise", *one, "--percentile", 99, "--json").json["percentile"] == 99


def test_a_model_never_decomposed_there_is_taken_as_it_is_executed_on_hosts_alike(
    fleet: Here, models: tuple[Path, Path]
) -> None:
    """On those with other instructions nobody knows, and that is said."""
    measure_on(ARM, fleet.cache, models[:1])
    done = fleet("advise", models[1], "--slo", "1s", "--json")
    assert done.status == 0  # a system can say
    by_system = {row["system"]: row for row in done.json["settings"]}
    assert by_system[HOME.name]["measured_share"] == 1.0
    assert by_system["big"]["error"] is not None or by_system["big"]["measured_share"] < 1.0
    assert "was never decomposed on arm" in by_system["arm"]["error"]
    assert "was never decomposed on big" not in str(by_system["big"]["error"])
    shown = fleet("advise", models[1], "--slo", "1s")
    assert "without an estimate" in shown.out
    only = fleet("advise", models[1], "--slo", "1s", "--on", "arm")
    assert (only.status, only.out) == (1, "")
    assert "was never decomposed on arm" in only.complaint


@given(threads=st.integers(1, 64), cores=st.none() | st.integers(1, 64))
def test_threads_of_all_instances_fit_the_cores(threads: int, cores: int | None) -> None:
    system = replace(HOME, identity={**HOME.identity, "physical_cores": cores})
    target = make_target("lab", threads=threads)
    most = most_instances(replace(target, system=system))
    assert most == 1 if cores is None else most * threads <= cores


def test_people_see_a_table(fleet: Here, models: tuple[Path, Path]) -> None:
    _, _, head, row, *_ = fleet("advise", models[0], "--slo", "20ms").out.splitlines()
    assert head.split() == [
        "model", "system", "threads", "latency", "meets", "SLO", "cost/million",
    ]  # fmt: skip
    assert row.startswith("conv") and "big" in row
    every = fleet("advise", models[0], "--slo", "20ms", "--all").out
    assert len([line for line in every.splitlines() if line.startswith("conv ")]) == 1 + 1 + 2


def test_what_cannot_be_meant_is_refused(fleet: Here, models: tuple[Path, Path]) -> None:
    for words, said in (
        ((), "an SLO is missing"),
        (("--slo", "20"), "--slo '20' is no latency: write it like 20ms"),
        (("--slo", "0ms"), "is no latency"),
        (("--slo", "-3ms"), "is no latency"),
        (("--slo", "1h"), "is no latency"),
        (("--slo", "1ms", "--batch", "1,x"), "are no batch sizes: write them like 1,4,8"),
        (("--slo", "1ms", "--batch", "0"), "are no batch sizes"),
        (("--slo", "1ms", "--threads", "97"), "nothing is measured with so many threads"),
        (("--slo", "1ms", "--percentile", "100"), "--percentile 100 is none"),
        (("--slo", "1ms", "--on", "bigg"), f"no bigg among the known systems ({NAMES}): did you"),
        (("--slo", "1ms", "--granularity", "3"), "was measured with fake like that"),
    ):
        done = fleet("advise", models[0], *words)
        assert (done.status, done.out) == (2, ""), words
        assert said in done.complaint, words
