from pathlib import Path

import numpy as np
import onnx
import pytest
from factories import constant, embedding_net, model, node, one_node, save, value
from graphs import Maker, cut
from onnx import TensorProto, helper

from bricks.graph.model_metadata import inner_types
from bricks.graph.synthesis import Range
from bricks.graph.types import TensorType
from bricks.graph.view import graph_of, parse_model, source_graph
from bricks.operators.integer_ranges import assumptions, integer_ranges, observations
from bricks.reading.read import read_model


def ranges(tmp_path: Path, proto: onnx.ModelProto) -> dict[str, tuple[int, int]]:
    return {
        name: (permitted.low, permitted.high)
        for name, permitted in whole_ranges(tmp_path, proto).items()
    }


def whole_ranges(tmp_path: Path, proto: onnx.ModelProto) -> dict[str, Range]:
    graph = source_graph(read_model(save(proto, tmp_path)))
    return integer_ranges(graph, graph.inputs)


def test_token_ids_are_indices_and_masks_are_valid(tmp_path):
    permitted = whole_ranges(tmp_path, embedding_net(vocabulary=100))
    assert (permitted["ids"].low, permitted["ids"].high) == (0, 100)
    assert permitted["ids"].why == "an index of Gather, from 0 to 99"
    assert (permitted["mask"].low, permitted["mask"].high) == (1, 2)


def test_an_index_is_followed_through_what_hands_it_on(tmp_path):
    nodes = [
        node("Cast", ["i"], ["a"], to=TensorProto.INT64),
        node("Unsqueeze", ["a", "axis"], ["b"]),
        node("Concat", ["b", "b"], ["c"], axis=0),
        node("Transpose", ["c"], ["d"]),
        node("Mul", ["d", "two"], ["e"]),
        node("Add", ["e", "three"], ["f"]),
        node("Gather", ["table", "f"], ["y"]),
    ]
    initializers = [constant("axis", [0]), constant("two", 2), constant("three", [3, 3])]
    initializers.append(constant("table", np.zeros((20, 2)), "FLOAT"))
    proto = model(nodes, [value("i", [2], "INT32")], [value("y", None)], initializers)
    # 0 ≤ 2·i + 3 < 20
    assert ranges(tmp_path, proto) == {"i": (-1, 9)}


@pytest.mark.parametrize(("dtype", "middle"), [("INT8", 0), ("UINT8", 128)])
def test_zero_points_of_weights_are_alike_and_in_the_middle(tmp_path, dtype, middle):
    """Where they differ, kernels take ways that no real model takes."""
    operands = ["x", "scale", "zero", "w", "scales", "zeros", "scale", "zero"]
    proto = model(
        [node("QLinearConv", operands, ["y"])],
        [value("x", [1, 2, 4, 4], "UINT8"), value("zero", [], "UINT8"), value("zeros", [3], dtype)],
        [value("y", None, "UINT8")],
        [
            constant("scale", 0.1, "FLOAT"),
            constant("scales", [0.1] * 3, "FLOAT"),
            constant("w", np.ones((3, 2, 1, 1)), dtype),
        ],
    )
    permitted = ranges(tmp_path, proto)
    assert permitted["zeros"] == (middle, middle + 1)
    assert permitted["x"] == permitted["zero"] == (0, 256)


def test_several_uses_intersect(tmp_path):
    tables = [constant(f"t{n}", np.zeros((n, 2)), "FLOAT") for n in (5, 9)]
    nodes = [node("Gather", [t.name, "i"], [f"y.{t.name}"]) for t in tables]
    nodes.append(node("Equal", ["i", "pad"], ["z"]))
    dtypes = ("FLOAT", "FLOAT", "BOOL")
    outputs = [value(n.output[0], None, t) for n, t in zip(nodes, dtypes, strict=True)]
    proto = model(nodes, [value("i", [2], "INT64")], outputs, [*tables, constant("pad", 1)])
    assert ranges(tmp_path, proto) == {"i": (0, 5)}


def test_sequence_lengths_are_the_length(tmp_path):
    weights = [
        constant("w", np.zeros((1, 16, 3)), "FLOAT"),
        constant("r", np.zeros((1, 16, 4)), "FLOAT"),
    ]
    inputs = [value("x", [7, 2, 3]), value("lens", [2], "INT32")]
    outputs = [value("y", None)]
    order = ["x", "w", "r", "", "lens"]
    proto = one_node("LSTM", inputs, outputs, weights, order=order, hidden_size=4)
    assert ranges(tmp_path, proto) == {"lens": (7, 8)}
    weights = [
        constant("w", np.zeros((1, 12, 3)), "FLOAT"),
        constant("r", np.zeros((1, 12, 4)), "FLOAT"),
    ]
    proto = one_node("GRU", inputs, outputs, weights, order=order, hidden_size=4)
    assert ranges(tmp_path, proto) == {"lens": (7, 8)}


