from pathlib import Path

import numpy as np
import onnxruntime
import psutil
import pytest
from commands import Here, chain
from factories import constant, mlp, model, node, save, value
from fork_server import children
from refusals import refused

from bricks import BackendError, Bench, Conditions, IncompleteEstimate, StopRule
from bricks.backends import create

MIB = 1 << 20
QUICK = Conditions(rule=StopRule(min_rounds=6, max_rounds=6))


@pytest.mark.slow
def test_a_zoo_model_from_measuring_to_comparing(here: Here) -> None:
    words = ("squeezenet", "--threads", 1, "--precision", 1, "--json")
    first = here("measure", *words, runtime="onnxruntime")
    assert (first.status, first.err) == (0, "")
    assert first.json["new_bricks"] == first.json["bricks"] > 20
    assert here("measure", *words, runtime="onnxruntime").json["new_bricks"] == 0

    predicted = here("predict", *words, "--no-measure", runtime="onnxruntime")
    assert (predicted.status, predicted.err) == (0, "")
    assert predicted.json["models"][0]["measured_share"] == 1.0

    done = here("compare", *words, runtime="onnxruntime")
    assert (done.status, done.err) == (0, "")
    (row,) = done.json["models"]
    assert row["new_bricks"] == 0
    assert row["ratio"] > 0

    verified = here("decompose", "squeezenet", "--verify", "--json", runtime="onnxruntime")
    assert (verified.status, verified.err) == (0, "")
    assert verified.json["models"][0]["exact"] is True


def oversized(folder: Path) -> Path:
    """Five layers, two of which touch a value of 2 GiB."""
    rows = 2048 * MIB // (4 * 1024)
    nodes = [
        node("Sigmoid", ["x"], ["a"]),
        node("Expand", ["a", "shape"], ["huge"]),
        node("ReduceMax", ["huge"], ["b"], axes=[0], keepdims=1),
        node("Tanh", ["b"], ["c"]),
        node("Exp", ["c"], ["y"]),
    ]
    shape = constant("shape", np.array([rows, 1024], np.int64))
    proto = model(nodes, [value("x", [1, 1024])], [value("y", [1, 1024])], [shape])
    return save(proto, folder, "oversized.onnx")


def test_bricks_too_big_for_memory_are_failures_and_the_rest_is_measured(tmp_path: Path) -> None:
    options = {"threads": 1, "conditions": QUICK, "memory_bytes": 1024 * MIB}
    with Bench(tmp_path / "cache", **options) as bench:
        models = [bench.read(oversized(tmp_path)), bench.read(save(mlp(), tmp_path))]
        done = bench.measure(models)
        assert len(done.failures) == 2
        assert all("memory" in failure.reason for failure in done.failures)
        assert done.unfinished == 0
        assert done.new_bricks == done.bricks - 2
        estimate = bench.predict(models[0])
        assert isinstance(estimate, IncompleteEstimate)
        assert {gap.brick for gap in estimate.gaps} == {f.key for f in done.failures}
        assert estimate.coverage == pytest.approx(3 / 5)
        assert bench.predict(models[1]).coverage == 1.0
        assert bench.measure(models).new_bricks == 0


@pytest.mark.slow
def test_a_worker_that_is_killed_from_outside_is_replaced(tmp_path: Path) -> None:
    killed = []
    others = set(children())  # what earlier tests have left running

    def worker() -> psutil.Process:
        (found,) = set(children()) - others
        return found

    def kill_once(what: str, share: float) -> None:
        if what.endswith(" of chain") and share > 0.4 and not killed:
            killed.append(worker())
            killed[0].kill()

    path = save(chain("Relu", "Sigmoid", "Tanh", "Exp"), tmp_path, "chain.onnx")
    with Bench(tmp_path / "cache", threads=1, conditions=QUICK, progress=kill_once) as bench:
        done = bench.measure([bench.read(path)])
        assert killed
        assert worker() not in killed
    assert (done.failures, done.unfinished) == ((), 0)
    assert done.new_bricks == done.bricks


def test_a_version_without_a_shared_pool_is_refused_in_one_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(onnxruntime, "set_global_thread_pool_sizes")
    with refused(BackendError, "onnxruntime", onnxruntime.__version__, "1.23"):
        create("onnxruntime", threads=1, seed=0)
