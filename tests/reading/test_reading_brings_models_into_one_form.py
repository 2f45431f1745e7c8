from pathlib import Path

import numpy as np
import onnx
import pytest
from factories import constant, conv_net, model, node, save, value
from graphs import run
from onnx import helper, numpy_helper

from bricks.graph.model import Model
from bricks.graph.types import TensorType
from bricks.graph.view import source_graph
from bricks.reading.read import read_model

LIGHT = sorted((Path(onnx.__file__).parent / "backend/test/data/light").glob("*.onnx"))


def skeleton(read: Model) -> onnx.ModelProto:
    return onnx.load_from_string(read.skeleton)


@pytest.mark.parametrize("path", LIGHT, ids=lambda path: path.stem)
def test_models_of_ir_version_3_are_read(path):
    assert onnx.load(path).ir_version == 3
    read = read_model(path)
    assert [type.shape for _, type in read.inputs] == [(1, 3, 224, 224)]
    assert skeleton(read).ir_version == 4
    graph = source_graph(read)
    assert graph.types[graph.outputs[0]].shape[:2] == (1, 1000)


def test_constants_become_initializers(tmp_path):
    attributes = {
        "value": numpy_helper.from_array(np.array([1.5], np.float32)),
        "value_int": 3,
        "value_ints": [1, 2],
        "value_float": 0.5,
        "value_floats": [0.25, 0.75],
    }
    nodes = [node("Constant", [], [name], **{name: v}) for name, v in attributes.items()]
    nodes.append(node("Constant", [], ["text"], value_string="hello"))
    nodes.append(node("Identity", ["text"], ["kept"]))
    sums = ["x", "value", "value_float"]
    nodes.append(node("Sum", sums, ["s"]))
    nodes.append(node("Add", ["value_int", "value_ints"], ["t"]))
    nodes.append(node("Identity", ["value_floats"], ["u"]))
    outputs = [value("s", None), value("t", None, "INT64"), value("u", None)]
    graph = skeleton(read_model(save(model(nodes, [value("x", [1])], outputs), tmp_path))).graph
    constants = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
    assert {name: array.tolist() for name, array in constants.items()} == {
        "value": [1.5], "value_int": 3, "value_ints": [1, 2],
        "value_float": 0.5, "value_floats": [0.25, 0.75],
    }  # fmt: skip
    assert constants["value_int"].dtype == np.int64
    assert constants["value_floats"].dtype == np.float32
    assert [n.op_type for n in graph.node] == ["Constant", "Identity", "Sum", "Add", "Identity"]


def test_nodes_are_sorted_and_sorted_nodes_stay(tmp_path):
    proto = conv_net()
    names = [n.name for n in proto.graph.node]
    assert [n.name for n in skeleton(read_model(save(proto, tmp_path))).graph.node] == names
    nodes = list(proto.graph.node)[::-1]
    del proto.graph.node[:]
    proto.graph.node.extend(nodes)
    assert [n.name for n in skeleton(read_model(save(proto, tmp_path))).graph.node] == names


def test_a_node_comes_after_what_its_subgraph_captures(tmp_path):
    body = helper.make_graph([node("Abs", ["outer"], ["t"])], "b", [], [value("t", [1])])
    nodes = [
        node("If", ["c"], ["y"], then_branch=body, else_branch=body),
        node("Relu", ["x"], ["outer"]),
    ]
    proto = model(nodes, [value("c", [], "BOOL"), value("x", [1])], [value("y", [1])])
    graph = skeleton(read_model(save(proto, tmp_path))).graph
    assert [n.op_type for n in graph.node] == ["Relu", "If"]


def test_functions_are_inlined(tmp_path):
    function = helper.make_function(
        "local", "Twice", ["a"], ["b"], [node("Add", ["a", "a"], ["b"])],
        [helper.make_opsetid("", 17)],
    )  # fmt: skip
    nodes = [
        helper.make_node("Twice", ["x"], ["h"], domain="local"),
        helper.make_node("Twice", ["h"], ["y"], domain="local"),
    ]
    proto = model(
        nodes, [value("x", [2])], [value("y", [2])], domains=["local"], functions=[function]
    )
    read = skeleton(read_model(save(proto, tmp_path)))
    assert [n.op_type for n in read.graph.node] == ["Add", "Add"]
    assert not read.functions


def test_the_long_name_of_the_standard_domain_is_understood(tmp_path):
    proto = model(
        [node("Relu", ["x"], ["y"], domain="ai.onnx")], [value("x", [2])], [value("y", [2])]
    )
    graph = source_graph(read_model(save(proto, tmp_path)))
    assert graph.nodes[0].domain == ""
    assert graph.types["y"] == TensorType("FLOAT", (2,))


