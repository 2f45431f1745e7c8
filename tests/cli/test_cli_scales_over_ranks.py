"""`bricks scale`: its options, and how it shows what the library predicts.

The prediction itself is held by ``tests/studies/scaling``; here its step is made up, but in the
slow tests.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch_environment
from commands import CommandResult, Here
from torch_environment import program

from bricks.cli import completion
from bricks.graph.call import TRAINING
from bricks.network.times import MeasuredNetwork, NetworkEstimate, StatedNetwork
from bricks.report.tables import duration
from bricks.session.networks import NetworkRequest, loopback_network
from bricks.store import Store
from bricks.studies.scaling.options import COLLECTIVES, STRATEGIES
from bricks.studies.scaling.result import CheckedStep
from bricks.studies.scaling.scaling import DataParallelTraining, Scaling
from bricks.studies.scaling.steps import SIZES, CopyTimes, RankModels, RankSteps, by_size
from bricks.studies.scaling.strategies import (
    DistributedDataParallel,
    Horovod,
    ParameterServer,
    Strategy,
)
from bricks.studies.scaling.training_step import Gradient, TrainingStep
from bricks.units.interval import Interval
from bricks.zoo import programs

NETWORK = ("--bandwidth", "1Gbit", "--latency", "50us")
BOTH = ("--strategy", "ddp", "--strategy", "parameter-server")
FIGURES = ("samples_per_s", "speedup", "efficiency", "exposed_communication_s", "cost_per_epoch")
ROW = {
    "ranks", "strategy", "batch", "step_s", "low_s", "high_s",
    *(f"{name}{end}" for name in FIGURES for end in ("", "_low", "_high")),
    "communication_s", "bytes_sent", "origin", "measured_step_s", "measured_solo_s", "ratio",
    "solo_s", "error",
    *(f"{name}{end}" for name in ("epoch_s", "run_s") for end in ("", "_low", "_high")),
}  # fmt: skip
FACTS = {
    "answer", "workload", "system", "runtime", "network", "network_origin", "bandwidth",
    "latency_s", "network_most_ranks", "one_host", "scaling", "accumulate", "straggler",
    "samples_per_epoch", "epochs", "ranks", "pays", "page", "trace",
}  # fmt: skip

BATCH = 4
GRADIENTS = (Gradient("last", 1 << 20, "float32"), Gradient("first", 1 << 22, "float32"))
STEP = TrainingStep(
    2e-3, 4e-3, 1e-3, GRADIENTS, (1e-3, 4e-3), {"float32": 4096}, Interval(1.0, 0.9, 1.2)
)
COPY_S = by_size((size, Interval(1.0, 0.8, 1.3).scaled(1e-10 * size)) for size in SIZES)
NAMED: Mapping[str, Strategy] = {
    each.name: each for each in (DistributedDataParallel(None), Horovod(), ParameterServer())
}
COPIES = CopyTimes(COPY_S, Interval(0.0, 0.0, 1e-3), COPY_S)


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is predicted is that of ``STEP``, but on three ranks."""
    study = "bricks.studies.scaling.study"
    steps = RankSteps(BATCH, {BATCH: STEP}, {3: "not on 3"})
    monkeypatch.setattr(f"{study}.rank_models", lambda *_: RankModels(BATCH, {}, {}))
    monkeypatch.setattr(f"{study}.rank_steps", lambda *_: steps)
    monkeypatch.setattr(f"{study}.copy_times", lambda *_: COPIES)
    monkeypatch.setattr("bricks.session.measuring.measure_isolated", lambda *_, **__: None)
    monkeypatch.setattr(f"{study}.RanksOfHost.measure", lambda *_: None)
    monkeypatch.setattr(f"{study}.RanksOfHost.times", lambda *_: ({}, {}))
    monkeypatch.setattr(
        f"{study}.real_step", lambda _, options, *__, **___: CheckedStep(options.check, 1, 1)
    )


@dataclass(frozen=True)
class Noted:
    """A network that notes the operations that it is asked for."""

    network: StatedNetwork
    operations: set[str]
    name: str = "noted"
    cores_per_rank: float = 1.0

    def time(
        self, operation: str, num_bytes: int, ranks: int, *, computing: bool
    ) -> NetworkEstimate:
        self.operations.add(operation)
        return self.network.time(operation, num_bytes, ranks, computing=computing)

    def slowdown(self, ranks: int) -> NetworkEstimate:
        return self.network.slowdown(ranks)


def hold(done: CommandResult, trace: Path, page: Path) -> None:
    """Facts, page and trace of 1, 2 and 16 ranks agree with each other."""
    assert (done.status, done.err) == (0, "")
    facts = done.json
    assert facts.keys() == FACTS
    assert (facts["page"], facts["trace"]) == (str(page), str(trace))
    rows = {(row["strategy"], row["ranks"]): row for row in facts["ranks"]}
    assert len(rows) == len(facts["ranks"]) == 6
    for (_, ranks), row in rows.items():
        assert row.keys() == ROW
        assert row["error"] is None
        assert row["low_s"] <= row["step_s"] <= row["high_s"]
        assert row["batch"] == BATCH
        assert row["samples_per_s"] == pytest.approx(BATCH * ranks / row["step_s"])
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


