from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest
from graphs import Maker, cut, model_of, outputs_of
from onnx import TensorProto, helper, numpy_helper
from refusals import refused

from bricks.decompose.identity import Cutter, Piece, key_of
from bricks.decompose.lowering import Contents
from bricks.decompose.plan import Brick
from bricks.errors import ModelError
from bricks.graph.model import Graph
from bricks.graph.subgraphs import hoist
from bricks.graph.types import TensorType
from bricks.graph.view import graph_of

SWITCH = TensorType("BOOL", ())


def info(
    name: str, dtype: int = TensorProto.FLOAT, dims: list[object] | None = None
) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, [4, 4] if dims is None else dims)


def branch(
    nodes: list[tuple[str, list[str], str]],
    result: str,
    tensors: dict[str, np.ndarray] | None = None,
) -> onnx.GraphProto:
    return helper.make_graph(
        [helper.make_node(op, inputs, [output]) for op, inputs, output in nodes],
        f"branch to {result}",
        [],
        [info(result)],
        [numpy_helper.from_array(values, name) for name, values in (tensors or {}).items()],
    )


def chosen(then: onnx.GraphProto, other: onnx.GraphProto) -> Graph:
    maker = Maker()
    maker.input("switch", SWITCH), maker.input("a"), maker.input("b")
    maker.initializer("w", np.full((4, 4), 3, np.float32))
    maker.outputs = [maker.node("If", ["switch"], ["y"], then_branch=then, else_branch=other)]
    return read(maker.graph())


def read(graph: Graph) -> Graph:
    """The graph as reading leaves it: no constants in subgraphs."""
    model = model_of(graph)
    hoist(model.graph)
    return graph_of(model, graph.types)


def looped(body: list[tuple[str, list[str], str]], result: str, dim: object = 4) -> Graph:
    inputs = [
        info("i", TensorProto.INT64, []),
        info("go", TensorProto.BOOL, []),
        info("state", dims=[dim, 4]),
    ]
    results = [info("go on", TensorProto.BOOL, []), info(result)]
    nodes = [helper.make_node("Identity", ["go"], ["go on"])]
    nodes += [helper.make_node(op, given, [output]) for op, given, output in body]
    maker = Maker()
    maker.input("a")
    maker.initializer("trips", np.array(3)), maker.initializer("w", np.ones((4, 4), np.float32))
    maker.node("Relu", ["a"], ["h"])
    graph = helper.make_graph(nodes, "body", inputs, results)
    maker.outputs = [maker.node("Loop", ["trips", "", "h"], ["y"], body=graph)]
    return maker.graph()


PLAIN = branch([("Add", ["a", "w"], "t")], "t")


def key(graph: Graph) -> str:
    return cut(graph, range(len(graph.nodes))).brick.key


def test_captured_values_become_inputs_and_weights() -> None:
    piece = cut(chosen(PLAIN, branch([("Relu", ["b"], "e")], "e")), [0])
    assert set(piece.inputs) == {"switch", "a", "b"}
    assert piece.weights == ("w",)
    assert piece.brick.operators == ("If",)
    assert piece.brick.flops is None
    onnx.checker.check_model(loadable(piece.brick.model))


def test_names_inside_do_not_count_but_topology_and_captures_do() -> None:
    other = branch([("Relu", ["b"], "e"), ("Tanh", ["e"], "f")], "f")
    renamed = branch([("Relu", ["b"], "t"), ("Tanh", ["t"], "e")], "e")
    graphs = [
        chosen(PLAIN, branch([("Relu", ["b"], "e"), ("Tanh", ["e"], "f")], "e")),
        chosen(PLAIN, branch([("Relu", ["a"], "e"), ("Tanh", ["e"], "f")], "f")),
        chosen(PLAIN, branch([("Relu", ["w"], "e"), ("Tanh", ["e"], "f")], "f")),
        chosen(PLAIN, branch([("Tanh", ["b"], "e"), ("Relu", ["e"], "f")], "f")),
        chosen(other, PLAIN),
        chosen(PLAIN, other),
    ]
    assert key(chosen(PLAIN, other)) == key(chosen(PLAIN, renamed))
    assert len({key(graph) for graph in graphs}) == len(graphs)


def test_order_of_nodes_inside_does_not_count() -> None:
    first = [
        ("Relu", ["b"], "l"),
        ("Tanh", ["a"], "r"),
        ("Exp", ["a"], "unused"),
        ("Sub", ["l", "r"], "e"),
    ]
    second = [first[2], first[1], first[0], first[3]]
    graphs = [chosen(PLAIN, branch(nodes, "e")) for nodes in (first, second)]
    assert key(graphs[0]) == key(graphs[1])
    assert cut(graphs[0], [0]).brick.model == cut(graphs[1], [0]).brick.model


def test_initializers_inside_are_moved_out() -> None:
    def graph(values: float, axes: list[int]) -> Graph:
        tensors = {"k": np.full((4, 4), values, np.float32), "axes": np.array(axes)}
        nodes = [("Add", ["b", "k"], "s"), ("ReduceSum", ["s", "axes"], "e")]
        return chosen(branch([], "k", {"k": tensors["k"]}), branch(nodes, "e", tensors))

    cutter = Cutter(graph(1, [1]))
    piece = cutter.cut([0])
    assert set(piece.weights) == {"k:0", "k:1"}
    assert piece.constants == ("axes:0",)
    assert set(piece.weights + piece.constants) <= set(cutter.graph.initializers)
    assert key(graph(1, [1])) == key(graph(2, [1])) != key(graph(1, [0]))


