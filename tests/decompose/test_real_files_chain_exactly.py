"""What real files hold, one model for each, at three granularities."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from factories import constant, conv_net, mlp, model, node, save, value
from quantising import quantise
from refusals import refused
from tiers import one_in, slow_but
from unusual import MODELS, detections

from bricks import Bench
from bricks.errors import ShapeError
from bricks.measure.conditions import Conditions, StopRule

# Measured in one round: what is of interest is that it can be.
ONCE = Conditions(rule=StopRule(min_rounds=1, max_rounds=1, passes=1), exclusive=False)


@pytest.fixture(
    scope="module", params=slow_but(lambda cut: cut == "executed", ["executed", "1", "3"])
)
def bench(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator:
    folder = tmp_path_factory.mktemp("cache")
    with Bench(folder, granularity=request.param, threads=1, conditions=ONCE) as made:
        yield made


def chains(bench: Bench, path: Path, **options: object) -> None:
    """Assert that a model's bricks give what the model gives, and that each is measured."""
    read = bench.read(path, **options)
    verified = bench.verify(read)
    assert verified.own_weights
    assert verified.difference.finite
    assert verified.difference.within_tolerance
    assert verified.exact or bench.workspace.options.granularity != "executed"
    done = bench.measure([read])
    assert [f.reason for f in done.failures] == []
    assert bench.predict(read, measure=False).coverage == 1.0


@pytest.mark.parametrize("make", one_in(5, MODELS), ids=lambda make: make.__name__)
def test_models_with_what_real_files_hold(
    bench: Bench, make: Callable[[], onnx.ModelProto], tmp_path: Path
) -> None:
    chains(bench, save(make(), tmp_path, f"{make.__name__}.onnx"))


@pytest.mark.parametrize("opset", one_in(7, range(7, 27)))
def test_every_opset_that_the_runtime_takes(bench: Bench, opset: int, tmp_path: Path) -> None:
    chains(bench, save(conv_net(blocks=1, opset=opset), tmp_path))


@pytest.mark.parametrize("form", ["dynamic", "QDQ", "QOperator"])
def test_quantised_models(bench: Bench, form: str, tmp_path: Path) -> None:
    source = save(conv_net(blocks=1, opset=17), tmp_path, "source.onnx")
    path = tmp_path / f"{form}.onnx"
    quantise(source, path, form)
    held = {n.op_type for n in onnx.load(path).graph.node}
    expected = {"dynamic": "ConvInteger", "QDQ": "DequantizeLinear", "QOperator": "QLinearConv"}
    assert expected[form] in held
    chains(bench, path)


def test_open_dimensions_of_several_inputs_and_outputs(bench: Bench, tmp_path: Path) -> None:
    nodes = [
        node("Add", ["a", "b"], ["s"]),
        node("Concat", ["s", "c"], ["y"], axis=1),
        node("ReduceMean", ["y"], ["m"], axes=[1]),
    ]
    inputs = [value("a", ["n", "t"]), value("b", ["n", None]), value("c", ["n", "u"])]
    outputs = [value("y", ["n", "v"]), value("m", ["n", 1]), value("s", ["n", "t"])]
    path = save(model(nodes, inputs, outputs), tmp_path)
    chains(bench, path, batch=3, shapes={"a": (3, 4), "b": (3, 4), "c": (3, 2)})


def test_weights_in_several_files(bench: Bench, tmp_path: Path) -> None:
    path = save(mlp(), tmp_path, external="weights.bin")
    proto = onnx.load(path, load_external_data=False)
    data = (tmp_path / "weights.bin").read_bytes()
    for number, tensor in enumerate(proto.graph.initializer):
        entries = {e.key: e.value for e in tensor.external_data}
        begin = int(entries.get("offset", "0"))
        name = f"part{number}.bin"
        (tmp_path / name).write_bytes(data[begin : begin + int(entries["length"])])
        del tensor.external_data[:]
        tensor.external_data.add(key="location", value=name)
    (tmp_path / "weights.bin").unlink()
    path.write_bytes(proto.SerializeToString())
    chains(bench, path)


