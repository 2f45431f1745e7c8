"""Models really served by a worker, and asked by MLPerf LoadGen."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from commands import CommandResult, Here
from factories import conv_net, save
from refusals import refused
from tiers import one_in

from bricks import Bench
from bricks.errors import WorkerError
from bricks.measure.load_generator import Queries
from bricks.measure.served import Batching, ServedModel
from bricks.session import whole_models

Scenario = Callable[..., CommandResult]

# A stand-in for batches of up to four that reads its memory once.
EMPTY = [0.0] * 4


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(conv_net(batch="N"), tmp_path_factory.mktemp("served"), "conv.onnx")


@pytest.fixture(scope="module")
def served(path: Path) -> Iterator[ServedModel]:
    """Two instances that take up to four samples."""
    with Bench(path.with_name("cache"), threads=1) as bench:
        models = {size: bench.read(str(path), batch=size) for size in (1, 2, 3, 4)}
        with ServedModel(bench.workspace.worker(), Batching(4, 0.001, 2)) as model:
            model.load(models)
            yield model


@pytest.mark.parametrize(
    "scenario", one_in(2, ["SingleStream", "MultiStream", "Server", "Offline"])
)
def test_every_sample_is_answered_and_loadgen_judges(served: ServedModel, scenario: str) -> None:
    found = served.serve(Queries(scenario, 40, qps=400.0, samples=6))
    samples = 40 * (6 if scenario == "MultiStream" else 1)
    assert sum(batch.size for batch in found.batches) == samples
    assert all(1 <= batch.size <= 4 for batch in found.batches)
    assert all(0 < batch.run_s <= batch.occupied_s for batch in found.batches)
    assert found.summary["result_query_count"] == len(found.issued_s)
    assert len(found.latencies_s) == (1 if scenario == "Offline" else 40)
    # What the client has seen ends when LoadGen is told, which counts the time until it is sent.
    middle = "per_query_" if scenario == "MultiStream" else ""
    if scenario != "Offline":
        told_s = 1e-9 * found.summary[f"result_50.00_percentile_{middle}latency_ns"]
        assert sorted(found.latencies_s)[len(found.latencies_s) // 2 - 1] <= told_s


@pytest.mark.slow
def test_the_same_seed_asks_at_the_same_times(served: ServedModel) -> None:
    first, again, other = (
        np.array(served.serve(Queries("Server", 30, 60.0, seed=seed), stand_in_s=EMPTY).issued_s)
        for seed in (1, 1, 2)
    )
    # A busy host may be late with some, and LoadGen makes up for it with the next.
    assert np.median(abs(again - first)) < 0.02
    assert np.median(abs(other - first)) > 0.02


def test_a_server_without_a_model_reads_memory_in_its_place(served: ServedModel) -> None:
    found = served.serve(Queries("SingleStream", 30), stand_in_s=EMPTY)
    assert all(0 < batch.run_s < batch.occupied_s for batch in found.batches)


def test_a_stand_in_keeps_the_server_busy_for_as_long_as_it_is_told(served: ServedModel) -> None:
    found = served.serve(Queries("Server", 30, 100.0), stand_in_s=[0.002, 0.003, 0.004, 0.005])
    assert all(batch.run_s >= 0.001 * (batch.size + 1) for batch in found.batches)


def test_what_a_batch_waits_for_does_not_occupy_its_instance(served: ServedModel) -> None:
    found = served.serve(Queries("Offline", 40), stand_in_s=[0.002] * 4)
    longest_s = max(max(batch.here_s) for batch in found.batches)
    assert longest_s > 4 * np.median([batch.occupied_s for batch in found.batches])
    assert all(len(batch.here_s) == batch.size for batch in found.batches)
    assert all(batch.idle_s >= 0 for batch in found.batches)


def test_batches_are_told_in_the_order_in_which_they_were_taken(path: Path) -> None:
    """Of two instances, one gets a long batch of four, and the other short ones of what is left."""
    with (
        Bench(path.with_name("cache"), threads=1) as bench,
        ServedModel(bench.workspace.worker(), Batching(4, 0.0, 2)) as model,
    ):
        stand_in_s = [0.0, 0.0, 0.0, 0.1]
        found = model.serve(Queries("MultiStream", 3, samples=5), stand_in_s=stand_in_s)
    sizes = [batch.size for batch in found.batches]
    long = [number for number, batch in enumerate(found.batches) if batch.size == 4]
    assert sum(sizes) == 15
    assert all(number + 1 < len(sizes) and sizes[number + 1] < 4 for number in long)


def test_samples_are_told_in_the_order_in_which_they_came(served: ServedModel) -> None:
    found = served.serve(Queries("Server", 60, 400.0))
    here_s = np.concatenate([batch.here_s for batch in found.batches])
    assert len(here_s) == len(found.latencies_s)
    # The client sees what is on the way besides, but may have an answer before the server goes on.
    sent_s = [batch.occupied_s - batch.run_s for batch in found.batches for _ in batch.here_s]
    assert (here_s - sent_s < found.latencies_s).all()


@pytest.mark.slow
def test_bricks_are_served_in_place_of_their_model(path: Path) -> None:
    with Bench(path.with_name("cache"), threads=1) as bench:
        model = bench.read(str(path), batch=2)
        with whole_models.served_walk(bench.workspace, model) as walk:
            idle_s, samples = walk.passes(qps=200.0, count=25, seed=1)
            places = walk.timed_counts
    assert samples.keys() == places.keys()
    assert {len(idle_s), *map(len, samples.values())} == {25}
    assert min(map(min, samples.values())) > 0
    assert max(idle_s) > 0


@pytest.mark.slow
def test_a_load_generator_that_fails_is_named(
    served: ServedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mlperf_loadgen.py").write_text("raise ImportError('libnumbers.so is not there')\n")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    with refused(WorkerError, "ImportError", "libnumbers.so"):
        served.serve(Queries("SingleStream", 30))
    monkeypatch.undo()
    assert len(served.serve(Queries("SingleStream", 30)).issued_s) == 30


def test_a_batch_that_fails_ends_the_series(tmp_path: Path, path: Path) -> None:
    """Of instances for batches of up to four, only those of one sample are loaded."""
    with (
        Bench(tmp_path / "cache", threads=1) as bench,
        ServedModel(bench.workspace.worker(), Batching(4, 0.0, 1)) as model,
    ):
        model.load({1: bench.read(str(path), batch=1)})
        with refused(WorkerError, 4):
            model.serve(Queries("Offline", 40))
        assert len(model.serve(Queries("SingleStream", 20)).issued_s) == 20


@pytest.mark.slow
def test_the_command_shows_what_was_served(here: Here, path: Path) -> None:
    words = ("scenario", path, "--threads", 1, "--precision", 0.5, "--check", "--cache", here.cache)
    done = here.plain(*words, "--scenario", "server", "--qps", 100, "--queries", 60, "--batching",
                      2, "--slo", "1s", "--json")  # fmt: skip
    assert (done.status, done.err) == (0, "")
    checked, facts = done.json["checked"], done.json
    for name in ("p50_s", "p99_s", "counted_s", "trimmed_mean_s", "throughput"):
        assert checked[name] > 0
        assert checked["expected"][name] > 0
    for name in ("worker_p50_s", "worker_counted_s"):
        assert 0 < checked[name] <= checked["counted_s"]
        assert checked["expected"][name] > 0
    assert checked["samples"] == 60
    assert [each["result_query_count"] for each in checked["loadgen"]] == [30, 30]
    # On a busy host all that the server takes may look like a sample's own.
    assert facts["batch_cost_s"] + facts["request_cost_s"] > 0
    # All rates that were tried keep a bound of a second.
    assert (checked["max_qps"], checked["expected"]["max_qps"]) == (None, None)
    shown = here.plain(*words, "--scenario", "offline", "--queries", 40)
    assert shown.status == 0
    assert "Served: 40 real samples that MLPerf LoadGen asked for" in shown.out
    assert "In the worker, without the queue, a batch takes in the median" in shown.out


@pytest.mark.slow
def test_where_no_rate_keeps_the_bound_nothing_is_served(here: Here, path: Path) -> None:
    words = ("scenario", path, "--threads", 1, "--precision", 0.5, "--check", "--cache", here.cache)
    done = here.plain(*words, "--scenario", "server", "--slo", "1us", "--json")
    assert done.status == 0
    assert (done.json["checked"], done.json["max_qps"]) == (None, 0)
    assert "nothing was served" in done.json["warnings"][-1]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--on", "x"), "--check serves the model on this host: leave out --on"),
        (("--scenario", "server", "--qps", 9, "--max-queue", 3), "leave out --max-queue"),
        (
            ("--batching", 64),
            "--check loads the model for each size of a batch, and 64 are too many",
        ),
        (("--request-cost", "1ms"), "leave out --request-cost, --batch-cost and --transport"),
    ],
)
def test_what_cannot_be_checked_is_refused(
    here: Here, path: Path, words: tuple[object, ...], said: str
) -> None:
    done = here("scenario", path, "--check", *words)
    assert done.status == 2
    assert said in done.complaint


def test_a_trace_cannot_be_checked(here: Here, path: Path, tmp_path: Path) -> None:
    (tmp_path / "trace").write_text("0\n1\n")
    words = ("--scenario", "server", "--arrivals", tmp_path / "trace")
    done = here("scenario", path, "--check", *words)
    assert done.status == 2
    assert "--check has LoadGen ask, which knows no --arrivals: give --qps" in done.complaint
    done = here("scenario", path, "--queries", 100)
    assert done.complaint.startswith("--queries are those of --check: add --check")


def test_without_loadgen_the_way_to_install_it_is_said(
    here: Here, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "mlperf_loadgen", None)
    done = here("scenario", path, "--check")
    assert done.status == 2
    assert "pip install 'onnx-bricks[loadgen]'" in done.complaint
