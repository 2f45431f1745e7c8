from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from factories import constant, model, node, value
from refusals import refused

from bricks.errors import ModelError
from bricks.graph.types import TensorType
from bricks.graph.view import graph_of
from bricks.studies.numerics.standard_form import (
    BlockedLayout,
    StandardForm,
    block_of,
    blocked,
    layout_probe,
    standard_form,
)

NCHWC = "com.microsoft.nchwc"
Arrays = Mapping[str, np.ndarray]


def run(proto: onnx.ModelProto, feeds: Arrays, *, optimized: bool = False) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    levels = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = (
        levels.ORT_ENABLE_ALL if optimized else levels.ORT_DISABLE_ALL
    )
    options.log_severity_level = 3
    data = proto.SerializeToString()
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    results: list[np.ndarray] = session.run(None, dict(feeds))
    return results


@pytest.fixture(scope="module")
def block() -> int:
    probe, feeds = layout_probe()
    (output,) = run(probe, feeds)
    return block_of(output)


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def spelled_out(proto: onnx.ModelProto) -> StandardForm:
    found = standard_form(proto)
    assert found is not None
    assert not any(each.domain for each in found.proto.graph.node)
    onnx.checker.check_model(found.proto)
    return found


def agree(
    own: onnx.NodeProto, feeds: Arrays, shape: Sequence[int], block: int, tolerance: float = 2e-5
) -> StandardForm:
    """The runtime's operator and its standard form, on the same data in the layout of each."""
    inputs = [value(name, list(array.shape)) for name, array in feeds.items()]
    outputs = [value(own.output[0], shape)]
    proto = model([own], inputs, outputs, domains=["com.microsoft", NCHWC])
    standard = spelled_out(proto)
    (expected,) = run(standard.proto, feeds)
    given = in_blocks(standard, feeds, block)
    (actual,) = run(proto, given)
    assert actual.shape == expected.shape == tuple(shape)
    of_output = in_blocks(standard, {own.output[0]: expected}, block)[own.output[0]]
    assert np.abs(of_output).max() > 0
    assert np.abs(actual - of_output).max() <= tolerance * np.abs(of_output).max()
    return standard


def in_blocks(of: StandardForm, arrays: Arrays, block: int) -> dict[str, np.ndarray]:
    return {
        name: blocked(array, of.layouts[name], block) if name in of.layouts else array
        for name, array in arrays.items()
    }


def nchwc(op: str, inputs: Sequence[str], **attributes: Any) -> onnx.NodeProto:
    return node(op, inputs, ["y"], domain=NCHWC, **attributes)


@pytest.mark.parametrize(
    ("activation", "parameters"),
    [
        ("", ()), ("Relu", ()), ("Sigmoid", ()), ("Tanh", ()), ("LeakyRelu", (0.3,)),
        ("Clip", (-0.5, 6.0)), ("HardSigmoid", (0.3, 0.4)),
    ],
)  # fmt: skip
def test_a_blocked_convolution_is_one_with_its_sum_and_its_activation(
    activation: str, parameters: Sequence[float], block: int
) -> None:
    fused: dict[str, Any] = {"activation": activation} if activation else {}
    if parameters:
        fused["activation_params"] = list(parameters)
    own = nchwc("Conv", ["x", "w", "b", "z"], pads=[1, 0, 0, 1], strides=[2, 1], **fused)
    feeds = {
        "x": numbers(2, 2 * block, 9, 8), "w": numbers(3 * block, 2 * block, 3, 3),
        "b": numbers(3 * block), "z": numbers(2, 3 * block, 4, 7),
    }  # fmt: skip
    standard = agree(own, feeds, [2, 3 * block, 4, 7], block)
    names = ["Conv", "Add", *([activation] if activation else [])]
    assert [each.op_type for each in standard.proto.graph.node] == names


