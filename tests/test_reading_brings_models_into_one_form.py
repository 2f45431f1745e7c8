from pathlib import Path

import numpy as np
import onnx
import pytest
from factories import constant, conv_net, model, node, save, value
from onnx import helper, numpy_helper

from bricks.graph.model import Model
from bricks.graph.read import read_model
from bricks.graph.source import source_graph
from bricks.graph.tensor import TensorType

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
    held = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
    assert {name: array.tolist() for name, array in held.items()} == {
        "value": [1.5], "value_int": 3, "value_ints": [1, 2],
        "value_float": 0.5, "value_floats": [0.25, 0.75],
    }  # fmt: skip
    assert held["value_int"].dtype == np.int64
    assert held["value_floats"].dtype == np.float32
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
