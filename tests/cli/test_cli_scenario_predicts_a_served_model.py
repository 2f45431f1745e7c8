from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from commands import CommandResult, Here
from factories import conv_net, save

Scenario = Callable[..., CommandResult]

FIGURES = (
    "p50_s", "p90_s", "p99_s", "p999_s", "trimmed_mean_s", "counted_s", "throughput",
    "utilisation", "dropped_share", "capacity_qps",
)  # fmt: skip


@pytest.fixture
def scenario(here: Here, tmp_path: Path) -> Scenario:
    path = save(conv_net(batch="N"), tmp_path, "conv.onnx")
    return lambda *more: here("scenario", path, "--threads", 1, *more)


def test_each_figure_has_an_interval(scenario: Scenario) -> None:
    done = scenario("--scenario", "server", "--qps", 500, "--batching", 4, "--json")
    assert (done.status, done.err) == (0, "")
    facts = done.json
    assert (facts["scenario"], facts["qps"], facts["max_batch"]) == ("server", 500, 4)
    for name in FIGURES:
        assert facts[f"{name}_low"] <= facts[name] <= facts[f"{name}_high"], name
    assert facts["p50_s"] <= facts["p90_s"] <= facts["p99_s"] <= facts["p999_s"]
    assert facts["counted_s"] == facts["p99_s"]
    assert facts["throughput"] == pytest.approx(500, rel=0.02)
    assert facts["max_qps"] == facts["capacity_qps"]
    assert [row["batch"] for row in facts["batches"]] == [1, 2, 4]
    assert all(row["measured_share"] == 1 for row in facts["batches"])
    assert (facts["saturated"], facts["keeps_slo"], facts["checked"]) == (False, None, None)


def test_a_stream_is_as_fast_as_compare_says(scenario: Scenario, here: Here) -> None:
    facts = scenario("--json").json
    path = Path(here.cache).parent / "conv.onnx"
    alone = here("predict", path, "--batch", 1, "--threads", 1, "--json").json["models"][0]
    assert facts["p50_s"] == pytest.approx(alone["estimate_s"], rel=0.01)
    assert (facts["scenario"], facts["max_qps"], facts["percentile"]) == ("single-stream", None, 90)


def test_a_bound_finds_the_highest_rate(scenario: Scenario) -> None:
    facts = scenario("--scenario", "server", "--slo", "10ms", "--json").json
    assert facts["qps"] == facts["max_qps"] > 0
    assert facts["slo_s"] == pytest.approx(0.010)
    shown = scenario("--scenario", "server", "--slo", "10ms", "--batching", 2)
    assert shown.status == 0
    assert "The bound of 99 % within 10.0 ms" in shown.out
    assert "highest rate" in shown.out
    assert scenario("--slo", "1s", "--json").json["keeps_slo"] is True
    assert scenario("--slo", "1us", "--json").json["keeps_slo"] is False


def test_a_rate_above_saturation_has_no_percentile(scenario: Scenario) -> None:
    done = scenario("--scenario", "server", "--qps", 1e6, "--json")
    assert done.status == 0
    facts = done.json
    assert facts["saturated"] is True
    assert {facts[f"p{name}_s"] for name in (50, 90, 99, 999)} == {None}
    shown = scenario("--scenario", "server", "--qps", 1e6).out
    assert "above saturation" in shown
    assert "percentile" not in shown


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
    shown = scenario("--scenario", "offline", "--batching", 8, "--request-cost", "1ms").out
    assert "the server itself takes 1.00 ms a sample" in shown


def test_a_model_that_takes_no_such_batch_is_named(here: Here, tmp_path: Path) -> None:
    done = here("scenario", tmp_path / "none.onnx")
    assert done.status == 1
    assert "none.onnx" in done.complaint


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--scenario", "servr", "--qps", "1"), "no scenario is called 'servr': did you mean"),
        (("--scenario", "server"), "scenario server needs a rate: add --qps N"),
        (("--qps", "10"), "leave out --qps and --arrivals, or give --scenario server"),
        (("--slo", "50"), "--slo '50' is no bound: write it like 20ms"),
        (("--batching", "0"), "--batching 0 cannot be had"),
        (("--batch-timeout", "1ms"), "--batch-timeout is for batches: add --batching N"),
        (("--instances", "900"), "900 instances with --threads 1 need 900 cores"),
        (("--system", "nowhere"), "no known system is called 'nowhere'"),
    ],
)
def test_what_makes_no_sense_is_one_line(
    scenario: Scenario, words: tuple[str, ...], said: str
) -> None:
    done = scenario(*words)
    assert done.status == 2
    assert said in done.complaint
