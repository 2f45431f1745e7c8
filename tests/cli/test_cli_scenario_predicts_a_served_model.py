from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import CommandResult, Here
from factories import conv_net, save
from rough import ROUGH

from bricks import Bench

Scenario = Callable[..., CommandResult]
pytestmark = pytest.mark.usefixtures("few_queries")

FIGURES = (
    "p50_s", "p90_s", "p99_s", "p999_s", "trimmed_mean_s", "counted_s", "throughput",
    "utilisation", "dropped_share", "capacity_qps",
)  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, and a cache that knows it in batches of up to 8."""
    folder = tmp_path_factory.mktemp("scenario")
    path = save(conv_net(batch="N", blocks=1), folder, "conv.onnx")
    with Bench(folder / "cache", runtime="fake", threads=1, conditions=ROUGH) as bench:
        bench.measure([bench.read(path, batch=batch) for batch in (1, 2, 4, 8)])
    return folder


@pytest.fixture
def scenario(here: Here, folder: Path) -> Scenario:
    words = (folder / "conv.onnx", "--threads", 1, "--runtime", "fake", "--cache", folder / "cache")
    return lambda *more: here.plain("scenario", *words, *more)


def test_each_figure_has_an_interval(scenario: Scenario) -> None:
    done = scenario("--scenario", "server", "--qps", 500, "--batching", 4, "--json")
    assert (done.status, done.err) == (0, "")
    facts = done.json
    assert (facts["scenario"], facts["qps"], facts["max_batch"]) == ("server", 500, 4)
    for name in FIGURES:
        assert facts[f"{name}_low"] <= facts[name] <= facts[f"{name}_high"], name
    assert facts["p50_s"] <= facts["p90_s"] <= facts["p99_s"] <= facts["p999_s"]
    assert facts["counted_s"] == facts["p99_s"]
    assert facts["throughput"] == pytest.approx(500, rel=0.2)  # few arrivals
    assert facts["max_qps"] == facts["capacity_qps"]
    assert [row["batch"] for row in facts["batches"]] == [1, 2, 4]
    assert all(row["measured_share"] == 1 for row in facts["batches"])
    assert (facts["saturated"], facts["meets_slo"], facts["checked"]) == (False, None, None)


def test_a_stream_is_as_fast_as_the_model_is_predicted(
    scenario: Scenario, here: Here, folder: Path
) -> None:
    facts = scenario("--json").json
    words = ("predict", folder / "conv.onnx", "--batch", 1, "--threads", 1, "--json")
    done = here.plain(*words, "--runtime", "fake", "--cache", folder / "cache")
    (alone,) = done.json["models"]
    assert facts["p50_s"] == pytest.approx(alone["estimate_s"], rel=0.01)
    assert (facts["scenario"], facts["max_qps"], facts["percentile"]) == ("single-stream", None, 90)


def test_a_bound_finds_the_highest_rate(scenario: Scenario) -> None:
    facts = scenario("--scenario", "server", "--slo", "10ms", "--json").json
    assert facts["qps"] == facts["max_qps"] > 0
    assert facts["slo_s"] == pytest.approx(0.010)
    shown = scenario("--scenario", "server", "--slo", "10ms", "--batching", 2)
    assert shown.status == 0
    assert re.match(r"conv keeps up to [\d,.]+/s \(.*\) under 10 ms at p99 on ", shown.out)
    assert "keeps the SLO up to" in shown.out
    assert scenario("--slo", "1s", "--json").json["meets_slo"] == "yes"
    assert scenario("--slo", "1us", "--json").json["meets_slo"] == "no"


def test_the_first_line_says_what_the_facts_say(scenario: Scenario) -> None:
    server = ("--scenario", "server", "--qps", 50, "--slo")
    for words, meets, verb in (
        ((*server, "1s"), "yes", "keeps 50/s under 1 s at p99"),
        ((*server, "1us"), "no", "keeps no rate under 1 µs"),
        (("--slo", "1s"), "yes", "which meets 1 s"),
        (("--slo", "1us"), "no", "which does not meet 1 µs"),
    ):
        facts = scenario(*words, "--json").json
        assert next(iter(facts)) == "answer"
        assert (facts["meets_slo"], verb in facts["answer"]) == (meets, True), facts["answer"]
    for words in (("--scenario", "offline"), ("--scenario", "multi-stream")):
        answer = scenario(*words, "--json").json["answer"]
        assert answer.startswith("conv ") and answer.endswith(".")
    typical = scenario("--json").json
    bound = f"{(typical['counted_s'] + typical['counted_s_high']) / 2 * 1e6:.4f}us"
    unsure = scenario("--slo", bound, "--json").json
    assert (unsure["meets_slo"], "is uncertain" in unsure["answer"]) == ("uncertain", True)


def test_a_rate_above_saturation_has_no_percentile(scenario: Scenario) -> None:
    done = scenario("--scenario", "server", "--qps", 1e6, "--json")
    assert done.status == 0
    facts = done.json
    assert facts["saturated"] is True
    assert {facts[f"p{name}_s"] for name in (50, 90, 99, 999)} == {None}
    shown = scenario("--scenario", "server", "--qps", 1e6).out
    assert facts["answer"].startswith("conv is saturated at 1e+06/s: ")
    assert shown.startswith(facts["answer"] + "\n")
    assert "above saturation" in shown
    assert "p99" not in shown


def test_a_trace_tells_when_samples_arrive(scenario: Scenario, tmp_path: Path) -> None:
    trace = tmp_path / "arrivals.txt"
    trace.write_text("0\n\n0.5\n0.75\n")
    facts = scenario("--scenario", "server", "--arrivals", trace, "--json").json
    assert (facts["arrivals"], facts["qps"]) == (3, None)
    trace.write_text("0\nsoon\n")
    done = scenario("--scenario", "server", "--arrivals", trace)
    assert done.status == 2
    assert "line 2 is no time in seconds, but 'soon': give one number a line" in done.complaint
    done = scenario("--scenario", "server", "--arrivals", tmp_path / "none")
    assert done.status == 2
    assert "cannot be read (No such file or directory)" in done.complaint


def test_offline_tells_the_batch_that_pays(scenario: Scenario) -> None:
    done = scenario("--scenario", "offline", "--batching", 8, "--request-cost", "1ms", "--json")
    facts = done.json
    assert facts["p50_s"] is None
    assert facts["request_cost_s"] == pytest.approx(0.001)
    assert facts["throughput"] < 1000
    assert facts["best_batch"] in {row["batch"] for row in facts["batches"]}
    shown = scenario("--scenario", "offline", "--batching", 8, "--request-cost", "1ms", "--all").out
    assert "the server itself takes 1.00 ms a sample" in shown


def test_a_model_that_takes_no_such_batch_is_named(here: Here, tmp_path: Path) -> None:
    done = here("scenario", tmp_path / "none.onnx")
    assert done.status == 1
    assert "none.onnx" in done.complaint


def test_what_makes_no_sense_is_one_line(scenario: Scenario) -> None:
    for line, *facts in (
        ("--scenario servr --qps 1", "'servr'", "server"),
        ("--scenario server", "--qps N"),
        ("--qps 10", "--qps", "--arrivals", "--scenario server"),
        ("--slo 50", "--slo '50'", "20ms"),
        ("--batching 0", "--batching 0"),
        ("--batch-timeout 1ms", "--batch-timeout", "--batching N"),
        ("--instances 900", "900 instances", "--threads 1"),
        ("--on nowhere", "no nowhere among"),
    ):
        done = scenario(*line.split())
        assert done.status == 2, line
        assert all(fact in done.complaint for fact in facts), done.complaint