def test_json_table_page_and_trace_show_each_number_of_ranks(
    here: Here, tmp_path: Path, made_up: None
) -> None:
    page, trace = tmp_path / "page.html", tmp_path / "trace.json"
    words = ("scale", "train.py:step", *NETWORK, "--threads", 1, *BOTH)
    done = here(*words, "--ranks", "1,2,16", "--out", page, "--trace", trace, "--json")
    hold(done, trace, page)
    failed = here(*words, "--ranks", "2,3", "--json")
    assert (failed.status, failed.err) == (1, "bricks: not on 3\n" * 2)
    assert [(row["ranks"], row["error"]) for row in failed.json["ranks"]] == [
        (2, None), (3, "not on 3"),
    ] * 2  # fmt: skip
    assert {row.keys() == ROW for row in failed.json["ranks"]} == {True}
    shown = here(*words, "--ranks", "2,4,8", "--all")
    assert (shown.status, shown.err) == (0, "")
    assert "2, 4, 8 ranks: computing measured, copies measured, network stated" in shown.out


def test_the_first_line_has_step_epoch_and_run_on_one_rank_and_on_most(
    here: Here, made_up: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("scale", "train.py:step", "--threads", 1, "--ranks", "1,2,8")
    run = ("--samples-per-epoch", 50_001, "--epochs", 10)
    facts = here(*words, *run, "--json").json
    one, _, eight = facts["ranks"]
    assert (one["epoch_s"], eight["epoch_s"]) == pytest.approx(
        (12_501 * one["step_s"], 1563 * eight["step_s"])
    )
    assert one["run_s"] == pytest.approx(10 * one["epoch_s"])
    assert one["epoch_s_low"] < one["epoch_s"] < one["epoch_s_high"]
    answer = facts["answer"]
    assert answer.startswith("A training epoch of 50,001 samples takes 87.5 s (")
    assert f"{duration(eight['epoch_s'])} (" in answer
    assert f"on 8 ranks (efficiency {eight['efficiency']:.2f})" in answer
    assert f"10 epochs: 15 min here, {duration(eight['run_s'])} on 8 ranks." in answer

    monkeypatch.setenv("COLUMNS", "80")
    shown = here(*words, *run)
    assert shown.out.startswith(answer[:60])
    assert max(map(len, shown.out.splitlines())) <= 80
    assert all(word in shown.out for word in ("epoch", "run", "efficiency", "Loading data"))
    assert "exposed" not in shown.out
    step = here(*words, "--ranks", 8, "--json")
    assert step.json["answer"].startswith("A training step of train.py:step takes ")
    assert step.json["ranks"][0]["epoch_s"] is None
    assert "--samples-per-epoch N" in here(*words).out


def test_a_network_that_nobody_names_is_assumed_and_told(here: Here, made_up: None) -> None:
    words = ("scale", "train.py:step", "--threads", 2)
    assumed = here(*words, "--json").json
    assert (assumed["network"], assumed["network_origin"]) == ("assumed", "assumed")
    assert (assumed["bandwidth"], assumed["latency_s"]) == (1.25e9, 50e-6)
    stated = here(*words, *NETWORK, "--json").json
    assert (stated["network_origin"], stated["bandwidth"]) == ("stated", 1.25e8)
    out = " ".join(here(*words).out.split())
    assert "Each rank is a host of its own with 2 threads; network assumed: 10 Gbit/s" in out
    assert "network stated: 1 Gbit/s" in here(*words, *NETWORK).out


def test_a_runtime_without_programs_is_refused(here: Here) -> None:
    done = here("scale", program("momentum"), *NETWORK)
    assert done.status == 1
    assert "fake" in done.complaint and "--runtime torch" in done.complaint


def test_a_mistyped_cache_is_not_made_for_its_network(here: Here, tmp_path: Path) -> None:
    nowhere = tmp_path / "none"
    words = ("scale", "train.py:step", "--network", "lan", "--runtime", "fake")
    done = here.plain(*words, "--cache", nowhere)
    assert done.status == 1
    assert f"there is no cache in {nowhere}" in done.complaint
    assert not nowhere.exists()


def test_what_makes_no_sense_is_one_line(here: Here) -> None:
    with Store.open(here.cache):
        pass  # there is a cache, and no network in it
    for words, *facts in (
        ((*NETWORK, "--check", "2"), "leave out --bandwidth and --latency", "--network NAME"),
        ((*NETWORK, "--check", "2", "--strategy", "horovod"), "--check", "--network NAME"),
        (("--check", "2", "--strategy", "horovod"), "--check", "--strategy ddp"),
        (("--check", "2"), "--check", "--runtime"),
        (("--network", "lan"), "'lan'"),
        (("--bandwidth", "10Gbit"), "--latency", "--network NAME"),
        (("--bandwidth", "10Gb", "--latency", "1ms"), "--bandwidth '10Gb'"),
        (("--bandwidth", "0Gbit", "--latency", "1ms"), "--bandwidth '0Gbit'"),
        (("--bandwidth", "1Gbit", "--latency", "50"), "--latency '50'"),
        (("--network", "lan", "--latency", "1ms"), "--network", "leave these out"),
        ((*NETWORK, "--ranks", "1,two"), "--ranks '1,two'"),
        ((*NETWORK, "--ranks", "0"), "--ranks '0'"),
        ((*NETWORK, "--strategy", "dpp"), "'dpp'", "did you mean ddp?"),
        ((*NETWORK, "--strategy", "horovod", "--bucket-cap-mb", "5"), "--strategy ddp"),
        ((*NETWORK, "--strong"), "--strong", "--batch N"),
    ):
        done = here("scale", "train.py:step", *words)
        assert done.status == 2, words
        assert all(fact in done.complaint for fact in facts), done.complaint


def test_a_mistyped_program_is_met_with_the_nearest(here: Here) -> None:
    for word, *facts in (
        ("torch_resnet44_trainin", "did you mean torch_resnet44_training?"),
        ("squeezenet", "FILE.py:FUNCTION", "torch_bert_training"),
    ):
        done = here.plain("scale", word, "--check", 2, "--cache", here.cache)
        assert done.status == 2
        assert all(fact in done.complaint for fact in (repr(word), *facts)), done.complaint


def test_training_steps_of_the_zoo_are_completed() -> None:
    nothing: Any = None
    offered = completion.training_steps(nothing, "")
    assert offered == sorted(each.name for each in programs() if each.kind == TRAINING)
    assert "torch_resnet44_training" in offered


def test_each_strategy_has_the_collectives_that_it_sends() -> None:
    assert COLLECTIVES.keys() == STRATEGIES.keys()
    for name, operations in COLLECTIVES.items():
        sent: set[str] = set()
        network = Noted(StatedNetwork(1e9, 1e-5), sent)
        training = DataParallelTraining(NAMED[name], network, BATCH)
        Scaling(training, {BATCH: STEP}, COPIES).point(4)
        assert sent == set(operations)


def test_a_check_without_a_network_measures_the_loopback_once(
    here: Here, made_up: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch_environment.python()

    def quick(store: Store, wanted: NetworkRequest, **how: Any) -> MeasuredNetwork:
        small = replace(wanted, backend="fake", sizes=(1024, 4096))
        return loopback_network(store, small, **how)

    monkeypatch.setattr("bricks.session.networks.loopback_network", quick)
    words = ("scale", "torch_lstm_training", "--check", 2, "--ranks", 1, "--cache", here.cache)
    done = here.plain(*words, "--no-measure")
    assert (done.status, "--no-measure" in done.complaint) == (2, True)
    done = here.plain(*words, "--json")
    assert (done.status, "'loopback'" in done.complaint) == (0, True)
    assert (done.json["network"], done.json["runtime"]["threads"]) == ("loopback", 1)
    assert done.json["network_origin"] == "loopback" and done.json["one_host"]
    assert "A real step on 2 ranks took" in done.json["answer"]
    assert [row["ranks"] for row in done.json["ranks"]] == [1, 2]
    for more in ((), ("--no-measure",)):
        again = here.plain(*words, *more, "--json")
        assert (again.status, again.err) == (0, "")
        assert again.json["network"] == "loopback"


Scale = Callable[..., CommandResult]


@pytest.fixture
def scale(here: Here) -> Scale:
    """The command on a program that PyTorch runs, in a cache of its own."""
    torch_environment.python()
    words = ("scale", program("momentum"), "--threads", 1, "--precision", 0.5)
    return lambda *more: here.plain(*words, "--cache", here.cache, *more)


@pytest.mark.slow
def test_a_program_is_measured_once_and_divides_its_batch(scale: Scale, tmp_path: Path) -> None:
    page, trace = tmp_path / "page.html", tmp_path / "trace.json"
    files = ("--out", page, "--trace", trace)
    hold(scale(*NETWORK, "--ranks", "1,2,16", *BOTH, *files, "--json"), trace, page)
    again = scale(*NETWORK, "--no-measure")
    assert (again.status, again.err) == (0, "")

    done = scale(*NETWORK, "--strong", "--batch", BATCH, "--ranks", "1,2,3", "--json")
    assert done.status == 1
    assert done.complaint == "a batch of 4 cannot be divided by 3 ranks: choose others"
    one, two, three = done.json["ranks"]
    assert [one["batch"], two["batch"], three["batch"]] == [4, 2, None]
    assert two["samples_per_s"] == pytest.approx(4 / two["step_s"])
