from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest
from graphs import FLOATS, Maker, cut, one_node
from refusals import refused

from bricks.decompose.identity import Cutter
from bricks.errors import ModelError
from bricks.graph.model import Graph
from bricks.graph.types import TensorType
from bricks.operators.dependence import SMALL

ONES = np.ones((4, 4), np.float32)


def key(graph: Graph) -> str:
    return cut(graph, range(len(graph.nodes))).brick.key


def test_operator_shape_type_attribute_and_opset_count() -> None:
    wide, doubles = TensorType("FLOAT", (4, 5)), TensorType("DOUBLE", (4, 4))
    graphs = [
        one_node("Softmax", FLOATS),
        one_node("LogSoftmax", FLOATS),
        one_node("Softmax", wide, out=wide),
        one_node("Softmax", doubles, out=doubles),
        one_node("Softmax", FLOATS, axis=0),
        one_node("Softmax", FLOATS, axis=1),
        replace(one_node("Softmax", FLOATS), opsets={"": 13}),
        one_node("Softmax", FLOATS, domain="com.microsoft"),
        one_node("Softmax", ONES),
    ]
    assert len({key(graph) for graph in graphs}) == len(graphs)


def test_order_of_ports_and_sharing_count() -> None:
    graphs = [
        one_node("Sub", FLOATS, ONES),
        one_node("Sub", ONES, FLOATS),
        one_node("Sub", FLOATS, FLOATS),
        one_node("Sub", ONES, ONES),
    ]
    for operand in (FLOATS, ONES):
        maker = Maker()
        same = maker.input("x") if isinstance(operand, TensorType) else maker.initializer("x", ONES)
        maker.node("Sub", [same, same], ["y"])
        graphs.append(maker.graph())
    assert len({key(graph) for graph in graphs}) == len(graphs)


def test_an_intermediate_that_leaves_the_brick_counts() -> None:
    maker = Maker()
    maker.node("Tanh", [maker.node("Relu", [maker.input("x")], ["h"])], ["y"])
    maker.node("Exp", ["h"], ["z"])
    maker.outputs = ["y", "z"]
    whole = maker.graph()
    kept = cut(whole, [0, 1])
    assert kept.outputs == ("h", "y")
    without = cut(replace(whole, nodes=whole.nodes[:2]), [0, 1])
    assert without.outputs == ("y",)
    exposed = cut(replace(whole, nodes=whole.nodes[:2], outputs=("y", "h")), [0, 1])
    assert exposed.brick.key == kept.brick.key != without.brick.key


def test_an_output_that_nobody_reads_leaves_the_brick() -> None:
    maker, half = Maker(), TensorType("FLOAT", (2, 4))
    maker.node("Split", [maker.input("x")], ["read", "unread"], [half, half], axis=0)
    maker.outputs = [maker.node("Relu", ["read"], ["y"], [half])]
    assert cut(maker.graph(), [0]).outputs == ("read", "unread")
    assert cut(maker.graph(), [0, 1]).outputs == ("unread", "y")


def test_the_type_of_an_intermediate_counts() -> None:
    def through(kind: TensorType) -> Graph:
        maker = Maker()
        maker.node("NonZero", [maker.input("x")], ["h"], [kind])
        maker.node("Size", ["h"], ["y"], [TensorType("INT64", ())])
        return maker.graph()

    assert key(through(TensorType("INT64", (2, 3)))) != key(through(TensorType("INT64", (2, 4))))


def test_small_integer_constants_count() -> None:
    flat, tall = TensorType("FLOAT", (2, 8)), TensorType("FLOAT", (8, 2))
    a = one_node("Reshape", FLOATS, np.array([2, 8]), out=flat)
    b = one_node("Reshape", FLOATS, np.array([2, -1]), out=flat)
    c = one_node("Reshape", FLOATS, np.array([8, 2]), out=tall)
    assert len({key(g) for g in (a, b, c)}) == 3
    piece = cut(a, [0])
    assert (piece.constants, piece.weights) == (("k1",), ())
    assert onnx.load_from_string(piece.brick.model).graph.initializer[0].raw_data