@pytest.mark.parametrize("kind", ["few channels", "depthwise", "groups", "pointwise", "dilated"])
def test_a_blocked_convolution_of_each_kind_is_the_plain_one(kind: str, block: int) -> None:
    x, w, attributes, size = {
        "few channels": (3, (2 * block, 3, 3, 3), {}, 4),
        "depthwise": (2 * block, (2 * block, 1, 3, 3), {"group": 2 * block}, 4),
        "groups": (2 * block, (4 * block, block, 3, 3), {"group": 2}, 4),
        "pointwise": (2 * block, (block, 2 * block, 1, 1), {}, 6),
        "dilated": (block, (block, block, 3, 3), {"dilations": [2, 2]}, 2),
    }[kind]
    feeds = {"x": numbers(1, x, 6, 6), "w": numbers(*w)}
    agree(nchwc("Conv", ["x", "w"], **attributes), feeds, [1, w[0], size, size], block)


@pytest.mark.parametrize(
    ("op", "attributes", "size"),
    [
        ("MaxPool", {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 1, 1]}, (4, 4)),
        ("MaxPool", {"kernel_shape": [2, 2], "strides": [2, 2], "ceil_mode": 1}, (4, 4)),
        ("AveragePool", {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}, (7, 7)),
        (
            "AveragePool",
            {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "count_include_pad": 1},
            (7, 7),
        ),
        ("GlobalMaxPool", {}, (1, 1)),
        ("GlobalAveragePool", {}, (1, 1)),
    ],
)
def test_a_blocked_pool_is_the_plain_one(
    op: str, attributes: Mapping[str, Any], size: Sequence[int], block: int
) -> None:
    channels = 2 * block
    feeds = {"x": numbers(2, channels, 7, 7)}
    agree(nchwc(op, ["x"], **attributes), feeds, [2, channels, *size], block)


@pytest.mark.parametrize(
    "attributes",
    [
        {"mode": "nearest"},
        *(
            {"mode": "linear", "coordinate_transformation_mode": mode}
            for mode in ("asymmetric", "align_corners", "half_pixel")
        ),
    ],
)
def test_a_blocked_upsampling_is_a_resize(attributes: Mapping[str, Any], block: int) -> None:
    own = nchwc("Upsample", ["x"], scales=[1, 1, 2, 3], **attributes)
    agree(own, {"x": numbers(1, block, 4, 5)}, [1, block, 8, 15], block)


@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("missing", [0, 4])
def test_reordering_keeps_values_and_fills_channels_with_zeros(
    last: int, missing: int, block: int
) -> None:
    channels = 2 * block - missing
    plain = [1, 5, 6, channels] if last else [1, channels, 5, 6]
    into = nchwc("ReorderInput", ["x"], channels_last=last)
    agree(into, {"x": numbers(*plain)}, [1, 2 * block, 5, 6], block, tolerance=0)
    back = nchwc("ReorderOutput", ["x"], channels=channels, channels_last=last)
    agree(back, {"x": numbers(1, 2 * block, 5, 6)}, plain, block, tolerance=0)


@pytest.mark.parametrize(
    ("own", "shapes", "shape"),
    [
        (
            node("FusedConv", ["x", "w", "b", "z"], ["y"], domain="com.microsoft",
                 activation="Relu", pads=[1, 1, 1, 1]),
            {"x": (1, 3, 5, 5), "w": (4, 3, 3, 3), "b": (4,), "z": (1, 4, 5, 5)},
            (1, 4, 5, 5),
        ),
        (
            node("FusedGemm", ["a", "b", "c"], ["y"], domain="com.microsoft",
                 activation="LeakyRelu", activation_alpha=0.2, transB=1, alpha=0.5),
            {"a": (3, 4), "b": (5, 4), "c": (5,)},
            (3, 5),
        ),
        (
            node("FusedMatMul", ["a", "b"], ["y"], domain="com.microsoft", transA=1, transB=1,
                 alpha=0.25),
            {"a": (2, 4, 3), "b": (2, 5, 4)},
            (2, 3, 5),
        ),
    ],
)  # fmt: skip
def test_fused_operators_are_what_was_fused(
    own: onnx.NodeProto, shapes: Mapping[str, Sequence[int]], shape: Sequence[int]
) -> None:
    feeds = {name: numbers(*each) for name, each in shapes.items()}
    assert not agree(own, feeds, shape, block=1).layouts


