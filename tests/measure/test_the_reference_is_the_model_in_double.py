from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from factories import conv_net, model, node, one_node, save, value
from onnx import TensorProto, helper
from refusals import refused

from bricks.errors import BackendError
from bricks.graph.input_values import ReferenceValues
from bricks.measure.worker.double_model import in_double
from bricks.measure.worker.evaluation import ValueDeviation, first_divergent, relative_error
from bricks.measure.worker.outputs import Runs, outputs_in
from bricks.measure.worker.reference import ModelData, model_data, write_reference
from bricks.reading.read import read_model


def data_of(proto: onnx.ModelProto, folder: Path) -> ModelData:
    return model_data(read_model(save(proto, folder)), 0)


def reference(proto: onnx.ModelProto, folder: Path, *, every: bool = False) -> ReferenceValues:
    assert write_reference(data_of(proto, folder), folder / "file.npz", every=every) is None
    return ReferenceValues.load(folder / "file.npz")


def test_a_product_in_double_is_numpys(tmp_path: Path) -> None:
    proto = one_node("MatMul", [value("a", [3, 5]), value("b", [5, 2])], [value("y", [3, 2])])
    found = reference(proto, tmp_path)
    a, b = (found.inputs[name].astype(np.float64) for name in "ab")
    assert found.inputs["a"].dtype == np.float32
    assert found.values["y"].dtype == np.float64
    np.testing.assert_allclose(found.values["y"], a @ b, rtol=1e-15)


def test_own_weights_are_those_of_the_file(tmp_path: Path) -> None:
    proto = conv_net()
    found = reference(proto, tmp_path)
    weights = {each.name: onnx.numpy_helper.to_array(each) for each in proto.graph.initializer}
    assert set(found.weights) == {"conv1.w", "conv2.w", "conv3.w"}  # smaller ones stay in the graph
    for name, array in found.weights.items():
        np.testing.assert_array_equal(array, weights[name])


def test_the_values_of_all_nodes_are_kept_in_their_order(tmp_path: Path) -> None:
    proto = conv_net(blocks=1)
    found = reference(proto, tmp_path, every=True)
    assert list(found.values) == [name for node in proto.graph.node for name in node.output]
    assert {array.dtype for array in found.values.values()} == {np.dtype(np.float64)}


def test_casts_and_constants_are_widened_and_whole_numbers_stay() -> None:
    fill = helper.make_tensor("fill", TensorProto.FLOAT, [1], [0.5])
    nodes = [
        node("Cast", ["x"], ["half"], to=TensorProto.FLOAT16),
        node("Cast", ["half"], ["whole"], to=TensorProto.INT64),
        node("ConstantOfShape", ["whole"], ["y"], value=fill),
    ]
    proto = model(nodes, [value("x", [2])], [value("y", [None, None])])
    wide = in_double(proto)
    to = [attribute.i for each in wide.graph.node[:2] for attribute in each.attribute]
    assert to == [TensorProto.DOUBLE, TensorProto.INT64]
    assert wide.graph.node[2].attribute[0].t.data_type == TensorProto.DOUBLE
    assert wide.graph.input[0].type.tensor_type.elem_type == TensorProto.DOUBLE
    assert proto.graph.input[0].type.tensor_type.elem_type == TensorProto.FLOAT


@pytest.mark.parametrize("opset", [7, 11, 17])
def test_nothing_is_dropped_in_inference(tmp_path: Path, opset: int) -> None:
    nodes = [node("Dropout", ["x"], ["kept", "mask"]), node("Relu", ["kept"], ["y"])]
    proto = model(nodes, [value("x", [40])], [value("y", [40])], opset=opset)
    found = reference(proto, tmp_path, every=True)
    np.testing.assert_array_equal(found.values["y"], np.maximum(found.inputs["x"], 0))
    assert list(found.values) == ["kept", "y"]