def test_quantised_data_takes_its_whole_type(tmp_path):
    initializers = [constant("scale", 0.1, "FLOAT"), constant("zero", 0, "UINT8")]
    proto = one_node(
        "DequantizeLinear", [value("q", [4], "UINT8")], [value("y", None)], initializers
    )
    assert ranges(tmp_path, proto) == {"q": (0, 256)}
    initializers[1] = constant("zero", 0, "INT8")
    proto = one_node(
        "DequantizeLinear", [value("q", [4], "INT8")], [value("y", None)], initializers
    )
    assert ranges(tmp_path, proto) == {"q": (-128, 128)}


def test_values_that_give_shapes_are_left_out(tmp_path):
    graph = source_graph(
        read_model(
            save(
                one_node(
                    "Reshape",
                    [value("x", [4]), value("shape", [2], "INT64")],
                    [value("y", None)],
                ),
                tmp_path,
            )
        ),
        {"y": floats((2, 2))},
    )
    assert integer_ranges(graph, graph.inputs) == {}


def floats(shape: tuple[int, ...]) -> TensorType:
    return TensorType("FLOAT", shape)


def test_scattered_and_multiple_indices_are_bounded(tmp_path):
    inputs = [value("x", [6, 4]), value("i", [2, 2], "INT64")]
    proto = one_node("GatherND", inputs, [value("y", None)])
    assert ranges(tmp_path, proto) == {"i": (0, 4)}
    proto = one_node("GatherElements", inputs, [value("y", None)], axis=1)
    assert ranges(tmp_path, proto) == {"i": (0, 4)}
    inputs.append(value("u", [2]))
    proto = one_node("ScatterND", inputs, [value("y", None)])
    assert ranges(tmp_path, proto) == {"i": (0, 4)}
    inputs[2] = value("u", [2, 2])
    proto = one_node("ScatterElements", inputs, [value("y", None)], axis=0)
    assert ranges(tmp_path, proto) == {"i": (0, 6)}


def test_one_hot_indices_stay_below_the_depth(tmp_path):
    initializers = [constant("depth", 12), constant("values", [0, 1])]
    proto = one_node(
        "OneHot", [value("i", [3], "INT64")], [value("y", None, "INT64")], initializers
    )
    assert ranges(tmp_path, proto) == {"i": (0, 12)}


def test_embeddings_of_fused_models_are_indices(tmp_path):
    tables = [("word", 50), ("position", 16), ("segment", 2)]
    initializers = [constant(name, np.zeros((rows, 4)), "FLOAT") for name, rows in tables]
    initializers += [constant(name, np.ones(4), "FLOAT") for name in ("gamma", "beta")]
    inputs = [value(name, [1, 8], "INT32") for name in ("ids", "segments", "mask")]
    order = ["ids", "segments", "word", "position", "segment", "gamma", "beta", "mask"]
    outputs = [value("y", [1, 8, 4]), value("m", [1], "INT32")]
    proto = one_node(
        "EmbedLayerNormalization",
        inputs,
        outputs,
        initializers,
        order=order,
        domain="com.microsoft",
    )
    read = read_model(save(proto, tmp_path))
    known = {"y": floats((1, 8, 4)), "m": floats((1,))}
    graph = source_graph(read, known)
    permitted = integer_ranges(graph, graph.inputs)
    assert {name: (r.low, r.high) for name, r in permitted.items()} == {
        "ids": (0, 50), "segments": (0, 2), "mask": (1, 2),
    }  # fmt: skip


@pytest.mark.parametrize("op", ["Div", "Mod"])
def test_integers_are_never_divided_by_zero(tmp_path, op):
    inputs = [value("a", [3], "INT64"), value("b", [3], "INT64")]
    permitted = ranges(tmp_path, one_node(op, inputs, [value("y", None, "INT64")]))
    assert permitted["b"][0] >= 1


def test_a_mask_that_is_turned_round_is_valid(tmp_path):
    proto = one_node("Sub", [value("m", [3], "INT64")], [value("y", None, "INT64")],
                     [constant("one", 1)], order=["one", "m"])  # fmt: skip
    assert ranges(tmp_path, proto) == {"m": (1, 2)}


