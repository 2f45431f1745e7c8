"""Iterations of conditional loops are counted in the model, and repeated in its bricks."""

from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from factories import node, value
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from bricks.graph.model_metadata import ITERATIONS, note
from bricks.graph.subgraphs import (
    conditional_loops,
    counter_name,
    with_iteration_counters,
    with_noted_iterations,
)

COUNT = "after"


def halving(*, most: int | None = None, begins: bool | None = True) -> onnx.ModelProto:
    """A Loop that halves a number until it is less than 1, and outputs the number of iterations."""
    body = helper.make_graph(
        [
            node("Mul", ["h", "half"], ["next"]),
            node("Add", ["n", "one"], ["count"]),
            node("Greater", ["next", "least"], ["go"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("c", TensorProto.BOOL, []),
            value("h", []),
            value("n", []),
        ],
        [
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            value("next", []),
            value("count", []),
        ],
    )
    constants = {"half": 0.5, "one": 1.0, "zero": 0.0, "least": 1.0}
    initializers = [numpy_helper.from_array(np.float32(v), n) for n, v in constants.items()]
    if most is not None:
        initializers.append(numpy_helper.from_array(np.array(most), "most"))
    if begins is not None:
        initializers.append(numpy_helper.from_array(np.array(begins), "begins"))
    ports = ["" if most is None else "most", "" if begins is None else "begins", "x", "zero"]
    loop = node("Loop", ports, ["y", COUNT], body=body)
    graph = helper.make_graph(
        [loop], "halving", [value("x", [])], [value("y", []), value(COUNT, [])], initializers
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def run(proto: onnx.ModelProto, x: float, *names: str) -> list[np.ndarray]:
    session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    results: list[np.ndarray] = session.run(list(names) or None, {"x": np.array(x, np.float32)})
    return results


def with_counter(proto: onnx.ModelProto) -> onnx.ModelProto:
    copy = with_iteration_counters(proto, ["y"])
    copy.graph.output.append(onnx.ValueInfoProto(name=counter_name(copy.graph.node[0])))
    return copy


def test_iterations_of_a_run_are_counted() -> None:
    for x, times in ((100.0, 7), (1.5, 1), (1000.0, 10)):
        proto = with_counter(halving())
        counted, after = run(proto, x, counter_name(proto.graph.node[0]), COUNT)
        assert counted.size == times == int(after)


@pytest.mark.parametrize("most", [None, 3, 1000])
@given(times=st.integers(1, 40))
def test_a_brick_runs_as_often_whatever_it_reads(most: int | None, times: int) -> None:
    proto = halving(most=most)
    note(proto, ITERATIONS, {"y": times})
    for x in (1e-3, 1e9):
        assert int(run(with_noted_iterations(proto), x, COUNT)[0]) == times


def test_a_loop_without_a_first_condition_is_repeated_too() -> None:
    proto = halving(most=50, begins=None)
    note(proto, ITERATIONS, {"y": 5})
    assert int(run(with_noted_iterations(proto), 1.0, COUNT)[0]) == 5


def test_a_model_that_says_nothing_of_loops_stays_as_it_is() -> None:
    proto = halving()
    assert with_noted_iterations(proto) is proto


@pytest.mark.parametrize("kind", ["condition", "Identity", "Constant"])
def test_a_loop_that_is_never_told_to_end_has_no_condition(kind: str) -> None:
    proto = halving(most=5)
    assert len(conditional_loops(proto.graph.node)) == 1
    body = proto.graph.node[0].attribute[0].g
    del body.node[2]
    if kind == "condition":
        body.output[0].name = "c"
    elif kind == "Identity":
        body.node.append(node("Identity", ["c"], ["go"]))
    else:
        body.node.append(
            node("Constant", [], ["go"], value=numpy_helper.from_array(np.array(True)))
        )
    assert not conditional_loops(proto.graph.node)


@pytest.mark.parametrize("attributes", [{}, {"body": helper.make_graph([], "body", [], [])}])
def test_a_loop_without_a_body_is_left_to_the_runtime(attributes: dict[str, Any]) -> None:
    assert conditional_loops([helper.make_node("Loop", ["n"], ["y"], **attributes)]) == []
