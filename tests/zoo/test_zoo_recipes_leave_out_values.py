"""What recipes share, on graphs of a few nodes: the exporters themselves are not needed here."""

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from refusals import refused

RECIPES = Path(__file__).parents[2] / "models" / "recipes"


@pytest.fixture(scope="module")
def recipes() -> Iterator[dict[str, ModuleType]]:
    names = ("zoo_files", "onnx_light")
    sys.path.insert(0, str(RECIPES))
    yield {name: importlib.import_module(name) for name in names}
    sys.path.remove(str(RECIPES))
    for name in names:
        del sys.modules[name]


@pytest.fixture
def files(recipes: dict[str, ModuleType]) -> ModuleType:
    return recipes["zoo_files"]


@pytest.fixture
def light(recipes: dict[str, ModuleType]) -> ModuleType:
    return recipes["onnx_light"]


def model_of(
    nodes: list[onnx.NodeProto], constants: dict[str, np.ndarray[Any, Any]], *, columns: int = 12
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, columns])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])


def reshaping(*target: int) -> onnx.ModelProto:
    node = helper.make_node("Reshape", ["x", "target"], ["y"])
    return model_of([node], {"target": np.array(target, np.int64)})


def by_name(model: onnx.ModelProto) -> dict[str, onnx.TensorProto]:
    return {tensor.name: tensor for tensor in model.graph.initializer}


def test_weights_become_places_without_gaps_and_the_rest_stays(files: ModuleType) -> None:
    constants = {
        "a": np.ones((3, 7), np.float32),
        "epsilon": np.array(1e-5, np.float32),
        "half": np.ones(20, np.float16),
        "index": np.arange(100),
        "b": np.ones(17, np.float32),
    }
    model = model_of([], constants)
    files.leave_out_values(model, "small.weights")
    tensors = by_name(model)
    places = {
        name: {item.key: item.value for item in tensor.external_data}
        for name, tensor in tensors.items()
        if tensor.data_location == TensorProto.EXTERNAL
    }
    assert {name: (p["offset"], p["length"]) for name, p in places.items()} == {
        "a": ("0", "84"),
        "half": ("84", "40"),
        "b": ("124", "68"),
    }
    assert {p["location"] for p in places.values()} == {"small.weights"}
    for name in places:
        assert not tensors[name].raw_data
        assert tuple(tensors[name].dims) == constants[name].shape
    for name in ("epsilon", "index"):
        assert np.array_equal(numpy_helper.to_array(tensors[name]), constants[name])


def test_only_large_equal_constants_are_kept_once(files: ModuleType) -> None:
    table = np.arange(1000)
    constants = {
        "first": table,
        "again": table,
        "other": table[::-1].copy(),
        "bent": table.reshape(10, 100),  # the same bytes, but not the same value
        "small": np.arange(3),
        "small too": np.arange(3),
    }
    nodes = [helper.make_node("Sum", list(constants), ["y"])]
    model = model_of(nodes, constants)
    files.keep_equal_constants_once(model)
    assert list(by_name(model)) == ["first", "other", "bent", "small", "small too"]
    assert list(model.graph.node[0].input) == [
        *("first", "first", "other", "bent", "small", "small too")
    ]


def test_weights_whose_values_are_left_out_are_never_taken_for_equal(files: ModuleType) -> None:
    model = model_of([], {name: np.ones((64, 64), np.float32) for name in ("a", "b")})
    files.leave_out_values(model, "small.weights")
    files.keep_equal_constants_once(model)
    assert list(by_name(model)) == ["a", "b"]


def test_exporters_notes_are_gone_even_the_empty_ones(files: ModuleType) -> None:
    bare = model_of([helper.make_node("Relu", ["x"], ["y"])], {"unused": np.arange(2)})
    noted = onnx.ModelProto()
    noted.CopyFrom(bare)
    graph = noted.graph
    graph.value_info.add(name="x")
    for part in (noted, graph, graph.node[0], graph.input[0], graph.initializer[0]):
        part.doc_string = ""  # set, though empty: two bytes
        part.metadata_props.add(key="stack_trace", value="a path of somebody's machine")
    files.leave_out_notes(noted)
    assert noted.SerializeToString() == bare.SerializeToString()


def small(files: ModuleType, name: str = "small", **fields: Any) -> Any:
    model = model_of([], {"w": np.ones((3, 7), np.float32), "index": np.arange(9)})
    given = {"version": 2, "task": "a task", "family": "a family", "framework": "none"}
    given |= {"source": "a test", "recipe": "none_here", "build": lambda: model}
    return files.Shipped(name=name, **(given | fields))


def test_an_entry_says_what_was_written(files: ModuleType, tmp_path: Path) -> None:
    entry = files.write(tmp_path, small(files))
    assert entry["inputs"] == {"x": ["FLOAT", [1, 12]]}
    assert (entry["parameters"], entry["version"], entry["recipe"]) == (21, 2, "none_here")
    assert json.loads((tmp_path / "small.json").read_text()) == entry
    assert onnx.load(str(tmp_path / "small.onnx")).graph.input[0].name == "x"


def test_a_network_that_cannot_be_built_does_not_stop_the_others(
    files: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build() -> onnx.ModelProto:
        raise AttributeError("no conversion for this operator")

    monkeypatch.setattr(sys, "argv", ["recipe", "--out", str(tmp_path)])
    files.main("A recipe.", [small(files, "bad", build=build), small(files, "good")])
    assert json.loads((tmp_path / "bad.json").read_text()) == {
        "name": "bad",
        "error": "AttributeError: no conversion for this operator",
    }
    assert sorted(p.name for p in tmp_path.iterdir()) == ["bad.json", "good.json", "good.onnx"]


@pytest.mark.parametrize(("target", "opened"), [((1, 3, 4), (0, 3, 4)), ((0, 12), (0, 12))])
def test_a_reshape_to_a_batch_of_one_copies_the_batch(
    light: ModuleType, target: tuple[int, ...], opened: tuple[int, ...]
) -> None:
    model = reshaping(*target)
    light.open_batch(model)
    assert numpy_helper.to_array(by_name(model)["target"]).tolist() == list(opened)
    light.check_batch(model)


def test_a_reshape_of_a_weight_is_left_alone(light: ModuleType) -> None:
    nodes = [
        helper.make_node("Reshape", ["w", "target"], ["v"]),
        helper.make_node("Add", ["x", "v"], ["y"]),
    ]
    constants = {"w": np.ones((3, 4), np.float32), "target": np.array([1, 12])}
    model = model_of(nodes, constants)
    light.open_batch(model)
    assert numpy_helper.to_array(by_name(model)["target"]).tolist() == [1, 12]
    light.check_batch(model)


@pytest.mark.parametrize("target", [(1, 12), (4, 3), (0, 12)])
def test_what_does_not_carry_the_batch_is_refused(
    light: ModuleType, target: tuple[int, ...]
) -> None:
    if target[0]:  # the batch is fixed by the Reshape itself
        model = reshaping(*target)
    else:  # or a dimension is copied that is not the batch
        nodes = [
            helper.make_node("Transpose", ["x"], ["t"], perm=[1, 0]),
            helper.make_node("Reshape", ["t", "target"], ["y"]),
        ]
        model = model_of(nodes, {"target": np.array([0, 1])})
    with refused(ValueError, "small", "y" if target[0] else "t"):
        light.check_batch(model)
