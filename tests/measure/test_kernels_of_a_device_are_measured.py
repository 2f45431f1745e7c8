"""Walks on a device have the kernels of each brick: in the walk, run again, and evicted.

The device is the fake runtime's GPU; what it takes is known, so that answers are exact.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from commands import Here, chain
from factories import conv_net, mlp, save

from bricks import Bench, Conditions, Estimate, Measurement, StopRule
from bricks.backends.fake.backend import CALL_OVERHEAD_S
from bricks.backends.fake.gpu import ACCELERATOR, COLD, COSTS_S, HOT, LAUNCH_S
from bricks.samples.call_overhead import DEVICE_PROBES
from bricks.samples.measurement import Failure
from bricks.session.options import DISPLACED_BYTES
from bricks.system import fingerprint

ONCE = Conditions(rule=StopRule(min_rounds=1, max_rounds=1, passes=1), exclusive=False)
EVICTED = DISPLACED_BYTES[-1]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with Bench(
        tmp_path / "cache", runtime="fake", device="cuda", threads=1, conditions=ONCE
    ) as opened:
        yield opened


def results(bench: Bench, path: Path) -> dict[str, Measurement | Failure]:
    keys = bench.decompose(bench.read(path)).plan.keys
    return dict(bench.store.measurements.results(bench.target.key, keys))


def test_the_target_is_the_gpu_of_this_host(bench: Bench) -> None:
    assert bench.target.system.accelerator == ACCELERATOR
    assert bench.target.system.name == "fake-gpu"
    assert bench.target.runtime.provider == "CUDA"
    assert bench.target.system.key != fingerprint().key


def test_each_brick_has_its_kernels_in_each_state(bench: Bench, tmp_path: Path) -> None:
    path = save(conv_net(blocks=2, size=8), tmp_path, "net.onnx")
    bench.measure([bench.read(path)])
    found = results(bench, path)
    assert len(found) > 2
    for measured in found.values():
        assert isinstance(measured, Measurement)
        states = measured.kernels_by_displaced
        assert set(states) == {None, *DISPLACED_BYTES}
        ((walk,), (hot,), (cold,)) = (states[state] for state in (None, 0, EVICTED))
        assert walk.name == hot.name == cold.name
        assert hot.device_s == pytest.approx(HOT * walk.device_s)
        assert cold.device_s == pytest.approx(COLD * walk.device_s)
        assert measured.latency_s == pytest.approx(CALL_OVERHEAD_S + LAUNCH_S, rel=0.01)


def test_the_costs_of_launching_are_measured(bench: Bench, tmp_path: Path) -> None:
    bench.measure([bench.read(save(mlp(), tmp_path, "mlp.onnx"))])
    found = bench.store.measurements.results(bench.target.key, [*DEVICE_PROBES.values()])
    for name, key in DEVICE_PROBES.items():
        measured = found[key]
        assert isinstance(measured, Measurement)
        assert measured.latency_s == pytest.approx(COSTS_S[name], rel=0.01)


def test_a_step_is_predicted_and_compared(here: Here, tmp_path: Path) -> None:
    path = save(conv_net(blocks=3, size=8), tmp_path, "net.onnx")
    (row,) = here("compare", path, "--device", "cuda", "--json").json["models"]
    assert row["error"] is None
    assert row["ratio"] == pytest.approx(1, rel=0.02)
    (answer,) = here("predict", path, "--device", "cuda", "--json").json["models"]
    assert answer["estimate_s"] == pytest.approx(row["estimate_s"], rel=0.02)
    assert answer["measured_share"] == 1


def test_results_go_to_another_cache_with_their_device(bench: Bench, tmp_path: Path) -> None:
    path = save(mlp(), tmp_path, "mlp.onnx")
    bench.measure([bench.read(path)])
    here, file = results(bench, path), tmp_path / "results.jsonl"
    bench.store.contents.export(file, [bench.target.key], package="0")
    with Bench(tmp_path / "other", runtime="fake", device="cuda", threads=1) as other:
        other.workspace.merge(file)
        there = results(other, path)
        assert there == here
        model = other.read(path)
        assert other.measure([model]).new_bricks == 0
        assert isinstance(other.predict(model), Estimate)


def test_the_processor_of_the_host_stays_another_target(bench: Bench, tmp_path: Path) -> None:
    path = save(mlp(), tmp_path, "mlp.onnx")
    bench.measure([bench.read(path)])
    with bench.workspace.with_options(device="cpu") as on_host:
        assert on_host.target.system == replace(fingerprint(), name=on_host.target.system.name)
        assert on_host.target.system.accelerator is None
        keys = list(bench.decompose(bench.read(path)).plan.keys)
        assert on_host.store.measurements.results(on_host.target.key, keys) == {}


def test_a_brick_that_takes_too_much_memory_fails_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(os.environ, "BRICKS_FAKE_FAULTS", "Tanh=memory")
    path = save(chain("Sigmoid", "Tanh", "Exp"), tmp_path, "chain.onnx")
    with Bench(
        tmp_path / "cache", runtime="fake", device="cuda", threads=1, conditions=ONCE
    ) as bench:
        bench.measure([bench.read(path)])
        found = list(results(bench, path).values())
    failures = [result for result in found if isinstance(result, Failure)]
    assert len(failures) == 1
    assert "out of memory" in failures[0].reason
    measured = [result for result in found if isinstance(result, Measurement)]
    assert len(measured) == 2
    assert all(set(m.kernels_by_displaced) == {None, *DISPLACED_BYTES} for m in measured)


@pytest.mark.parametrize("fault", ["crash", "later"])
def test_a_worker_that_dies_loses_no_other_brick(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    monkeypatch.setitem(os.environ, "BRICKS_FAKE_FAULTS", f"Tanh={fault}")
    path = save(chain("Sigmoid", "Tanh", "Exp"), tmp_path, "chain.onnx")
    with Bench(
        tmp_path / "cache", runtime="fake", device="cuda", threads=1, conditions=ONCE
    ) as bench:
        bench.measure([bench.read(path)])
        found = list(results(bench, path).values())
    assert sum(isinstance(result, Failure) for result in found) == 1
    assert sum(isinstance(result, Measurement) for result in found) == 2
