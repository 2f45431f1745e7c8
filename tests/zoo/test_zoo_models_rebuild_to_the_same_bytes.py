import hashlib
import importlib.util
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from bricks.zoo import ZooEntry, entries, zoo_folder

MODELS = Path(__file__).parents[2] / "models"
RECIPES = MODELS / "recipes"
ZOO = entries()


@pytest.fixture(scope="module")
def recipe() -> Iterator[ModuleType]:
    name = "zoo_recipe_onnx_light"
    sys.path.insert(0, str(RECIPES))  # what recipes share stands beside them
    spec = importlib.util.spec_from_file_location(name, RECIPES / "onnx_light.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[name]
    sys.path.remove(str(RECIPES))


def dim_values(type_: onnx.TypeProto.Tensor) -> list[int]:
    return [dim.dim_value for dim in type_.shape.dim]


def facts_of_files(entry: dict[str, Any]) -> dict[str, Any]:
    """What recipes know of a model; FLOPs take bricks to find out."""
    return {key: value for key, value in entry.items() if key != "flops"}


@pytest.fixture(scope="module")
def skeletons() -> dict[str, onnx.ModelProto]:
    """All models of the zoo as they are shipped: without the values of their weights."""
    return {entry.name: onnx.load(str(entry.path), load_external_data=False) for entry in ZOO}


def test_rebuilding_gives_the_files_and_the_manifest_that_are_shipped(
    recipe: ModuleType, tmp_path: Path
) -> None:
    models = [recipe.shipped(light) for light in recipe.RECIPES]
    built = {model.name: sys.modules["zoo_files"].write(tmp_path, model) for model in models}
    shipped = {entry.name: entry.to_json() for entry in ZOO}
    assert len(built) == 9
    assert built == {name: facts_of_files(shipped[name]) for name in built}
    for name, item in built.items():
        content = (tmp_path / item["file"]).read_bytes()
        assert hashlib.sha256(content).hexdigest() == shipped[name]["sha256"]
        assert json.loads((tmp_path / f"{name}.json").read_text()) == item


def test_every_file_is_in_the_manifest() -> None:
    assert {path.name for path in MODELS.glob("*.onnx")} == {entry.path.name for entry in ZOO}


def is_what_the_manifest_says(entry: ZooEntry, model: onnx.ModelProto) -> None:
    content = entry.path.read_bytes()
    assert hashlib.sha256(content).hexdigest() == entry.sha256
    assert len(content) <= 600_000
    assert model.ir_version >= 4
    types = {value.name: value.type.tensor_type for value in model.graph.input}
    assert entry.inputs == tuple(
        (name, onnx.TensorProto.DataType.Name(type_.elem_type), tuple(dim_values(type_)))
        for name, type_ in types.items()
    )
    assert {shape[0] for _, _, shape in entry.inputs} == {1}
    assert all(size > 0 for _, _, shape in entry.inputs for size in shape)


def has_nothing_that_its_exporter_noted(entry: ZooEntry, model: onnx.ModelProto) -> None:
    graph = model.graph
    assert model.producer_name == "bricks zoo" and not model.producer_version
    for part in (model, graph, *graph.node, *graph.initializer, *graph.input, *graph.output):
        assert not part.doc_string
        assert not part.metadata_props


def holds_no_large_numbers_in_attributes(entry: ZooEntry, model: onnx.ModelProto) -> None:
    for node in model.graph.node:
        for attribute in node.attribute:
            assert attribute.ByteSize() < 4096, f"{node.name}: {attribute.name}"


def declares_its_weights_and_holds_no_values(entry: ZooEntry, model: onnx.ModelProto) -> None:
    graph = model.graph
    consumed = {name for node in graph.node for name in node.input}
    parameters = 0
    kept = 0 if entry.framework == "caffe2" else 16  # an epsilon is no weight
    for tensor in graph.initializer:
        assert tensor.name in consumed
        assert tensor.data_type not in (onnx.TensorProto.DOUBLE, onnx.TensorProto.FLOAT16)
        size = int(np.prod(tensor.dims))
        if tensor.data_type == onnx.TensorProto.FLOAT and size <= kept:
            parameters += size
        elif tensor.data_type == onnx.TensorProto.FLOAT:
            place = {item.key: item.value for item in tensor.external_data}
            assert tensor.data_location == onnx.TensorProto.EXTERNAL
            assert place["location"] == f"{entry.name}.weights"
            assert not tensor.raw_data and not tensor.float_data
            parameters += size
    assert parameters == entry.parameters
    assert "ConstantOfShape" not in {node.op_type for node in graph.node}


@pytest.mark.parametrize(
    "law",
    [
        is_what_the_manifest_says,
        has_nothing_that_its_exporter_noted,
        holds_no_large_numbers_in_attributes,
        declares_its_weights_and_holds_no_values,
    ],
    ids=lambda law: law.__name__,
)
def test_every_shipped_model(
    law: Callable[[ZooEntry, onnx.ModelProto], None], skeletons: dict[str, onnx.ModelProto]
) -> None:
    for entry in ZOO:
        try:
            law(entry, skeletons[entry.name])
        except AssertionError as exc:
            exc.add_note(f"model {entry.name}")
            raise


def test_a_runtime_runs_a_shipped_model_with_weights_that_are_handed_to_it() -> None:
    path = zoo_folder() / "squeezenet.onnx"
    model = onnx.load(str(path), load_external_data=False)
    declared = [t for t in model.graph.initializer if t.data_type == onnx.TensorProto.FLOAT]
    # The runtime refers to these values without copying them: they must outlive the session.
    values = [
        onnxruntime.OrtValue.ortvalue_from_numpy(np.full(tuple(t.dims), 0.02, np.float32))
        for t in declared
    ]
    options = onnxruntime.SessionOptions()
    options.add_external_initializers([t.name for t in declared], values)
    session = onnxruntime.InferenceSession(
        path.read_bytes(), options, providers=["CPUExecutionProvider"]
    )
    image = np.ones((1, 3, 224, 224), np.float32)
    [output] = session.run(None, {"data_0": image})
    assert output.shape == (1, 1000, 1, 1)
    assert output.sum() == pytest.approx(1.0, abs=1e-3)