def test_as_many_integers_as_may_count_do() -> None:
    out = TensorType("FLOAT", (SMALL, 4))
    rows = [np.full(SMALL, i, np.int64) for i in (0, 1)]
    assert len({key(one_node("Gather", FLOATS, r, out=out)) for r in rows}) == 2


def test_large_integers_and_floats_are_weights() -> None:
    out = TensorType("FLOAT", (65, 4))
    rows = [np.full(65, i, np.int64) for i in (0, 1)]
    assert len({key(one_node("Gather", FLOATS, r, out=out)) for r in rows}) == 1
    limits = [np.array(i, np.float32) for i in (0, 1)]
    assert len({key(one_node("Clip", FLOATS, limit)) for limit in limits}) == 1


@pytest.mark.parametrize("op, port", [("Pow", 1), ("Resize", 2), ("Range", 0), ("Upsample", 1)])
def test_floats_that_steer_count(op: str, port: int) -> None:
    def graph(value: float) -> Graph:
        inputs = [np.array(value, np.float32) if p == port else FLOATS for p in range(3)]
        return one_node(op, *inputs[: max(port + 1, 2)])

    assert key(graph(2.0)) != key(graph(3.0))


def test_a_vector_of_exponents_is_a_weight() -> None:
    assert key(one_node("Pow", FLOATS, ONES)) == key(one_node("Pow", FLOATS, 2 * ONES))


def test_tensors_in_attributes_count_by_value() -> None:
    def graph(size: int, value: float) -> Graph:
        tensor = onnx.numpy_helper.from_array(np.full(size, value, np.float32), "any")
        return one_node("Constant", out=TensorType("FLOAT", (size,)), value=tensor)

    assert key(graph(64, 1)) != key(graph(64, 2))
    assert key(graph(65, 1)) != key(graph(65, 2))
    assert key(graph(65, 1)) != key(graph(66, 1))


def test_empty_optional_ports_stay_where_they_are() -> None:
    def graph(inputs: list[str]) -> Graph:
        maker = Maker()
        maker.input("x"), maker.input("m", TensorType("FLOAT", ()))
        maker.node("Clip", inputs, ["y"])
        return maker.graph()

    keys = {key(graph(i)) for i in (["x", "m"], ["x", "", "m"], ["x", "m", ""], ["x"])}
    assert len(keys) == 4
    model = onnx.load_from_string(cut(graph(["x", "", "m"]), [0]).brick.model)
    assert list(model.graph.node[0].input) == ["i0", "", "i1"]


def test_only_domains_in_use_are_imported() -> None:
    plain = one_node("Relu", FLOATS)
    fused = one_node("QuickGelu", FLOATS, domain="com.microsoft")
    for graph, domain in ((plain, ""), (fused, "com.microsoft")):
        model = onnx.load_from_string(cut(graph, [0]).brick.model)
        assert [o.domain for o in model.opset_import] == [domain]
    spelt = one_node("Relu", FLOATS, domain="ai.onnx")
    assert key(spelt) == key(plain)


def test_a_constant_without_values_is_refused_by_name() -> None:
    graph = one_node("Reshape", FLOATS, np.array([2, 8]))
    tensor = graph.initializers["k1"]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    with refused(ModelError, "k1"):
        Cutter(graph).cut([0])


def test_an_empty_tensor_needs_no_values() -> None:
    graph = one_node("Resize", FLOATS, np.zeros(0, np.float32), np.ones(2, np.float32))
    graph.initializers["k1"].data_location = onnx.TensorProto.EXTERNAL
    assert cut(graph, [0]).constants == ("k1", "k2")


def test_unknown_types_and_missing_opsets_are_refused() -> None:
    graph = one_node("Relu", FLOATS)
    with refused(ModelError, "y"):
        cut(replace(graph, types={"x0": FLOATS}), [0])
    with refused(ModelError, "opset", "''"):
        cut(replace(graph, opsets={}), [0])
