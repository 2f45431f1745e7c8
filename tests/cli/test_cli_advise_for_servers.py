from __future__ import annotations

from pathlib import Path

import pytest
from commands import Here
from factories import conv_net, save


@pytest.fixture
def path(here: Here, tmp_path: Path) -> Path:
    """A model that was measured on a system with a price."""
    path = save(conv_net(batch="N"), tmp_path, "conv.onnx")
    for batch in (1, 2, 4):  # of 8 there is no estimate, so it is not looked at
        assert here("measure", path, "--batch", batch, "--threads", 1).status == 0
    known = here("systems", "--json", runtime=None).json["systems"]
    (system,) = (each["name"] for each in known if not each["published"])
    assert here("systems", "set", system, "--price", 0.5, runtime=None).status == 0
    return path


def test_hosts_instances_batch_and_cost_are_told(here: Here, path: Path) -> None:
    words = ("advise", path, "--threads", 1, "--scenario", "server", "--slo", "50ms")
    few = here(*words, "--qps", 10, "--json").json
    (row,) = few["answers"]
    assert (few["qps"], few["percentile"], row["error"]) == (10, 99, None)
    assert (row["hosts"], row["keeps"], row["cost_per_hour"]) == (1, True, 0.5)
    assert row["counted_s"] <= 0.050
    assert row["max_qps_low"] >= 10
    assert row["cost_per_million"] == pytest.approx(0.5 / 36000 * 1e6)
    (more,) = here(*words, "--qps", 100_000, "--json").json["answers"]
    assert more["hosts"] > 1
    assert more["cost_per_hour"] == pytest.approx(0.5 * more["hosts"])
    assert more["max_qps"] * more["hosts"] >= 100_000
    shown = here(*words, "--qps", 10)
    assert shown.status == 0
    assert "10 samples/s, 99 % within 50.0 ms." in shown.out


def test_a_bound_that_nothing_keeps_is_said(here: Here, path: Path) -> None:
    words = ("advise", path, "--threads", 1, "--scenario", "server", "--slo", "1us", "--qps", 1)
    done = here(*words, "--json")
    (row,) = done.json["answers"]
    assert (row["keeps"], row["hosts"], row["counted_s"]) == (False, None, None)
    assert "not kept" in here(*words).out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--scenario", "offline", "--qps", "1"), "there is advice for --scenario server"),
        (("--scenario", "server"), "a server is asked at a rate: add --qps N"),
        (("--scenario", "server", "--qps", "1", "--batch", "4"), "give --batching N in place"),
        (("--qps", "1"), "--qps is for a server: add --scenario server"),
    ],
)
def test_what_makes_no_sense_is_one_line(
    here: Here, path: Path, words: tuple[str, ...], said: str
) -> None:
    done = here("advise", path, "--slo", "20ms", *words)
    assert done.status == 2
    assert said in done.complaint
