"""A model that the runtime loads as it is must not be refused once its sizes are known."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from factories import constant, model, node, save, value
from onnx import helper
from onnxruntime.capi.onnxruntime_pybind11_state import Fail
from refusals import refused

from bricks import Bench, Conditions, Estimate, StopRule, WorkerError

ONCE = Conditions(rule=StopRule(min_rounds=1, max_rounds=1, passes=1), exclusive=False)


def branch(name: str, *nodes: onnx.NodeProto) -> onnx.GraphProto:
    return helper.make_graph(list(nodes), name, [], [value("r", None)])


def squeezed_if_single() -> onnx.ModelProto:
    """Squeezes rows only where a rate says so; else each row is kept.

    With two rows, the branch that is not taken is a contradiction: the runtime says so only if it
    is told the size.
    """
    nodes = [
        node("Mul", ["x", "two"], ["m"]),
        node("Equal", ["rate", "slow"], ["is_slow"]),
        node(
            "If",
            ["is_slow"],
            ["y"],
            then_branch=branch("then", node("Squeeze", ["m", "axis"], ["r"])),
            else_branch=branch("else", node("MatMul", ["m", "w"], ["r"])),
        ),
        node("Relu", ["y"], ["z"]),
    ]
    rng = np.random.default_rng(0)
    initializers = [
        constant("two", 2.0, "FLOAT"),
        constant("slow", 8000),
        constant("axis", [0]),
        constant("w", rng.standard_normal((16, 16)), "FLOAT"),
    ]
    inputs = [value("x", ["?", "?"]), value("rate", [], "INT64")]
    return model(nodes, inputs, [value("z", None)], initializers)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with Bench(tmp_path_factory.mktemp("cache"), threads=1, conditions=ONCE) as opened:
        yield opened


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return save(squeezed_if_single(), tmp_path)


def test_the_runtime_refuses_these_sizes_if_stated(path: Path) -> None:
    proto = onnx.load(path)
    onnxruntime.InferenceSession(proto.SerializeToString())
    del proto.graph.input[0].type.tensor_type.shape.dim[:]
    for size in (2, 16):
        proto.graph.input[0].type.tensor_type.shape.dim.add(dim_value=size)
    with pytest.raises(Fail) as caught:
        onnxruntime.InferenceSession(proto.SerializeToString())
    assert "Squeeze" in str(caught.value)


def test_fewer_sizes_are_stated_and_the_plan_says_so(bench: Bench, path: Path) -> None:
    read = bench.read(path, shapes={"x": (2, 16)}, values={"rate": np.array(16000)})
    made = bench.decompose(read)
    assert [o.nodes for o in made.plan.occurrences] == [1] * len(made.plan.occurrences)
    assert any("refuses the shapes of inputs 'x'" in line for line in made.plan.assumed)
    assert bench.verify(read).exact
    assert isinstance(bench.predict(read), Estimate)
    assert bench.compare([read]).rows[0].ratio > 0


def test_accepted_sizes_are_stated(bench: Bench, path: Path) -> None:
    read = bench.read(path, shapes={"x": (1, 16)}, values={"rate": np.array(16000)})
    assert not any("refuses" in line for line in bench.decompose(read).plan.assumed)
    assert bench.verify(read).exact


def test_a_model_that_cannot_run_is_still_refused(bench: Bench, path: Path) -> None:
    read = bench.read(path, shapes={"x": (2, 7)}, values={"rate": np.array(16000)})
    with refused(WorkerError, "model", "onnxruntime", "MatMul"):
        bench.decompose(read)


def test_a_failure_on_a_synthetic_value_names_it(bench: Bench, path: Path, tmp_path: Path) -> None:
    proto = onnx.load(path)
    proto.graph.initializer[1].CopyFrom(constant("slow", 1))  # what the made up rate may be
    read = bench.read(save(proto, tmp_path, "slow.onnx"), shapes={"x": (2, 16)})
    with refused(WorkerError, "slow", "onnxruntime", "Squeeze", "rate", "--value"):
        bench.decompose(read)
