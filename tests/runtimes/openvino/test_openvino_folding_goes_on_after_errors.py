import logging
from collections.abc import Mapping, Sequence

import numpy as np
import onnx
import pytest
from factories import model, node, value
from onnx import numpy_helper

from bricks.backends.openvino.folding import folded
from bricks.graph.view import graph_of


def test_a_constant_node_that_cannot_be_evaluated_stays_and_the_others_are_folded_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    nodes = [
        node("Neg", ["c"], ["before"]),
        node("Reshape", ["c", "three"], ["bad"]),
        node("Neg", ["bad"], ["of_bad"]),
        node("Abs", ["c"], ["after"]),
        node("Sum", ["x", "before", "of_bad", "after"], ["y"]),
    ]
    proto = model(nodes, [value("x", [2])], [value("y", [2])])
    proto.graph.initializer.extend(
        [
            numpy_helper.from_array(np.array([1, -2], np.float32), "c"),
            numpy_helper.from_array(np.array([3]), "three"),
        ]
    )
    proto.graph.value_info.extend(value(n, [2]) for n in ("before", "bad", "of_bad", "after"))
    asked: list[str] = []

    def compute(one: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> Sequence[np.ndarray]:
        asked.append(one.graph.node[0].op_type)
        raise ValueError("two elements are not three")

    with caplog.at_level(logging.DEBUG):
        graph, known, _ = folded(graph_of(proto), compute)
    assert [n.op_type for n in graph.nodes] == ["Reshape", "Neg", "Sum"]
    assert (known["before"].tolist(), known["after"].tolist()) == ([-1, 2], [1, 2])
    assert asked == ["Reshape"]
    assert "two elements are not three" in caplog.text
