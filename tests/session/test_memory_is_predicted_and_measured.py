from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from decoder import Architecture, decoder, shapes
from factories import constant, conv_net, mlp, model, node, save, value
from refusals import refused
from tiers import slow_but

from bricks import Bench, MemoryPeaks, PeakMemory, UnknownMemory, WorkerError
from bricks.session import whole_models

MIB = 1 << 20

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="peaks are read from /proc")


def heavy(folder: Path, *, name: str = "heavy.onnx") -> Path:
    """A small product with a weight of 16 MiB, and one value of 32 MiB."""
    weight = constant("w", np.ones((2048, 2048)), "FLOAT")
    nodes = [
        node("MatMul", ["x", "w"], ["row"]),
        node("Mul", ["row", "column"], ["h"]),
        node("ReduceMax", ["h"], ["y"], axes=[0, 1]),
    ]
    inputs = [value("x", [1, 2048]), value("column", [4096, 1])]
    outputs = [value("y", [1, 1])]
    return save(model(nodes, inputs, outputs, [weight]), folder, name)


def predicted(bench: Bench, path: Path) -> PeakMemory:
    memory = whole_models.predict_memory(bench.workspace, bench.read(path))
    assert isinstance(memory, PeakMemory)
    return memory


def test_the_fake_runtime_takes_memory_for_weights_and_values(tmp_path: Path) -> None:
    with Bench(tmp_path / "cache", runtime="fake") as bench:
        peaks = whole_models.measure_memory(bench.workspace, bench.read(heavy(tmp_path)))
    assert peaks.loading_bytes == pytest.approx(16 * MIB, abs=MIB)
    assert peaks.running_bytes == pytest.approx((16 + 32) * MIB, abs=MIB)
    assert peaks.peak_bytes == peaks.running_bytes


def test_nothing_is_measured_or_stored_for_a_prediction(tmp_path: Path) -> None:
    with Bench(tmp_path / "cache", runtime="fake") as bench:
        path = heavy(tmp_path)
        memory = predicted(bench, path)
        keys = bench.decompose(bench.read(path)).plan.keys
        assert bench.store.measurements.results(bench.target.key, keys) == {}
    assert memory.weight_bytes == 16 * MIB
    assert memory.activation_bytes >= 32 * MIB


@pytest.mark.parametrize(
    "name", slow_but(lambda name: name == "heavy", ["heavy", "convolutions", "squeezenet"])
)
def test_a_prediction_is_close_to_a_process_that_runs_the_model(name: str, tmp_path: Path) -> None:
    made = {
        "heavy": lambda: heavy(tmp_path),
        "convolutions": lambda: save(conv_net(channels=128, blocks=6, size=64), tmp_path),
    }
    with Bench(tmp_path / "cache", threads=1) as bench:
        model = bench.read(made[name]() if name in made else name)
        memory, peaks = (
            whole_models.predict_memory(bench.workspace, model),
            whole_models.measure_memory(bench.workspace, model),
        )
    assert isinstance(memory, PeakMemory)
    assert memory.unknown == ()
    assert memory.peak_bytes == pytest.approx(peaks.peak_bytes, rel=0.1)


@pytest.mark.slow
def test_weights_in_the_models_own_file_take_more_while_they_are_loaded(tmp_path: Path) -> None:
    with Bench(tmp_path / "cache", threads=1) as bench:
        model = bench.read(heavy(tmp_path))
        beside, inline = (
            whole_models.measure_memory(bench.workspace, model, inline=inline)
            for inline in (False, True)
        )
        by_default = whole_models.measure_memory(bench.workspace, model, keeps_freed=True)
    assert inline.loading_bytes > beside.loading_bytes - MIB
    assert by_default.peak_bytes > beside.peak_bytes - MIB


@pytest.mark.slow
def test_a_small_decoder_is_predicted_as_it_is_measured(tmp_path: Path) -> None:
    of = Architecture(layers=3, hidden=256, heads=4, inner=512, vocabulary=2000, positions=64)
    path = save(decoder(of), tmp_path, "decoder.onnx")
    with Bench(tmp_path / "cache", threads=1) as bench:
        model = bench.read(path, shapes=shapes(of, 8, 24))
        memory, peaks = (
            whole_models.predict_memory(bench.workspace, model),
            whole_models.measure_memory(bench.workspace, model),
        )
    assert isinstance(memory, PeakMemory)
    assert memory.peak_bytes == pytest.approx(peaks.peak_bytes, rel=0.1)


def test_another_granularity_has_no_prediction_but_the_same_measurement(tmp_path: Path) -> None:
    with Bench(tmp_path / "cache", runtime="fake", granularity="2") as bench:
        model = bench.read(save(mlp(), tmp_path))
        memory = whole_models.predict_memory(bench.workspace, model)
        assert isinstance(memory, UnknownMemory)
        assert "granularity 2" in memory.reason
        assert isinstance(whole_models.measure_memory(bench.workspace, model), MemoryPeaks)


def test_a_model_that_does_not_load_is_an_error_of_one_line(tmp_path: Path) -> None:
    nodes = [node("NoSuchOperator", ["x"], ["y"], domain="nowhere")]
    proto = model(nodes, [value("x", [1])], [value("y", [1])], domains=["nowhere"])
    with Bench(tmp_path / "cache", threads=1) as bench:
        read = bench.read(save(proto, tmp_path))
        with refused(WorkerError, "model", "NoSuchOperator"):
            whole_models.measure_memory(bench.workspace, read)
