from __future__ import annotations

from pathlib import Path

import pytest
from commands import CommandResult, Here
from factories import conv_net, save

from bricks.cli.main import run
from bricks.system import fingerprint

pytestmark = pytest.mark.usefixtures("few_queries")
PRICE = 0.5
SERVER = ("--scenario", "server", "--slo", "50ms")


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


def test_hosts_instances_batch_and_cost_are_told(here: Here, folder: Path) -> None:
    few = advise(here, folder, *SERVER, "--qps", 10, "--json").json
    (row,) = few["answers"]
    assert (few["qps"], few["percentile"], row["error"]) == (10, 99, None)
    assert (row["hosts"], row["keeps"], row["cost_per_hour"]) == (1, True, PRICE)
    assert row["counted_s"] <= 0.050
    assert row["max_qps_low"] >= 10
    assert row["cost_per_million"] == pytest.approx(PRICE / 36000 * 1e6)
    (more,) = advise(here, folder, *SERVER, "--qps", 1e7, "--json").json["answers"]
    assert more["hosts"] > 1
    assert more["cost_per_hour"] == pytest.approx(PRICE * more["hosts"])
    assert more["max_qps"] * more["hosts"] >= 1e7
    shown = advise(here, folder, *SERVER, "--qps", 10)
    assert shown.status == 0
    assert "10 samples/s, 99 % within 50.0 ms." in shown.out


def test_a_bound_that_nothing_keeps_is_said(here: Here, folder: Path) -> None:
    words = ("--scenario", "server", "--slo", "1us", "--qps", 1, "--batching", 1)
    (row,) = advise(here, folder, *words, "--json").json["answers"]
    assert (row["keeps"], row["hosts"], row["counted_s"]) == (False, None, None)
    assert "not kept" in advise(here, folder, *words).out


def test_what_makes_no_sense_is_one_line(here: Here, folder: Path) -> None:
    for words, *facts in (
        ("--scenario offline --qps 1", "--scenario server"),
        ("--scenario server", "--qps N"),
        ("--scenario server --qps 1 --batch 4", "--batching N", "--batch"),
        ("--qps 1", "--qps", "--scenario server"),
    ):
        done = advise(here, folder, "--slo", "20ms", *words.split())
        assert done.status == 2, words
        assert all(fact in done.complaint for fact in facts), done.complaint
