"""A row is all that an operator needs, and nothing is known of an operator without one."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from graphs import one_node

from bricks.compose.memory.weights import workspace
from bricks.decompose.identity import Cutter
from bricks.graph.model import Graph
from bricks.graph.program import Call
from bricks.graph.sketch import QUANTILES
from bricks.graph.types import TensorType
from bricks.operators.dependence import decisive_values, dependent_inputs
from bricks.operators.integer_ranges import integer_ranges
from bricks.operators.operator import (
    Access,
    Features,
    Operator,
    axis_index,
    decided_by,
    names,
    per_output,
    to_first,
)
from bricks.operators.registry import (
    FAMILIES,
    OPERATORS,
    entries,
    flops,
    node_flops,
    operator_called,
)
from bricks.predict.features import extract_features

TABLE, POSITIONS, OUT = (
    TensorType("FLOAT", (7, 8)),
    TensorType("INT64", (4,)),
    TensorType("FLOAT", (4, 8)),
)
ROW = Operator(
    onnx=names("org.example.Blend"),
    aten=names("_blend"),
    work=per_output(3),
    values=decided_by(0, QUANTILES),
    restrict=axis_index(0),
    passes=to_first(1),
    workspace=lambda node, threads: (threads * node.tensor_at(0).size_bytes,),
    features=Features(selects=True, access=Access.ALONG_AXIS),
)


def blend() -> Graph:
    graph = one_node("Blend", TABLE, POSITIONS, out=OUT, domain="org.example")
    return replace(graph, opsets={**graph.opsets, "org.example": 1})


@pytest.fixture
def row(monkeypatch: pytest.MonkeyPatch) -> Operator:
    for key, row in entries([ROW]):
        monkeypatch.setitem(OPERATORS, key, row)
    return ROW


def test_a_row_says_all_of_an_operator(row: Operator) -> None:
    graph = blend()
    (node,) = graph.nodes
    brick = Cutter(graph).cut((0,)).brick
    assert flops(graph, [0]) == brick.flops == 3 * 32
    assert integer_ranges(graph, ["x1"])["x1"].high == 7
    assert decisive_values(node, graph.types) == ["x0"]
    assert workspace(brick, threads=2) == (2 * 224,)
    features = extract_features(brick)
    assert features.read_bytes == features.written_bytes
    assert features.tag("pattern") == "last"


def test_calls_share_the_row(row: Operator) -> None:
    call = Call("aten", "_blend_.Tensor", ([{"t": 0}, {"t": 1}], {})).node(["a", "b"], ["y"])
    types = {"a": TABLE, "b": POSITIONS, "y": OUT}
    assert node_flops(call, types) == 3 * 32
    assert decisive_values(call, types) == ["a"]


def test_nothing_is_known_without_a_row() -> None:
    graph = blend()
    brick = Cutter(graph).cut((0,)).brick
    assert flops(graph, [0]) is brick.flops is workspace(brick, threads=2) is None
    assert [*dependent_inputs(graph.nodes[0])] == []


def test_a_product_is_counted_alike_in_both_forms() -> None:
    graph = one_node("MatMul", TABLE, TensorType("FLOAT", (8, 3)), out=TensorType("FLOAT", (7, 3)))
    call = Call("aten", "mm", ([{"t": 0}, {"t": 1}], {})).node(["x0", "x1"], ["y"])
    assert flops(graph, [0]) == node_flops(call, graph.types) == 2 * 7 * 8 * 3


def test_each_name_has_one_row() -> None:
    keys = Counter(key for family in FAMILIES for key, _ in entries(family.OPERATORS))
    assert [key for key, count in keys.items() if count > 1] == []
    assert keys.keys() == OPERATORS.keys()


def test_names_after_domain_and_dot_find_their_row() -> None:
    assert operator_called("com.microsoft.FusedConv") is not operator_called("FusedConv")
    assert operator_called("org.pytorch.aten.add_.Tensor") is operator_called(
        "org.pytorch.aten.add.Scalar"
    )