def test_booleans_are_true_and_floats_are_none_of_this(tmp_path):
    inputs = [value("c", [3], "BOOL"), value("x", [3])]
    proto = one_node("Where", inputs, [value("y", None)], order=["c", "x", "x"])
    assert ranges(tmp_path, proto) == {"c": (1, 2)}


def test_what_nothing_restricts_says_so(tmp_path):
    proto = one_node("Abs", [value("i", [3], "INT64")], [value("y", None, "INT64")])
    permitted = whole_ranges(tmp_path, proto)["i"]
    assert (permitted.low, permitted.high) == (0, 2)
    assert "nothing in the graph restricts it" in permitted.why


def test_uses_inside_subgraphs_count(tmp_path):
    def branch(name: str, rows: int) -> onnx.GraphProto:
        table = constant(f"{name}.t", np.zeros((rows, 2)), "FLOAT")
        gather = node("Gather", [table.name, "i"], [f"{name}.y"])
        return helper.make_graph([gather], name, [], [value(f"{name}.y", [3, 2])], [table])

    choice = node("If", ["c"], ["y"], then_branch=branch("a", 11), else_branch=branch("b", 8))
    inputs = [value("c", [], "BOOL"), value("i", [3], "INT64")]
    assert ranges(tmp_path, model([choice], inputs, [value("y", [3, 2])]))["i"] == (0, 8)


def test_uses_that_contradict_each_other_leave_nothing(tmp_path):
    initializers = [constant("far", 100), constant("t", np.zeros((5, 2)), "FLOAT")]
    nodes = [
        node("Add", ["i", "far"], ["j"]),
        node("Gather", ["t", "j"], ["y"]),
        node("Gather", ["t", "i"], ["z"]),
    ]
    proto = model(
        nodes, [value("i", [1], "INT64")], [value("y", None), value("z", None)], initializers
    )
    assert ranges(tmp_path, proto) == {}


def test_what_is_assumed_is_said():
    nodes = [
        node("Gather", ["table", "ids"], ["a"]),
        node("Add", ["free", "free"], ["b"]),
        node("Expand", ["a", "shape"], ["c"]),
    ]
    proto = model(
        nodes,
        [value("ids", [3], "INT64"), value("free", [2], "INT64"), value("shape", [2], "INT64")],
        [value("b", [2], "INT64"), value("c", None)],
        [constant("table", [[0.0], [1.0]], "FLOAT")],
    )
    assert assumptions(graph_of(proto)) == [
        "input 'free': nothing in the graph restricts it: assumed 0 or 1",
        "input 'shape' gives a shape, count or axis, and is made up all the same:"
        " say with --value what it holds",
    ]


def test_equal_nodes_have_one_note():
    def observed(count: int) -> list[str]:
        nodes = [node("NonZero", ["x"], [f"n{n}"], name=f"n{n}") for n in range(count)]
        outputs = [value(f"n{n}", [2, 7], "INT64") for n in range(count)]
        graph = graph_of(model(nodes, [value("x", [3, 4])], outputs))
        return observations(graph, {f"n{n}" for n in range(count)})

    assert observed(1) == ["NonZero 'n0' gives 'n0' int64[2,7], as on synthetic data"]
    assert observed(64) == [
        "64 NonZero ('n0', 'n1', 'n2' and 61 more) give each int64[2,7], as on synthetic data"
    ]


def test_what_a_brick_holds_in_between_says_what_its_inputs_may_hold():
    """Rows of two indices address the first two axes of the data, and not the third."""
    maker = Maker()
    pairs, single = TensorType("INT64", (6, 2)), TensorType("INT64", (6, 1))
    columns = [maker.input("row", single), maker.input("column", single)]
    at = maker.node("Concat", columns, ["at"], [pairs], axis=1)
    data = maker.input("data", TensorType("FLOAT", (3, 5, 1)))
    maker.outputs.append(maker.node("GatherND", [data, at], ["y"], [TensorType("FLOAT", (6, 1))]))
    brick = cut(maker.graph(), [0, 1]).brick
    proto = parse_model(brick.model)
    assert inner_types(proto) == {"v0": pairs}
    permitted = integer_ranges(graph_of(proto), list(brick.inputs))
    assert [(r.low, r.high) for r in permitted.values()] == [(0, 3), (0, 3)]