def test_an_input_with_a_default_is_a_constant(tmp_path):
    proto = model(
        [node("Add", ["x", "k"], ["y"])],
        [value("x", [2]), value("k", [2])],
        [value("y", [2])],
        [constant("k", [1, 2], "FLOAT")],
    )
    assert [name for name, _ in read_model(save(proto, tmp_path)).inputs] == ["x"]


def test_constants_in_subgraphs_are_moved_outside(tmp_path):
    then = helper.make_graph(
        [
            node("Constant", [], ["k"], value=numpy_helper.from_array(np.array([2], np.float32))),
            node("Add", ["x", "k"], ["t"]),
        ],
        "then", [], [value("t", [1])],
    )  # fmt: skip
    other = helper.make_graph([], "else", [], [value("k", [1])], [constant("k", [3], "FLOAT")])
    proto = model(
        [node("If", ["c"], ["y"], then_branch=then, else_branch=other)],
        [value("c", [], "BOOL"), value("x", [1])],
        [value("y", [1])],
    )
    graph = skeleton(read_model(save(proto, tmp_path))).graph
    constants = {t.name: numpy_helper.to_array(t).tolist() for t in graph.initializer}
    assert constants == {"k:0": [2], "k:1": [3]} or constants == {"k:1": [2], "k:0": [3]}
    for attribute in graph.node[0].attribute:
        assert not attribute.g.initializer
        # What a branch returns must be its own: an initializer is copied.
        assert [n.op_type for n in attribute.g.node] == [
            "Add" if attribute.name == "then_branch" else "Identity"
        ]


def test_initializers_that_nobody_reads_are_dropped(tmp_path):
    body = helper.make_graph([node("Add", ["x", "inner"], ["t"])], "b", [], [value("t", [1])])
    names = ("read", "inner", "handed on", "unread")
    proto = model(
        [
            node("If", ["c"], ["z"], then_branch=body, else_branch=body),
            node("Add", ["z", "read"], ["y"]),
        ],
        [value("c", [], "BOOL"), value("x", [1])],
        [value("y", [1]), value("handed on", [1])],
        [constant(name, [1], "FLOAT") for name in names],
    )
    read = read_model(save(proto, tmp_path))
    assert [t.name for t in skeleton(read).graph.initializer] == list(names[:3])
    del proto.graph.initializer[3]
    assert read_model(save(proto, tmp_path)).digest == read.digest


def test_the_empty_domain_is_written_in_one_way(tmp_path):
    proto = model([node("Relu", ["x"], ["y"])], [value("x", [2])], [value("y", [2])])
    digests = set()
    for domain in (None, "", "ai.onnx"):
        proto.graph.node[0].ClearField("domain")
        if domain is not None:
            proto.graph.node[0].domain = domain
        digests.add(read_model(save(proto, tmp_path)).digest)
    assert len(digests) == 1


def test_what_a_model_computes_stays_when_constants_of_nested_subgraphs_move(tmp_path):
    """A Loop with an If in it; each graph calls a constant of its own ``k``, one is captured."""

    def branch(nodes, result, *tensors):
        return helper.make_graph(nodes, result, [], [value(result, [2])], list(tensors))

    ten = numpy_helper.from_array(np.array([10, 20], np.float32))
    then = branch([node("Add", ["state", "k"], ["t"])], "t")
    other = branch(
        [node("Constant", [], ["q"], value=ten), node("Mul", ["state", "q"], ["e"])], "e"
    )
    body = helper.make_graph(
        [
            node("Identity", ["go"], ["on"]),
            node("If", ["go"], ["new"], then_branch=then, else_branch=other),
        ],
        "body",
        [value("i", [], "INT64"), value("go", [], "BOOL"), value("state", [2])],
        [value("on", [], "BOOL"), value("new", [2]), value("k", [2])],
        [constant("k", [3, 4], "FLOAT")],
    )
    sibling = branch([node("Neg", ["k"], ["n"])], "n", constant("k", [5, 6], "FLOAT"))
    nodes = [
        node("Loop", ["times", "c", "x"], ["y", "all"], body=body),
        node("If", ["c"], ["z"], then_branch=sibling, else_branch=sibling),
    ]
    proto = model(
        nodes,
        [value("c", [], "BOOL"), value("x", [2])],
        [value("y", [2]), value("all", None), value("z", [2])],
        [constant("times", 2), constant("k:0", 0)],
    )
    read = skeleton(read_model(save(proto, tmp_path)))
    constants = {t.name: numpy_helper.to_array(t).tolist() for t in read.graph.initializer}
    assert constants.pop("times") == 2
    assert sorted(constants.values()) == [[3, 4], [5, 6], [5, 6], [10, 20]]
    for switch in (True, False):
        feeds = {"c": np.array(switch), "x": np.array([1, 2], np.float32)}
        results = [run(m.SerializeToString(), feeds, {}) for m in (proto, read)]
        for before, after in zip(*results, strict=True):
            np.testing.assert_array_equal(before, after)
