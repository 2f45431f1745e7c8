from __future__ import annotations

from pathlib import Path

import pytest
from commands import CommandResult, Here
from factories import conv_net, save

from bricks.cli.main import run
from bricks.system import fingerprint

PRICE = 0.5
SERVER = ("--slo", "50ms")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, and a cache in which it was measured on a system with a price."""
    folder = tmp_path_factory.mktemp("advise")
    path, cache = save(conv_net(batch="N"), folder, "conv.onnx"), ("--cache", str(folder / "cache"))
    for batch in "124":  # of 8 there is no estimate, so it is not looked at
        words = ("measure", str(path), "--batch", batch, "--threads", "1", "--runtime", "fake")
        assert run([*words, *cache]) == 0
    assert run(["systems", "set", fingerprint().key, "--price", str(PRICE), *cache]) == 0
    return folder


def advise(here: Here, folder: Path, *more: object) -> CommandResult:
    words = ("advise", folder / "conv.onnx", "--threads", 1, "--runtime", "fake")
    return here.plain(*words, "--cache", folder / "cache", *more)


def test_hosts_instances_batch_and_cost_are_told(
    here: Here, folder: Path, few_queries: None
) -> None:
    few = advise(here, folder, *SERVER, "--qps", 10, "--json").json
    (candidate,) = few["candidates"]
    best = candidate["best"]
    assert (few["qps"], few["percentile"], candidate["error"]) == (10, 99, None)
    assert (candidate["hosts"], candidate["meets_slo"]) == (1, "yes")
    assert few["answer"] == f"conv meets 50 ms at 10/s (p99) on one host on {best['system']}."
    assert best["latency_s_high"] <= 0.050
    assert candidate["max_qps_low"] >= 10
    assert best["cost_per_million"] == pytest.approx(PRICE / 36000 * 1e6)
    (more,) = advise(here, folder, *SERVER, "--qps", 1e7, "--json").json["candidates"]
    assert 1 < more["hosts_low"] <= more["hosts_high"]
    assert more["hosts"] == (more["hosts_low"] if more["meets_slo"] == "yes" else None)
    shown = advise(here, folder, *SERVER, "--qps", 10)
    assert shown.status == 0
    assert shown.out.startswith(few["answer"] + "\n")


def test_no_setting_has_more_threads_than_cores(here: Here, folder: Path) -> None:
    cores = fingerprint().identity["physical_cores"] or 1
    words = (*SERVER, "--qps", 10, "--json")
    rows = advise(here, folder, *words).json["settings"]
    assert all(row["threads"] * row["instances"] <= cores for row in rows)
    assert max(row["instances"] for row in rows) == cores
    done = advise(here, folder, *words, "--instances", 2 * cores)
    assert done.status == 2
    assert f"--instances {cores}" in done.complaint


def test_only_the_settings_asked_for_are_tried(here: Here, folder: Path) -> None:
    words = (*SERVER, "--qps", 10, "--batching", "1,4", "--instances", 1, "--json")
    rows = advise(here, folder, *words).json["settings"]
    assert {(row["batch"], row["instances"]) for row in rows} == {(1, 1), (4, 1)}


def test_an_slo_that_nothing_meets_is_said(here: Here, folder: Path) -> None:
    words = ("--slo", "1us", "--qps", 1, "--batching", 1)
    found = advise(here, folder, *words, "--json").json
    (candidate,) = found["candidates"]
    assert (candidate["meets_slo"], candidate["hosts"], candidate["max_qps"]) == ("no", None, 0.0)
    assert "conv does not meet 1 µs at 1/s (p99)" in found["answer"]
    assert candidate["best"]["latency_s_low"] > 1e-6


def test_what_makes_no_sense_is_one_line(here: Here, folder: Path) -> None:
    for words, *facts in (
        ("--qps 0", "--qps 0 is no rate"),
        ("--qps 1 --batch 4", "--batching N", "--batch"),
        ("--batching 4", "--batching", "--qps N"),
        ("--instances 4", "--instances", "--qps N"),
    ):
        done = advise(here, folder, "--slo", "20ms", *words.split())
        assert done.status == 2, words
        assert all(fact in done.complaint for fact in facts), done.complaint
