from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest
from graphs import Maker, outputs_of
from onnx import TensorProto, helper, numpy_helper

from bricks.decompose.identity import Cutter, identify
from bricks.errors import ModelError
from bricks.graph.graph import Graph
from bricks.graph.tensor import TensorType

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
    return maker.graph()


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
    return identify(graph, range(len(graph.nodes))).brick.key


def test_captured_values_become_inputs_and_weights() -> None:
    piece = identify(chosen(PLAIN, branch([("Relu", ["b"], "e")], "e")), [0])
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
    assert identify(graphs[0], [0]).brick.model == identify(graphs[1], [0]).brick.model


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
    piece = identify(graph, [0, 1])
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
    with pytest.raises(ModelError, match="sparse"):
        Cutter(chosen(then, PLAIN))


def loadable(model: bytes) -> onnx.ModelProto:
    """The model with zeros for weights, since the checker looks for their file."""
    proto = onnx.load_from_string(model)
    for tensor in proto.graph.initializer:
        if tensor.data_location == TensorProto.EXTERNAL:
            zeros = np.zeros(tuple(tensor.dims), helper.tensor_dtype_to_np_dtype(tensor.data_type))
            tensor.CopyFrom(numpy_helper.from_array(zeros, tensor.name))
    return proto
