from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import mxnet_environment
import numpy as np
import onnx
import pytest
import runtime_environments
from factories import constant, conv_net, model, node, save, value
from refusals import refused

from bricks import Bench, WorkerError, backends
from bricks.graph.model_metadata import noted_sketches
from bricks.graph.view import parse_model
from bricks.zoo import entries

# Of each task some, with fusions of each kind; `make zoo-check` takes all.
NAMES = (
    *("gluon_squeezenet11", "gluon_mobilenetv2_05", "gluon_cifar_resnet20_v1", "gluon_fastscnn"),
    *("gluon_mobile_pose_mobilenetv3_small", "mx_face_landmarks", "mx_espcn", "mx_cyclegan_6"),
)
CHAINED = ("gluon_squeezenet11", "gluon_mobilenetv2_05", "gluon_cifar_resnet20_v1", "mx_espcn")
TOLERANCE = 1e-3


@pytest.fixture(scope="module")
def python() -> Path:
    return mxnet_environment.python()


@pytest.fixture(scope="module", params=["mxnet", "mxnet-unfused"])
def runtime(request: pytest.FixtureRequest, python: Path) -> str:
    return str(request.param)


@pytest.mark.slow
def test_operators_compute_what_onnx_says_or_are_refused(python: Path) -> None:
    found = json.loads(runtime_environments.run(python, "mxnet_cases.py").splitlines()[-1])
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
        arguments = (on, tmp_path / "model.onnx", archive, backends.location(on))
        runtime_environments.run(interpreter, "evaluating.py", *arguments)
        with np.load(archive) as arrays:
            outputs.append([arrays[key] for key in arrays.files])
    for expected, actual in zip(*outputs, strict=True):
        assert expected.shape == actual.shape
        assert np.isfinite(expected).all()
        assert np.abs(expected - actual).max() <= TOLERANCE * np.abs(expected).max()


@pytest.fixture(scope="module")
def fused(python: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with Bench(tmp_path_factory.mktemp("fused"), runtime="mxnet", threads=1) as made:
        yield made


@pytest.mark.slow
@pytest.mark.parametrize("cut", ["executed", "1", "4", "2+1"])
def test_bricks_chained_equal_the_model(runtime: str, cut: str, tmp_path: Path) -> None:
    with Bench(tmp_path / "cache", runtime=runtime, granularity=cut, threads=1) as bench:
        for name in CHAINED:
            result = bench.verify(bench.read(name))
            assert result.difference.finite, name
            assert result.difference.max_rel <= TOLERANCE, name
            assert result.difference.within_tolerance, name


def test_fused_nodes_are_one_brick(fused: Bench, tmp_path: Path) -> None:
    path = save(conv_net(), tmp_path)
    plan = fused.decompose(fused.read(path)).plan
    assert max(occurrence.nodes for occurrence in plan.occurrences) >= 3  # what a ReLU ends
    assert len(plan.occurrences) < 0.6 * plan.nodes
    with Bench(tmp_path / "cache", runtime="mxnet-unfused", threads=1) as bench:
        plain = bench.decompose(bench.read(path)).plan
    assert plan.nodes == plain.nodes == len(plain.occurrences)


def test_weights_that_a_model_holds_are_the_same_after_a_run(python: Path, tmp_path: Path) -> None:
    """Few enough to stay in the skeleton, whose bytes the whole model and its bricks share."""
    weights = constant("w", np.random.default_rng(0).standard_normal((8, 3, 3, 3)), "FLOAT")
    x, y = value("x", [1, 3, 8, 8]), value("y", [1, 8, 6, 6])
    path = save(model([node("Conv", ["x", "w"], ["y"])], [x], [y], [weights]), tmp_path)
    with Bench(tmp_path / "cache", runtime="mxnet-unfused", threads=1) as bench:
        assert bench.verify(bench.read(path)).exact


@pytest.mark.parametrize("operator", ["Erf", "Tanh"])
def test_functions_that_branch_on_sizes_are_bricks_of_their_own_for_each_size(
    operator: str, fused: Bench, tmp_path: Path
) -> None:
    """Three times of four the same size: of these there is one brick."""
    sizes = fused.read(save(doubling(operator), tmp_path, "sizes.onnx"))
    made = fused.decompose(sizes)
    found = {
        key: noted_sketches(parse_model(brick.model))["i0"].log_size
        for key, brick in made.bricks.items()
        if brick.operators == (operator,)
    }
    places = Counter(each.brick for each in made.plan.occurrences if each.brick in found)
    assert sorted(places.values()) == [1, 3]
    once, often = sorted(found, key=lambda key: places[key])
    assert found[once] == (found[often] or 0) + 2
    assert fused.verify(sizes).exact


@pytest.mark.slow
def test_functions_that_branch_on_sizes_are_measured(fused: Bench, tmp_path: Path) -> None:
    measured = fused.measure([fused.read(save(doubling("Erf"), tmp_path, "sizes.onnx"))])
    assert (measured.failures, measured.unfinished) == ((), 0)


def doubling(operator: str) -> onnx.ModelProto:
    """A function of values that are doubled: three times of twice the input, once of eight."""
    names = [f"x{doubled}" for doubled in range(4)]
    nodes = [node("Add", [a, a], [b]) for a, b in pairwise(names)]
    nodes += [node(operator, [name], [f"{name}_out"]) for name in ("x1", "x1", "x1", "x3")]
    for number, each in enumerate(nodes[3:]):
        each.output[0] += str(number)
    outputs = [value(each.output[0], [8, 64]) for each in nodes[3:]]
    return model(nodes, [value("x0", [8, 64])], outputs)


def test_a_function_of_the_models_input_has_its_size(fused: Bench, tmp_path: Path) -> None:
    proto = model([node("Erf", ["x"], ["y"])], [value("x", [8, 64])], [value("y", [8, 64])])
    made = fused.decompose(fused.read(save(proto, tmp_path, "input.onnx")))
    (brick,) = made.bricks.values()
    (pattern,) = noted_sketches(parse_model(brick.model)).values()
    assert pattern.log_size is not None


def test_an_operator_without_counterpart_is_refused_by_name(fused: Bench, tmp_path: Path) -> None:
    x, y = value("x", [8, 64]), value("y", [8, 8])
    proto = model([node("Einsum", ["x", "x"], ["y"], equation="ij,kj->ik")], [x], [y])
    lacking = fused.read(save(proto, tmp_path, "lacking.onnx"))
    with refused(WorkerError, "lacking", "Einsum", "MXNet", "--runtime onnxruntime"):
        fused.decompose(lacking)


def test_models_that_come_from_mxnet_say_so_and_are_there() -> None:
    found = [entry for entry in entries() if entry.framework == "mxnet"]
    assert len(found) >= 50
    for entry in found:
        assert entry.name.startswith(("gluon_", "mx_")), entry.name
        assert entry.recipe.startswith("mxnet"), entry.name
        assert entry.path.is_file(), f"{entry.name} is not shipped"