def test_a_model_as_the_runtime_blocks_it_is_the_model_again(
    tmp_path_factory: pytest.TempPathFactory, block: int
) -> None:
    """What the optimiser really writes, with channels that only fill a block."""
    nodes = [
        node("Conv", ["x", "w0", "b0"], ["a"], pads=[1, 1, 1, 1]), node("Relu", ["a"], ["r"]),
        node("Conv", ["r", "w1"], ["c"], group=20), node("Conv", ["c", "w2"], ["y"]),
    ]  # fmt: skip
    shapes = {"w0": (20, 3, 3, 3), "b0": (20,), "w1": (20, 1, 3, 3), "w2": (12, 20, 1, 1)}
    weights = [constant(name, numbers(*shape), "FLOAT") for name, shape in shapes.items()]
    plain = model(nodes, [value("x", [1, 3, 8, 8])], [value("y", [1, 12, 6, 6])], weights)
    path = tmp_path_factory.mktemp("blocked") / "blocked.onnx"
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath, options.log_severity_level = str(path), 3
    onnxruntime.InferenceSession(
        plain.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    executed = onnx.load(path)
    standard = spelled_out(executed_with_types(executed, block))
    filters = {n for n, layout in standard.layouts.items() if layout is BlockedLayout.FILTERS}
    for tensor in standard.proto.graph.initializer:
        if tensor.name in filters:
            array = unblocked_filters(onnx.numpy_helper.to_array(tensor), block)
            tensor.CopyFrom(onnx.numpy_helper.from_array(array, tensor.name))
    x = {"x": numbers(1, 3, 8, 8)}
    (expected,), (actual,) = run(plain, x), run(standard.proto, x)
    assert np.allclose(expected, actual, rtol=1e-4, atol=1e-4)


def unblocked_filters(array: np.ndarray, block: int) -> np.ndarray:
    """The plain filters of which these are the blocked ones."""
    order = blocked(np.arange(array.size).reshape(array.shape), BlockedLayout.FILTERS, block)
    plain = np.empty(array.size, array.dtype)
    plain[order.ravel()] = array.ravel()
    return plain.reshape(array.shape)


def executed_with_types(proto: onnx.ModelProto, block: int) -> onnx.ModelProto:
    """As bricks are, with the shapes of blocked values, which the runtime does not write."""
    types = {t.name: TensorType("FLOAT", tuple(t.dims)) for t in proto.graph.initializer}
    sizes = {3: 8, 1: 6}
    for each in proto.graph.node:
        if each.op_type == "Conv":
            filters = types[each.input[1]].shape
            pads = any(a.name == "pads" and a.ints for a in each.attribute)
            size = 8 if pads else sizes[1]
            proto.graph.value_info.append(value(each.output[0], [1, filters[0], size, size]))
    assert set(graph_of(proto).types) >= {n for each in proto.graph.node for n in each.output}
    return proto


def test_channels_that_fill_no_block_are_refused() -> None:
    with refused(ModelError, "24 channels", "blocks of 16"):
        blocked(numbers(1, 24, 2, 2), BlockedLayout.IMAGES, 16)
    few = numbers(1, 3, 2, 2)
    assert (blocked(few, BlockedLayout.IMAGES, 16) == few).all()


def test_operators_without_a_rule_stay_as_they_are() -> None:
    infos = [value("x", [4]), value("y", [4])]
    for own in (
        node("Relu", ["x"], ["y"]),
        node("QuickGelu", ["x"], ["y"], domain="com.microsoft"),
    ):
        proto = model([own], infos[:1], infos[1:], domains=["com.microsoft"])
        assert standard_form(proto) is None
