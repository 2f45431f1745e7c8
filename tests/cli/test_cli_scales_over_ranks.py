from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch_environment
from commands import CommandResult, Here
from torch_environment import program

NETWORK = ("--bandwidth", "1Gbit", "--latency", "50us")


@pytest.fixture(autouse=True)
def _environment() -> None:
    torch_environment.python()


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for all tests, since copies of gradients take seconds to measure."""
    return tmp_path_factory.mktemp("scale") / "cache"


Scale = Callable[..., CommandResult]


@pytest.fixture
def scale(here: Here, cache: Path) -> Scale:
    words = ("scale", program("momentum"), "--threads", 1, "--precision", 0.5, "--cache", cache)
    return lambda *more: here.plain(*words, *more)


def test_json_table_page_and_trace_show_each_number_of_ranks(scale: Scale, tmp_path: Path) -> None:
    page, trace = tmp_path / "page.html", tmp_path / "trace.json"
    files = ("--out", page, "--trace", trace)
    many = ("--strategy", "ddp", "--strategy", "parameter-server")
    done = scale(*NETWORK, "--ranks", "1,2,16", *many, *files, "--json")
    assert (done.status, done.err) == (0, "")
    facts = done.json
    rows = {(row["strategy"], row["ranks"]): row for row in facts["ranks"]}
    assert len(rows) == len(facts["ranks"]) == 6
    for (_, ranks), row in rows.items():
        assert row["error"] is None
        assert row["low_s"] <= row["step_s"] <= row["high_s"]
        assert row["batch"] == 4
        assert row["samples_per_s"] == pytest.approx(4 * ranks / row["step_s"])
        assert row["efficiency"] == pytest.approx(row["speedup"] / ranks)
        assert row["origin"]["compute"] == "measured"
        assert (row["measured_step_s"], row["ratio"], row["cost_per_epoch"]) == (None, None, None)
    alone, two = rows["ddp", 1], rows["ddp", 2]
    assert (alone["speedup"], alone["bytes_sent"], alone["origin"]["network"]) == (1, 0, None)
    assert two["step_s"] - alone["step_s"] == pytest.approx(two["exposed_communication_s"])
    assert two["origin"]["network"] == "stated"
    assert rows["parameter-server", 16]["step_s"] > rows["ddp", 16]["step_s"]
    assert [each["strategy"] for each in facts["pays"]] == ["ddp", "parameter-server"]

    assert "Content-Security-Policy" in page.read_text(encoding="utf-8")
    events = json.loads(trace.read_text(encoding="utf-8"))["traceEvents"]
    processes = [e["args"]["name"] for e in events if e["name"] == "process_name"]
    assert processes == ["network", *(f"rank {n}" for n in range(16))]
    ends = [e["ts"] + e["dur"] for e in events if e["ph"] == "X"]
    assert max(ends) == pytest.approx(rows["ddp", 16]["step_s"] * 1e6, rel=1e-3)

    shown = scale(*NETWORK, "--no-measure")
    assert (shown.status, shown.err) == (0, "")
    assert "2, 4, 8 ranks: computing measured, copies measured, network stated" in shown.out


def test_ranks_divide_a_batch_that_they_can(scale: Scale) -> None:
    done = scale(*NETWORK, "--strong", "--batch", 4, "--ranks", "1,2,3", "--json")
    assert done.status == 1
    assert done.complaint == "a batch of 4 cannot be divided by 3 ranks: choose others"
    one, two, three = done.json["ranks"]
    assert [one["batch"], two["batch"], three["batch"]] == [4, 2, None]
    assert two["samples_per_s"] == pytest.approx(4 / two["step_s"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((*NETWORK, "--check", "2"), "--check runs real steps on a network that was measured"),
        ((*NETWORK, "--check", "2", "--strategy", "horovod"), "--check runs real steps"),
        (("--network", "lan"), "no network is called 'lan'"),
        ((), "no network is given: add --bandwidth 10Gbit --latency 50us, or --network NAME"),
        (("--bandwidth", "10Gbit"), "no network is given"),
        (("--bandwidth", "10Gb", "--latency", "1ms"), "--bandwidth '10Gb' is no bandwidth"),
        (("--bandwidth", "0Gbit", "--latency", "1ms"), "--bandwidth '0Gbit' is no bandwidth"),
        (("--bandwidth", "1Gbit", "--latency", "50"), "--latency '50' is no latency"),
        (("--network", "lan", "--latency", "1ms"), "leave these out"),
        ((*NETWORK, "--ranks", "1,two"), "--ranks '1,two' are no numbers of ranks"),
        ((*NETWORK, "--ranks", "0"), "--ranks '0' are no numbers of ranks"),
        ((*NETWORK, "--strategy", "dpp"), "no strategy is called 'dpp': did you mean ddp?"),
        ((*NETWORK, "--strategy", "horovod", "--bucket-cap-mb", "5"), "is for --strategy ddp"),
        ((*NETWORK, "--strong"), "--strong divides a batch: add --batch N"),
    ],
)
def test_what_makes_no_sense_is_one_line(scale: Scale, words: tuple[str, ...], said: str) -> None:
    done = scale(*words)
    assert done.status == 2
    assert said in done.complaint
