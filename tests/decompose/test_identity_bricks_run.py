from __future__ import annotations

import random

import numpy as np
import onnx
import pytest
from graphs import FLOATS, cut, disguised, model_of, one_node, outputs_of, random_graph, run

from bricks.decompose.identity import Cutter
from bricks.graph.model import Graph
from bricks.graph.types import TensorType


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("longest", [1, 3])
def test_pieces_run_along_the_graph_give_what_the_whole_model_gives(
    seed: int, longest: int
) -> None:
    graph = disguised(random_graph(seed, 8), seed)
    rng = np.random.default_rng(seed)
    feeds = {n: rng.normal(size=(4, 4)).astype(np.float32) for n in graph.inputs}
    expected = run(model_of(graph).SerializeToString(), feeds, {})
    cutter, values, start = Cutter(graph), dict(feeds), 0
    lengths = random.Random(seed)
    while start < len(graph.nodes):
        end = min(start + lengths.randint(1, longest), len(graph.nodes))
        piece = cutter.cut(range(start, end))
        values.update(zip(piece.outputs, outputs_of(piece, graph, values), strict=True))
        start = end
    for name, value in zip(graph.outputs, expected, strict=True):
        np.testing.assert_array_equal(values[name], value)


@pytest.mark.parametrize("seed", range(8))
def test_bricks_with_weights_filled_in_pass_the_checker_and_run(seed: int) -> None:
    graph = random_graph(seed)
    piece = cut(graph, range(len(graph.nodes)))
    model = onnx.load_from_string(piece.brick.model)
    for tensor in model.graph.initializer:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            assert not tensor.raw_data
            values = np.ones(tuple(tensor.dims), np.float32)
            tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))
    onnx.checker.check_model(model, full_check=True)
    feeds = {n: np.ones(t.shape, np.float32) for n, t in piece.brick.inputs.items()}
    results = run(model.SerializeToString(), feeds, {})
    assert len(results) == len(piece.outputs)


def test_a_brick_of_another_domain_alone_loads() -> None:
    piece = cut(one_node("QuickGelu", FLOATS, domain="com.microsoft"), [0])
    (result,) = run(piece.brick.model, {"i0": np.ones((4, 4), np.float32)}, {})
    assert result.shape == (4, 4)


def test_a_brick_of_blocked_layout_loads() -> None:
    kind = TensorType("FLOAT", (1, 16, 5, 5))
    kernel = np.ones((16, 16, 3, 3), np.float32)
    graph = one_node(
        "Conv", kind, kernel, out=kind, domain="com.microsoft.nchwc",
        kernel_shape=[3, 3], pads=[1, 1, 1, 1], activation="Relu",
    )  # fmt: skip
    graph = Graph(
        graph.nodes, graph.inputs, graph.outputs, graph.initializers, graph.types,
        {"": 17, "com.microsoft.nchwc": 1}, 8,
    )  # fmt: skip
    piece = cut(graph, [0])
    assert piece.brick.flops == 16 * 25 * (2 * 16 * 9 + 1)
    assert piece.brick.weight_bytes == kernel.nbytes
    (result,) = run(piece.brick.model, {"i0": np.ones(kind.shape, np.float32)}, {"w0": kernel})
    assert result.shape == kind.shape
