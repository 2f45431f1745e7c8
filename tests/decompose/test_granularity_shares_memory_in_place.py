from __future__ import annotations

import numpy as np
import pytest
from graphs import FLOATS, Maker
from onnx import TensorProto, helper

from bricks.backends.onnxruntime.graphs import in_place_values
from bricks.graph.types import TensorType

FLAT = TensorType("FLOAT", (16,))


def start() -> Maker:
    """A value ``x`` that is neither input nor output of the graph."""
    maker = Maker()
    maker.node("MatMul", [maker.input("a"), maker.input("b")], ["x"])
    maker.initializer("flat", np.array([16]))
    return maker


def test_a_value_that_nobody_else_reads_is_overwritten() -> None:
    maker = start()
    maker.node("Relu", ["x"], ["y"])
    maker.outputs = [maker.node("MatMul", ["y", "y"], ["z"])]
    assert in_place_values(maker.graph()) == {"y": "x"}


def test_memory_of_the_caller_and_weights_are_not_overwritten() -> None:
    maker = Maker()
    maker.initializer("w", np.ones((4, 4), np.float32))
    maker.node("Add", [maker.input("a"), "w"], ["y"])
    maker.outputs = [maker.node("Relu", ["y"], ["z"])]
    assert in_place_values(maker.graph()) == {}


def test_a_value_that_is_read_later_is_not_overwritten() -> None:
    maker = start()
    maker.node("Relu", ["x"], ["y"])
    maker.outputs = [maker.node("MatMul", ["y", "x"], ["z"])]
    assert in_place_values(maker.graph()) == {}


def test_the_last_of_several_readers_may_overwrite() -> None:
    maker = start()
    maker.node("MatMul", ["x", "b"], ["m"])
    maker.node("Relu", ["x"], ["y"])
    maker.outputs = [maker.node("MatMul", ["y", "m"], ["z"])]
    assert in_place_values(maker.graph()) == {"y": "x"}


def test_arithmetic_does_not_overwrite() -> None:
    maker = start()
    maker.node("Add", ["x", "b"], ["y"])
    maker.outputs = [maker.node("MatMul", ["y", "y"], ["z"])]
    assert in_place_values(maker.graph()) == {}


def test_a_value_that_a_node_reads_twice_is_not_overwritten_by_it() -> None:
    maker = start()
    maker.initializer("places", np.zeros((4, 4), np.int64))
    maker.node("ScatterElements", ["x", "places", "x"], ["y"])
    maker.outputs = [maker.node("MatMul", ["y", "y"], ["z"])]
    assert in_place_values(maker.graph()) == {}


def test_a_view_keeps_what_it_views_from_being_overwritten() -> None:
    maker = start()
    maker.node("Reshape", ["x", "flat"], ["v"], [FLAT])
    maker.node("Relu", ["v"], ["y"], [FLAT])
    maker.outputs = [
        maker.node("MatMul", ["x", "x"], ["z"]),
        maker.node("MatMul", ["y", "y"], ["u"]),
    ]
    # x is still to be read when y is computed, though v is not.
    assert in_place_values(maker.graph()) == {"v": "x"}


def test_views_and_overwriting_go_on_in_a_chain() -> None:
    maker = start()
    maker.node("Relu", ["x"], ["r"])
    maker.node("Reshape", ["r", "flat"], ["v"], [FLAT])
    maker.node("Tanh", ["v"], ["t"], [FLAT])
    maker.outputs = [maker.node("MatMul", ["t", "t"], ["z"], [TensorType("FLOAT", ())])]
    assert in_place_values(maker.graph()) == {"r": "x", "v": "r", "t": "v"}


def test_a_branch_that_captures_a_value_reads_it() -> None:
    result = helper.make_tensor_value_info("t", TensorProto.FLOAT, [4, 4])
    body = helper.make_graph([helper.make_node("Neg", ["x"], ["t"])], "b", [], [result])
    maker = start()
    maker.input("c", TensorType("BOOL", ()))
    maker.node("Relu", ["x"], ["y"])
    maker.node("If", ["c"], ["i"], then_branch=body, else_branch=body)
    maker.outputs = [maker.node("MatMul", ["y", "i"], ["z"])]
    assert in_place_values(maker.graph()) == {}


@pytest.mark.parametrize(
    ("domain", "op"),
    [
        ("com.microsoft", "FusedConv"),
        ("com.microsoft", "NhwcFusedConv"),
        ("com.microsoft.nchwc", "Conv"),
    ],
)
def test_fused_convolutions_write_over_their_summand(domain: str, op: str) -> None:
    maker = start()
    maker.initializer("w", np.ones((4, 4), np.float32))
    maker.node("MatMul", ["a", "a"], ["s"])
    maker.node(op, ["x", "w", "", "s"], ["y"], domain=domain)
    maker.outputs = [maker.node("MatMul", ["y", "y"], ["z"])]
    assert in_place_values(maker.graph()) == {"y": "s"}


@pytest.mark.parametrize("op", ["Relu", "Identity"])
def test_an_operator_of_another_domain_is_another_operator(op: str) -> None:
    maker = start()
    maker.node(op, ["x"], ["y"], [FLOATS], domain="org.example")
    maker.outputs = [maker.node("MatMul", ["y", "y"], ["z"])]
    assert in_place_values(maker.graph()) == {}
