from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import mxnet_environment
import numpy as np
import pytest
from factories import model, node, save, value
from tiers import one_in, slow_but

from bricks import Bench, Estimate, WorkerError
from bricks.graph.model_metadata import noted_signs
from bricks.graph.view import parse_model
from bricks.measure.worker.verify import within_tolerance
from bricks.zoo import entries

# Of each task some, with fusions of each kind; `make zoo-check` takes all.
NAMES = (
    *("gluon_squeezenet11", "gluon_mobilenetv2_05", "gluon_cifar_resnet20_v1", "gluon_fastscnn"),
    *("gluon_mobile_pose_mobilenetv3_small", "mx_face_landmarks", "mx_espcn", "mx_cyclegan_6"),
)
TOLERANCE = 1e-3


@pytest.fixture(scope="module")
def python() -> Path:
    return mxnet_environment.python()


@pytest.fixture(scope="module", params=["mxnet", "mxnet-unfused"])
def runtime(request: pytest.FixtureRequest, python: Path) -> str:
    return str(request.param)


def test_operators_compute_what_onnx_says_or_are_refused(python: Path) -> None:
    found = json.loads(mxnet_environment.run(python, "mxnet_cases.py").splitlines()[-1])
    assert found["wrong"] == {}
    assert len(found["right"]) > 250
    assert all(found["refused"].values()), "each refusal has its reason"
    text = found["refused"]["test_maxpool_2d_dilations"]
    assert text.startswith("MXNet cannot run MaxPool 'y': ")
    assert text.endswith("; choose --runtime onnxruntime")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.slow
def test_whole_models_agree(python: Path, runtime: str, name: str, tmp_path: Path) -> None:
    with Bench(tmp_path / "cache") as bench:
        (tmp_path / "model.onnx").write_bytes(bench.read(name).skeleton)
    outputs = []
    for interpreter, on in ((Path(sys.executable), "onnxruntime"), (python, runtime)):
        archive = tmp_path / f"{on}.npz"
        arguments = (on, tmp_path / "model.onnx", archive)
        mxnet_environment.run(interpreter, "evaluating.py", *arguments)
        with np.load(archive) as arrays:
            outputs.append([arrays[key] for key in arrays.files])
    for expected, actual in zip(*outputs, strict=True):
        assert expected.shape == actual.shape
        assert np.isfinite(expected).all()
        assert np.abs(expected - actual).max() <= TOLERANCE * np.abs(expected).max()


@pytest.fixture(
    scope="module", params=slow_but(lambda cut: cut == "executed", ["executed", "1", "4", "2+1"])
)
def bench(
    request: pytest.FixtureRequest, runtime: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Bench]:
    cache = tmp_path_factory.mktemp("cache")
    with Bench(cache, runtime=runtime, granularity=request.param, threads=1) as made:
        yield made


@pytest.mark.parametrize(
    "name",
    one_in(
        4, ["gluon_squeezenet11", "gluon_mobilenetv2_05", "gluon_cifar_resnet20_v1", "mx_espcn"]
    ),
)
def test_bricks_chained_equal_the_model(bench: Bench, name: str) -> None:
    result = bench.verify(bench.read(name))
    assert result["finite"]
    assert result["max_rel_difference"] <= TOLERANCE
    assert within_tolerance(result)


def test_fused_nodes_are_one_brick(python: Path, tmp_path: Path) -> None:
    plans = {}
    for runtime in ("mxnet", "mxnet-unfused"):
        with Bench(tmp_path, runtime=runtime, threads=1) as bench:
            plans[runtime] = bench.decompose(bench.read("gluon_cifar_resnet20_v1")).plan
    fused, plain = plans["mxnet"], plans["mxnet-unfused"]
    assert fused.nodes == plain.nodes == len(plain.occurrences)
    assert max(occurrence.nodes for occurrence in fused.occurrences) >= 3  # what a ReLU ends
    assert len(fused.occurrences) < 0.6 * fused.nodes


def test_bricks_are_measured_once(runtime: str, tmp_path: Path) -> None:
    with Bench(tmp_path, runtime=runtime, threads=1) as bench:
        model = bench.read("gluon_cifar_resnet20_v1")
        first = bench.measure([model])
        assert first.new_bricks == first.bricks > 0
        assert not first.failures
        assert bench.measure([model]).new_bricks == 0
        estimate = bench.predict(model)
        assert isinstance(estimate, Estimate)
        assert 0 < estimate.low_s <= estimate.estimate_s <= estimate.high_s


@pytest.mark.parametrize("operator", ["Erf", "Tanh"])
def test_functions_that_branch_on_sizes_are_bricks_of_their_own_for_each_size(
    operator: str, python: Path, tmp_path: Path
) -> None:
    """Three times of four the same size: of these there is one brick."""
    names = [f"x{doubled}" for doubled in range(4)]
    nodes = [node("Add", [a, a], [b]) for a, b in pairwise(names)]
    nodes += [node(operator, [name], [f"{name}_out"]) for name in ("x1", "x1", "x1", "x3")]
    for number, each in enumerate(nodes[3:]):
        each.output[0] += str(number)
    outputs = [value(each.output[0], [8, 64]) for each in nodes[3:]]
    proto = model(nodes, [value("x0", [8, 64])], outputs)
    with Bench(tmp_path / "cache", runtime="mxnet", threads=1) as bench:
        sizes = bench.read(save(proto, tmp_path, "sizes.onnx"))
        made = bench.decompose(sizes)
        found = {
            key: noted_signs(parse_model(brick.model))["i0"].log_size
            for key, brick in made.bricks.items()
            if brick.operators == (operator,)
        }
        places = Counter(each.brick for each in made.plan.occurrences if each.brick in found)
        assert sorted(places.values()) == [1, 3]
        once, often = sorted(found, key=lambda key: places[key])
        assert found[once] == (found[often] or 0) + 2
        assert bench.verify(sizes)["exact"]
        assert not bench.measure([sizes]).failures


def test_a_function_of_the_models_input_has_the_size_of_that(python: Path, tmp_path: Path) -> None:
    proto = model([node("Erf", ["x"], ["y"])], [value("x", [8, 64])], [value("y", [8, 64])])
    with Bench(tmp_path / "cache", runtime="mxnet", threads=1) as bench:
        made = bench.decompose(bench.read(save(proto, tmp_path, "input.onnx")))
    (brick,) = made.bricks.values()
    (pattern,) = noted_signs(parse_model(brick.model)).values()
    assert pattern.log_size is not None


def test_what_mxnet_lacks_is_refused_by_name(python: Path, tmp_path: Path) -> None:
    with (
        Bench(tmp_path, runtime="mxnet", threads=1) as bench,
        pytest.raises(WorkerError, match=r"bert_mini: .*; choose --runtime onnxruntime"),
    ):
        bench.decompose(bench.read("bert_mini"))


def test_fifty_and_more_models_come_from_mxnet() -> None:
    assert sum(entry.framework == "mxnet" for entry in entries()) >= 50