def test_a_model_of_more_than_2_gib(bench: Bench, tmp_path: Path) -> None:
    rows, columns = 200_000, 3_000
    path = save(mlp(widths=(4, 4)), tmp_path)
    table = onnx.TensorProto(name="table", data_type=onnx.TensorProto.FLOAT, dims=(rows, columns))
    table.data_location = onnx.TensorProto.EXTERNAL
    table.external_data.add(key="location", value="table.bin")
    with (tmp_path / "table.bin").open("wb") as file:
        file.truncate(rows * columns * 4)  # a hole: it takes no room
    nodes = [node("Gather", ["table", "ids"], ["e"]), node("Relu", ["e"], ["y"])]
    proto = model(nodes, [value("ids", [2], "INT64")], [value("y", [2, columns])], [table])
    path.write_bytes(proto.SerializeToString())
    decomposed = bench.decompose(bench.read(path))
    assert decomposed.weight_bytes == 2_400_000_000
    assert [b.operators for b in decomposed.bricks.values()][-1][-1] == "Relu"


def test_what_depends_on_data_is_said(bench: Bench, tmp_path: Path) -> None:
    plan = bench.decompose(bench.read(save(detections(), tmp_path, "detections.onnx"))).plan
    assert len(plan.assumed) == 1
    assert plan.assumed[0].startswith("NonMaxSuppression 'NonMaxSuppression_kept' gives 'kept'")
    found = re.search(r"int64\[(\d+),3\], as on synthetic data$", plan.assumed[0])
    assert found
    assert int(found[1]) > 0, "nothing realistic would follow from no boxes at all"


def test_values_that_are_given_decide_what_is_run(bench: Bench, tmp_path: Path) -> None:
    def taken(choice: bool) -> tuple[str, set[str]]:
        then = onnx.helper.make_graph([node("Tanh", ["x"], ["t"])], "then", [], [value("t", [4])])
        other = onnx.helper.make_graph([node("Neg", ["x"], ["t"])], "else", [], [value("t", [4])])
        nodes = [
            node("If", ["choice"], ["a"], then_branch=then, else_branch=other),
            node("Reshape", ["a", "shape"], ["y"]),
        ]
        inputs = [value("x", [4]), value("choice", [], "BOOL"), value("shape", [2], "INT64")]
        path = save(model(nodes, inputs, [value("y", None)]), tmp_path)
        values = {"choice": np.array(choice), "shape": np.array([2, 2])}
        read = bench.read(path, values=values)
        decomposed = bench.decompose(read)
        assert decomposed.plan.types[decomposed.plan.outputs[0]].shape == (2, 2)
        assert bench.measure([read]).failures == ()
        return read.digest, {k for k, b in decomposed.bricks.items() if "If" in b.operators}

    (digest, bricks), (other_digest, other_bricks) = taken(True), taken(False)
    assert digest != other_digest
    assert bricks
    assert bricks.isdisjoint(other_bricks)


def test_a_value_that_does_not_fit_is_refused(bench: Bench, tmp_path: Path) -> None:
    path = save(mlp(), tmp_path)
    for values, named in (
        ({"z": np.zeros(3, np.float32)}, ("z", "x")),
        ({"x": np.zeros((1, 32))}, ("x", "float64", "float")),
        ({"x": [1.0]}, ("x", "list", "float")),
        ({"x": np.zeros((1, 5), np.float32)}, ("x", 1, 32)),
    ):
        with refused(ShapeError, path.name, *named):
            bench.read(path, values=values)


def test_constants_may_be_results(bench: Bench, tmp_path: Path) -> None:
    proto = model([], [value("x", [2])], [value("x", [2]), value("k", [2])],
                  [constant("k", [1, 2])])  # fmt: skip
    proto.graph.output[1].type.tensor_type.elem_type = onnx.TensorProto.INT64
    plan = bench.decompose(bench.read(save(proto, tmp_path))).plan
    assert plan.occurrences == ()
