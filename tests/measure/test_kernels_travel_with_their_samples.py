"""What kernels take on a device goes with its sample from the worker to other caches."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from factories import mlp, save
from fork_server import ForkServer
from launching_worker import COPY_S

from bricks import Bench, Estimate, Measurement
from bricks.measure import worker_process
from bricks.samples.measurement import Round
from bricks.samples.statistics import median
from bricks.store.records import checked_round, round_of_record, round_record
from bricks.system.accelerator import AcceleratorState
from bricks.system.host_conditions import HostConditions
from bricks.units.sample import Kernel, Sample

HOST = HostConditions((1e-3, 2e-3, 3e-3, 4e-5, 1e-4), taken_s=7)


@pytest.fixture
def bench(
    tmp_path: Path, fork_server: ForkServer, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Bench]:
    def launch(_command: object, **options: object) -> object:
        return fork_server.worker(entry="launching_worker:main", **options)  # type: ignore[arg-type]

    monkeypatch.setattr(worker_process, "launch", launch)
    with Bench(tmp_path / "cache", runtime="fake", threads=1) as opened:
        yield opened


def measured(bench: Bench, keys: list[str]) -> dict[str, Measurement]:
    found = bench.store.measurements.results(bench.target.key, keys)
    return {key: m for key, m in found.items() if isinstance(m, Measurement)}


def test_kernels_are_measured_kept_exported_and_merged(bench: Bench, tmp_path: Path) -> None:
    model = bench.read(save(mlp(), tmp_path))
    bench.measure([model])
    keys = list(bench.decompose(model).plan.keys)
    here = measured(bench, keys)
    assert len(here) == len(keys)
    for measurement in here.values():
        compute, copy = measurement.kernels
        assert (compute.name, copy.name) == ("compute", "copy")
        assert copy.device_s == pytest.approx(COPY_S)
        assert measurement.device_s == pytest.approx(measurement.latency_s / 2 + COPY_S, rel=0.01)
        for sample in measurement.samples:
            assert sample.device_s == pytest.approx(sample.host_s / 2 + COPY_S)
    assert isinstance(bench.predict(model, measure=False), Estimate)
    assert bench.store.contents.verify() == []
    results = tmp_path / "results.jsonl"
    bench.store.contents.export(results, [bench.target.key], package="0")
    with Bench(tmp_path / "other", runtime="fake", threads=1) as other:
        other.workspace.merge(results)
        assert measured(other, keys) == here


def test_without_a_device_a_round_is_written_as_numbers() -> None:
    plain = Round((1.0, 2.0), HOST, 0.0)
    assert round_record(plain) == [[1.0, 2.0], [7, 1e-3, 2e-3, 3e-3, 4e-5, 1e-4], 0.0]
    assert Round.of([Sample(1.0), Sample(2.0)], HOST, 0.0) == plain
    assert (plain.device_s, Measurement("b1-0", (plain,), 1.0).kernels) == (0.0, ())


def test_a_round_with_kernels_is_the_same_as_a_record() -> None:
    samples = [Sample(1.0, (Kernel("k", 0.5),)), Sample(2.0), Sample(3.0, (Kernel("k", 0.25),))]
    taken = Round.of(samples, HOST)
    record = round_record(taken)
    assert record[0] == [[1.0, [["k", 0.5]]], 2.0, [3.0, [["k", 0.25]]]]
    assert checked_round(round_of_record(record)) == taken
    assert taken.device_s == median([0.5, 0.0, 0.25])
    assert [sample.host_s for sample in taken.rounded(1).samples] == [1.0, 2.0, 3.0]


STATE = AcceleratorState(1.41e9, 699.5, ("power",))


def test_a_record_ends_with_the_state_of_the_device() -> None:
    taken = Round.of([Sample(1.0, (Kernel("k", 0.5),))], HOST, device_state=STATE)
    record = round_record(taken)
    assert record[1:] == [HOST.to_json(), None, [1.41e9, 699.5, ["power"]]]
    assert checked_round(round_of_record(record)) == taken


EXCHANGE = HostConditions.of_exchange(2.5e-3)


@pytest.mark.parametrize(
    ("conditions", "read"),
    [
        ([2e-3, 0.5, 3e-3], {"host": EXCHANGE, "waited_share": 0.5}),
        ([2.5e-3, None, None], {"host": EXCHANGE}),
        ([None, None, 2.5e-3], {"host": EXCHANGE}),
        ([None, 0.5, None], {"waited_share": 0.5}),
        ([2e-3, 0.5, 3e-3, STATE.to_json()],
         {"host": EXCHANGE, "waited_share": 0.5, "device_state": STATE}),
    ],
)  # fmt: skip
def test_a_record_of_earlier_versions_knows_the_kernel_of_exchange_only(
    conditions: list[Any], read: dict[str, Any]
) -> None:
    assert checked_round(round_of_record([[1.0], *conditions])) == Round((1.0,), **read)


@pytest.mark.parametrize(
    "conditions",
    [[0.0, None, 1e-3], [1e-3, None, -1.0], [True, None, None], [float("inf"), None, None],
     ["1", None, None], [[7, 1e-3, 1e-3], None], [[7, 0.0, 1.0, 1.0, 1.0, 1.0], None],
     [[-7, 1.0, 1.0, 1.0, 1.0, 1.0], None], [[7.5, 1.0, 1.0, 1.0, 1.0, 1.0], None],
     [[7, True, 1.0, 1.0, 1.0, 1.0], None]],
)  # fmt: skip
def test_conditions_that_cannot_be_true_are_refused(conditions: list[Any]) -> None:
    with pytest.raises(ValueError, match=r"no latencies|no time|not a positive number"):
        checked_round(round_of_record([[1.0], *conditions]))


@pytest.mark.parametrize(
    "state",
    [[-1.0, None, []], [True, None, []], [None, "1", []], [None, float("inf"), []],
     [None, None, ["boredom"]]],
)  # fmt: skip
def test_states_that_cannot_be_true_are_refused(state: list[object]) -> None:
    with pytest.raises(ValueError, match="device"):
        checked_round(round_of_record([[1.0], None, None, state]))


@pytest.mark.parametrize("kernel", [["k", -1.0], ["k", float("inf")], ["k", "1"], [7, 1.0]])
def test_kernels_that_cannot_be_true_are_refused(kernel: list[object]) -> None:
    with pytest.raises(ValueError, match="kernel"):
        checked_round(round_of_record([[[1.0, [kernel]]], None, None]))
