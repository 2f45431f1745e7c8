"""Optimisers count their steps on the host of a GPU: their calls there are noted, no others."""

from __future__ import annotations

from typing import Any

import onnx
from onnx import TensorProto, helper

from bricks.graph.call import BACKWARD, OPTIMIZER
from bricks.graph.host_calls import note_host_calls
from bricks.graph.program import PHASE, Call, call_of

T0, T1 = {"t": 0}, {"t": 1}
READ = "_local_scalar_dense"


def called(
    operator: str, inputs: list[str], outputs: list[str], *arguments: Any, phase: str = OPTIMIZER
) -> onnx.NodeProto:
    node = Call("aten", operator, (list(arguments), {})).node(inputs, outputs)
    node.metadata_props.add(key=PHASE, value=phase)
    return node


def on_host(*nodes: onnx.NodeProto, begins: dict[str, tuple[int, ...]]) -> list[bool]:
    """Whether each call is noted, in a program that begins with these FLOAT tensors."""
    inner = {name for node in nodes for name in node.output if name}
    declared = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, begins.get(name, ()))
        for name in (*begins, *inner)
    ]
    graph = helper.make_graph(nodes, "g", declared[: len(begins)], [], value_info=[])
    graph.value_info.extend(declared[len(begins) :])
    proto = helper.make_model(graph)
    noted = note_host_calls(proto)
    found = [call_of(node).on_host for node in proto.graph.node]
    assert noted == sum(found)
    return found


def test_a_count_that_one_is_added_to_is_counted_and_read_on_the_host() -> None:
    count = called("add_.Tensor", ["step"], ["counted"], T0, 1)
    norm = called("linalg_vector_norm", ["weight"], ["norm"], T0)
    reads = [called(READ, [name], [], T0) for name in ("counted", "norm")]
    found = on_host(count, norm, *reads, begins={"step": (), "weight": (8,)})
    assert found == [True, False, True, False]


def test_a_list_of_counts_is_counted_with_a_tensor_of_the_host() -> None:
    one = called("lift_fresh", ["one"], ["lifted"], T0)
    lists = called("_foreach_add_.Tensor", ["a", "b", "lifted"], ["a1", "b1"], [T0, T1], {"t": 2})
    read = called(READ, ["b1"], [], T0)
    assert on_host(one, lists, read, begins={"one": (), "a": (), "b": ()}) == [True] * 3


def test_counts_of_a_fused_optimizer_are_on_the_gpu() -> None:
    lists = called("_foreach_add_.Scalar", ["a", "b"], ["a1", "b1"], [T0, T1], 1)
    assert on_host(lists, called(READ, ["a1"], [], T0), begins={"a": (), "b": ()}) == [False] * 2


def test_what_the_step_has_computed_is_no_count() -> None:
    loss = called("mean", ["weight"], ["loss"], T0, phase=BACKWARD)
    more = called("add_.Tensor", ["loss"], ["more"], T0, 1)
    other = called("add_.Tensor", ["scale"], ["scaled"], T0, 1, phase=BACKWARD)
    vector = called("add_.Tensor", ["weight"], ["weighted"], T0, 1)
    found = on_host(loss, more, other, vector, begins={"weight": (8,), "scale": ()})
    assert found == [False] * 4
