"""Inputs that decide latencies change from run to run; those that decide what is run stay."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from factories import constant, model, node, value
from onnx import helper

from bricks.graph.model_metadata import SPECIFIED, note, note_sketches, without_sketches
from bricks.graph.sketch import COLUMNS, Sketch
from bricks.operators.rotated_inputs import Course, rotated_inputs

FEATURES = 3


def trees(reads: str = "x") -> onnx.NodeProto:
    """A tree of one comparison."""
    facts = {
        "nodes_treeids": [0, 0, 0], "nodes_nodeids": [0, 1, 2], "nodes_featureids": [0, 0, 0],
        "nodes_values": [0.0, 0.0, 0.0], "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
        "nodes_truenodeids": [1, 0, 0], "nodes_falsenodeids": [2, 0, 0],
        "target_treeids": [0, 0], "target_nodeids": [1, 2], "target_ids": [0, 0],
        "target_weights": [1.0, 2.0], "n_targets": 1,
    }  # fmt: skip
    return helper.make_node("TreeEnsembleRegressor", [reads], ["y"], domain="ai.onnx.ml", **facts)


def net(nodes: list[onnx.NodeProto], weights: list[onnx.TensorProto], **inputs: str) -> set[str]:
    """The rotated inputs of a model; ``inputs`` are types with shapes, such as ``FLOAT 1 3``."""
    declared = []
    for name, text in inputs.items():
        dtype, *shape = text.split()
        declared.append(value(name, list(map(int, shape)), dtype))
    proto = model(nodes, declared, [value("y", None)], weights)
    proto.opset_import.append(helper.make_opsetid("ai.onnx.ml", 3))
    return set(rotated_inputs(proto).unobserved)


ROW = f"FLOAT 1 {FEATURES}"


def test_values_before_a_tree_change_and_others_do_not() -> None:
    scale = constant("scale", np.ones(FEATURES), "FLOAT")
    scaled = node("Mul", ["x", "scale"], ["scaled"])
    assert net([trees()], [], x=ROW) == {"x"}
    assert net([scaled, trees("scaled")], [scale], x=ROW) == {"x"}
    assert net([scaled, node("Relu", ["scaled"], ["y"])], [scale], x=ROW) == set()
    other = node("Relu", ["z"], ["w"])
    assert net([other, trees()], [], x=ROW, z=ROW) == {"x"}


def test_a_shape_is_no_value() -> None:
    nodes = [node("Shape", ["z"], ["shape"]), node("Reshape", ["x", "shape"], ["r"]), trees("r")]
    assert net(nodes, [], x=ROW, z=ROW) == {"x"}


@pytest.mark.parametrize("operator", ["TopK", "NonZero", "Unique"])
def test_sorting_and_searching_read_changing_values(operator: str) -> None:
    count = [constant("k", [2], "INT64")] if operator == "TopK" else []
    reads = ["x", "k"] if operator == "TopK" else ["x"]
    assert net([node(operator, reads, ["y"])], count, x="FLOAT 9") == {"x"}


def test_a_count_stays() -> None:
    nodes = [node("TopK", ["x", "k"], ["y", "positions"])]
    assert net(nodes, [], x="FLOAT 9", k="INT64 1") == {"x"}


def test_rows_of_a_table_that_no_cache_holds_change() -> None:
    nodes = [node("Gather", ["table", "x"], ["y"])]
    large = constant("table", np.zeros((1 << 13, 64)), "FLOAT")
    small = constant("table", np.zeros((1 << 5, 64)), "FLOAT")
    assert net(nodes, [large], x="INT64 4") == {"x"}
    assert net(nodes, [small], x="INT64 4") == set()


def branch(reads: str, name: str) -> onnx.GraphProto:
    return helper.make_graph([node("Relu", [reads], [name])], name, [], [value(name, None)])


def test_what_chooses_a_branch_stays() -> None:
    zero = constant("zero", 0.0, "FLOAT")
    nodes = [
        node("ReduceSum", ["chooses"], ["sum"], keepdims=0),
        node("Greater", ["sum", "zero"], ["is_greater"]),
        node("If", ["is_greater"], ["chosen"], then_branch=branch("x", "a"),
             else_branch=branch("x", "b")),
        trees("chosen"),
    ]  # fmt: skip
    assert net(nodes, [zero], x=ROW, chooses=ROW) == {"x"}
    nodes[0] = node("ReduceSum", ["x"], ["sum"], keepdims=0)
    assert net(nodes, [zero], x=ROW) == set()


def test_what_ends_a_loop_stays() -> None:
    body = helper.make_graph(
        [
            node("Relu", ["carried"], ["next"]),
            node("ReduceMax", ["next"], ["most"], keepdims=0),
            node("Cast", ["most"], ["goes_on"], to=onnx.TensorProto.BOOL),
        ],
        "body",
        [value("number", [], "INT64"), value("before", [], "BOOL"), value("carried", None)],
        [value("goes_on", [], "BOOL"), value("next", None)],
    )
    nodes = [node("Loop", ["times", "", "x"], ["last"], body=body), trees("last")]
    assert net(nodes, [], x=ROW, times="INT64") == set()


def test_known_values_and_packed_numbers_stay() -> None:
    proto = model([trees()], [value("x", [1, FEATURES])], [value("y", None)])
    proto.opset_import.append(helper.make_opsetid("ai.onnx.ml", 3))
    note(proto, SPECIFIED, {"x": [1.0] * FEATURES})
    assert rotated_inputs(proto).names == set()
    nodes = [
        node("DequantizeLinear", ["x", "scale"], ["wide"]),
        node("NonZero", ["wide"], ["y"]),
    ]
    assert net(nodes, [constant("scale", 1.0, "FLOAT")], x="UINT4 8") == set()
    assert net(nodes, [constant("scale", 1.0, "FLOAT")], x="UINT8 8") == {"x"}


def test_what_a_sketch_calls_constant_stays() -> None:
    proto = model([trees()], [value("x", [1, FEATURES])], [value("y", None)])
    proto.opset_import.append(helper.make_opsetid("ai.onnx.ml", 3))
    for rows, changing in ((np.ones((1, FEATURES)), set()), (np.eye(FEATURES), {"x"})):
        noted = without_sketches(proto)
        note_sketches(noted, {"x": Sketch.of(rows, (COLUMNS,))})
        assert rotated_inputs(noted).names == changing


def test_a_runtime_adds_what_its_own_loops_branch_on() -> None:
    proto = model([node("PRelu", ["x", "slope"], ["y"])], [value("x", [4])], [value("y", [4])],
                  [constant("slope", 0.1, "FLOAT")])  # fmt: skip
    assert rotated_inputs(proto).names == set()
    assert rotated_inputs(proto, lambda operator: operator == "PRelu").names == {"x"}


def test_inputs_that_decide_what_is_run_are_bound_to_its_course() -> None:
    nodes = [
        node("ReduceSum", ["x"], ["sum"], keepdims=0),
        node("Cast", ["sum"], ["condition"], to=onnx.TensorProto.BOOL),
        node("If", ["condition"], ["chosen"], then_branch=branch("x", "a"),
             else_branch=branch("x", "b")),
        trees("chosen"),
        node("NonZero", ["z"], ["where"]),
    ]  # fmt: skip
    inputs = [value("x", [1, FEATURES]), value("z", [9])]
    proto = model(nodes, inputs, [value("y", None), value("where", None, "INT64")])
    proto.opset_import.append(helper.make_opsetid("ai.onnx.ml", 3))
    rotated = rotated_inputs(proto)
    assert rotated.names == rotated.bound == {"x", "z"}
    assert (rotated.choosing, rotated.sizing) == ({"x"}, {"z"})
    assert rotated.course == Course(frozenset({"condition"}), frozenset({"where"}))


def test_runs_of_one_course_choose_the_same_and_have_about_equal_lengths() -> None:
    course = Course(frozenset({"condition"}), frozenset({"where"}))

    def run(condition: bool, length: int) -> dict[str, np.ndarray]:
        return {"condition": np.array(condition), "where": np.zeros((1, length))}

    assert course.same(run(True, 100), run(True, 96))
    assert not course.same(run(True, 100), run(False, 100))
    assert not course.same(run(True, 100), run(True, 90))