@pytest.mark.parametrize("operator", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize(("opset", "axis"), [(11, None), (11, 2), (13, 1)])
def test_softmax_is_that_of_its_version(
    tmp_path: Path, operator: str, opset: int, axis: int | None
) -> None:
    attributes = {} if axis is None else {"axis": axis}
    proto = one_node(
        operator, [value("x", [2, 3, 4])], [value("y", [2, 3, 4])], opset=opset, **attributes
    )
    found = reference(proto, tmp_path)
    powers = np.exp(found.inputs["x"].astype(np.float64))
    summed = (1,) if opset >= 13 else tuple(range(axis or 1, 3))
    right = powers / powers.sum(summed, keepdims=True)
    right = np.log(right) if operator == "LogSoftmax" else right
    np.testing.assert_allclose(found.values["y"], right, rtol=1e-12)


@pytest.mark.parametrize("size", [3, 4])
def test_channels_are_normalised_by_their_neighbours(tmp_path: Path, size: int) -> None:
    shape = [1, 6, 2, 2]
    proto = one_node(
        "LRN", [value("x", shape)], [value("y", shape)], size=size, alpha=0.5, bias=2.0
    )
    found = reference(proto, tmp_path)
    x = found.inputs["x"].astype(np.float64)
    for channel in range(6):
        low, high = channel - (size - 1) // 2, channel + size // 2
        squares = (x[:, max(0, low) : high + 1] ** 2).sum(1)
        right = x[:, channel] / (2.0 + 0.5 / size * squares) ** 0.75
        np.testing.assert_allclose(found.values["y"][:, channel], right, rtol=1e-6)


@pytest.mark.parametrize("opset", [9, 14, 17])
def test_batches_are_normalised_by_stored_statistics(tmp_path: Path, opset: int) -> None:
    names = ["scale", "bias", "mean", "var"]
    inputs = [value("x", [4, 2, 3]), *(value(name, [2]) for name in names)]
    proto = one_node("BatchNormalization", inputs, [value("y", [4, 2, 3])], opset=opset)
    found = reference(proto, tmp_path)
    x = found.inputs["x"].astype(np.float64)
    scale, bias, mean, var = (found.inputs[name].astype(np.float64)[:, None] for name in names)
    with np.errstate(invalid="ignore"):  # of a variance below zero, as inputs may be
        right = scale * (x - mean) / np.sqrt(var + 1e-5) + bias
    np.testing.assert_allclose(found.values["y"], right, rtol=1e-6)


def test_elements_are_gathered_by_indices_of_any_shape(tmp_path: Path) -> None:
    inputs = [value("x", [2, 5]), value("i", [1, 3], "INT64")]
    proto = one_node("GatherElements", inputs, [value("y", [1, 3])], axis=1)
    found = reference(proto, tmp_path)
    x, indices = found.inputs["x"], found.inputs["i"]
    np.testing.assert_array_equal(found.values["y"], [x[0, indices[0]].astype(np.float64)])


def recurrent(operator: str, gates: int, **attributes: object) -> onnx.ModelProto:
    weight = [1, gates * 3, 3]
    return one_node(
        operator,
        [value("x", [4, 2, 3]), value("w", weight), value("r", weight)],
        [value("y", [4, 1, 2, 3])],
        hidden_size=3,
        **attributes,
    )


def test_a_recurrent_layer_with_a_relu_has_a_reference(tmp_path: Path) -> None:
    found = reference(recurrent("RNN", 1, activations=["Relu"]), tmp_path)
    x, w, r = (found.inputs[name].astype(np.float64) for name in "xwr")
    state, states = np.zeros((2, 3)), []
    for step in x:
        state = np.maximum(step @ w[0].T + state @ r[0].T, 0)
        states.append(state)
    np.testing.assert_allclose(found.values["y"][:, 0], states, rtol=1e-14)


@pytest.mark.parametrize(
    ("proto", "told"),
    [
        (recurrent("GRU", 3, activations=["Sigmoid", "Relu"]), "knows no other activations of GRU"),
        (recurrent("LSTM", 4, clip=1.0), "knows no clip or input_forget of LSTM"),
        (
            one_node("Gelu", [value("x", [2])], [value("y", [2])], domain="com.microsoft"),
            "there is no reference of Gelu 'Gelu_y' of domain com.microsoft",
        ),
        (
            one_node("RandomNormalLike", [value("x", [2])], [value("y", [2])]),
            "RandomNormalLike 'RandomNormalLike_y' draws random numbers",
        ),
        (
            one_node("Identity", [value("x", [2], "BFLOAT16")], [value("y", [2], "BFLOAT16")]),
            "value 'x' is of type BFLOAT16, which the reference does not widen",
        ),
    ],
)
def test_what_the_evaluator_would_compute_otherwise_has_no_reference(
    tmp_path: Path, proto: onnx.ModelProto, told: str
) -> None:
    data = data_of(proto, tmp_path)
    reason = write_reference(data, tmp_path / "file.npz", every=False)
    assert reason is not None
    assert told in reason
    found = ReferenceValues.load(tmp_path / "file.npz")
    assert (dict(found.values), list(found.inputs)) == ({}, list(data.inputs))


def test_inputs_that_are_no_numbers_are_refused(tmp_path: Path) -> None:
    proto = one_node("Identity", [value("x", [2], "STRING")], [value("y", [2], "STRING")])
    with refused(BackendError, "x"):
        write_reference(data_of(proto, tmp_path), tmp_path / "file.npz", every=False)


def test_repeated_runs_are_told_apart_bit_by_bit() -> None:
    runs = Runs()
    for number in (1.0, 1.0, 4.0):
        runs.add({"y": np.array([number, 2.0], np.float32)})
    assert (runs.count, runs.distinct) == (3, 2)
    assert runs.max_variance == pytest.approx(np.var([1, 1, 4]))
    np.testing.assert_allclose(runs.variance("y"), [2, 0])
    np.testing.assert_array_equal(runs.first["y"], [1, 2])


def test_equal_runs_have_no_variance_and_other_shapes_have_none_to_tell() -> None:
    runs = Runs()
    runs.add({"y": np.array([np.inf])})
    runs.add({"y": np.array([np.inf])})
    assert (runs.distinct, runs.max_variance) == (1, 0.0)
    runs.add({"y": np.array([1.0, 2.0])})
    assert (runs.distinct, runs.max_variance) == (2, None)


def chain() -> list[onnx.NodeProto]:
    return [
        node("Add", ["x", "w"], ["a"]),
        node("Mul", ["a", "x"], ["b"]),
        node("Sub", ["b", "a"], ["c"]),
    ]


def test_the_first_node_that_parts_is_the_one_whose_inputs_are_right() -> None:
    good, bad = ValueDeviation(False, 1e-7), ValueDeviation(True, 0.1)
    found = first_divergent(chain(), {"a": good, "b": bad, "c": bad})
    assert found is not None
    assert (found[0].op_type, found[1]) == ("Mul", "b")
    assert first_divergent(chain(), {"a": good, "b": good, "c": good}) is None


def test_how_much_may_differ_depends_on_the_type_unless_it_is_told() -> None:
    expected = np.array([1.0, 2.0])
    near = np.array([1.0, 2.0 + 4e-3])
    assert relative_error(expected, near.astype(np.float32)).beyond
    assert not relative_error(expected, near.astype(np.float16)).beyond
    assert not relative_error(expected, near.astype(np.float32), 0.01).beyond
    assert relative_error(expected, near.astype(np.float32)).relative == pytest.approx(2e-3, 1e-3)
    assert relative_error(np.zeros(2), np.ones(2, np.float32)).beyond


def test_outputs_in_a_file_keep_their_order(tmp_path: Path) -> None:
    np.savez(tmp_path / "file.npz", **{f"value{n}": np.array([n]) for n in range(12)})
    assert [int(array[0]) for array in outputs_in(tmp_path / "file.npz")] == list(range(12))