@pytest.mark.parametrize("switch", [True, False])
def test_a_brick_with_branches_runs(switch: bool) -> None:
    tensors = {"k": np.full((4, 4), 5, np.float32)}
    graph = chosen(branch([], "k", tensors), branch([("Add", ["b", "w"], "e")], "e"))
    cutter = Cutter(graph)
    feeds = {
        "switch": np.array(switch),
        "a": np.zeros((4, 4), np.float32),
        "b": np.ones((4, 4), np.float32),
    }
    (result,) = outputs_of(cutter.cut([0]), cutter.graph, feeds)
    assert (result == (5 if switch else 4)).all()


def test_a_loop_runs_and_its_trip_count_counts() -> None:
    graph = looped([("Add", ["state", "w"], "n"), ("Add", ["n", "h"], "m")], "m")
    piece = cut(graph, [0, 1])
    assert (piece.inputs, piece.weights, piece.constants) == (("a",), ("w",), ("trips",))
    onnx.checker.check_model(loadable(piece.brick.model))
    (result,) = outputs_of(piece, graph, {"a": np.ones((4, 4), np.float32)})
    assert (result == 7).all()
    more = {**graph.initializers, "trips": numpy_helper.from_array(np.array(4), "trips")}
    assert key(replace(graph, initializers=more)) != key(graph)


def test_a_captured_value_differs_from_a_carried_one() -> None:
    carried = looped([("Add", ["state", "state"], "n")], "n")
    captured = looped([("Add", ["state", "h"], "n")], "n")
    assert key(carried) != key(captured)


def test_names_of_dimensions_inside_do_not_count() -> None:
    body = [("Add", ["state", "w"], "n")]
    assert key(looped(body, "n", "N")) == key(looped(body, "n", "M")) != key(looped(body, "n", 4))


def test_sparse_initializers_inside_are_refused() -> None:
    then = branch([("Add", ["a", "w"], "t")], "t")
    then.sparse_initializer.add()
    with refused(ModelError, then.name):
        chosen(then, PLAIN)


def test_initializers_inside_are_not_overlooked() -> None:
    maker = Maker()
    maker.input("switch", SWITCH)
    then = branch([], "k", {"k": np.zeros((4, 4), np.float32)})
    maker.node("If", ["switch"], ["y"], then_branch=then, else_branch=then)
    with refused(ModelError, "If", "y"):
        Cutter(maker.graph())


def loadable(model: bytes) -> onnx.ModelProto:
    """The model with zeros for weights, since the checker looks for their file."""
    proto = onnx.load_from_string(model)
    for tensor in proto.graph.initializer:
        if tensor.data_location == TensorProto.EXTERNAL:
            zeros = np.zeros(tuple(tensor.dims), helper.tensor_dtype_to_np_dtype(tensor.data_type))
            tensor.CopyFrom(numpy_helper.from_array(zeros, tensor.name))
    return proto


def counted(how_often: str = "n") -> Graph:
    """Two Loops alike, each with a trip count that is computed, and so an input of the piece."""
    body = helper.make_graph(
        [
            helper.make_node("Add", ["state", "state"], ["next"]),
            helper.make_node("Identity", ["go"], ["on"]),
        ],
        "body",
        [info("i", TensorProto.INT64, []), info("go", TensorProto.BOOL, []), info("state")],
        [info("on", TensorProto.BOOL, []), info("next")],
    )
    maker = Maker()
    maker.input("a"), maker.input("b")
    for name in ("n", "m"):
        maker.input(f"data of {name}", TensorType("INT64", (2,)))
        maker.node("ReduceSum", [f"data of {name}"], [name], [TensorType("INT64", ())], keepdims=0)
    maker.node("Loop", [how_often, "", "a"], ["y"], body=body)
    maker.node("Loop", ["m", "", "b"], ["z"], body=body)
    maker.outputs = ["y", "z"]
    return maker.graph()


def test_what_a_computed_trip_count_holds_counts() -> None:
    def brick(times: int) -> Brick:
        return Cutter(counted(), contents=Contents(steering={"n": [times]})).cut([2]).brick

    assert brick(4).key == brick(4).key != brick(1024).key
    assert cut(counted(), [2]).brick.key not in {brick(4).key, brick(1024).key}
    # Neither the plan nor the store is needed: the model alone says all that counts.
    assert key_of(brick(1024).model) == brick(1024).key
    assert brick(1024).examples == {"i0": (1024,)}
    assert cut(counted(), [2]).brick.examples == {}


def test_steering_values_of_alike_inputs_tell_them_apart() -> None:
    def piece(n: int, m: int) -> Piece:
        return Cutter(counted(), contents=Contents(steering={"n": [n], "m": [m]})).cut([2, 3])

    keys = {piece(3, 5).brick.key, piece(5, 3).brick.key}
    assert len(keys) == 1
    assert keys.isdisjoint({piece(3, 3).brick.key, piece(5, 5).brick.key})
    for made in (piece(3, 5), piece(5, 3)):
        values = [values for values in made.brick.examples.values()]
        assert values == [values for values in piece(3, 5).brick.examples.values()]
    # The same loop takes both counts, or two loops take the same: not the same work.
    assert (
        piece(3, 3).brick.key
        != Cutter(counted("m"), contents=Contents(steering={"m": [3]})).cut([2, 3]).brick.key
    )
