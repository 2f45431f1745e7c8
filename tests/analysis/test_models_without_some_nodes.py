"""An edited model and its original: nodes are bypassed or given, and errors in common cancel."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
import pytest
from commands import Here, chain
from factories import conv_net, model, node, save, value
from onnx import shape_inference
from recorded_programs import training_step
from refusals import refused

from bricks import Bench
from bricks.analysis.what_if import shortened
from bricks.errors import ModelError, UsageError
from bricks.graph.removal import Removal, matching_nodes, without_nodes
from bricks.graph.view import graph_of

QUICK: dict[str, Any] = {"runtime": "fake", "threads": 1}


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with Bench(tmp_path / "cache", **QUICK) as bench:
        yield bench


def removed(proto: onnx.ModelProto, *patterns: str) -> Removal:
    inferred = shape_inference.infer_shapes(proto)
    positions = matching_nodes("net", proto.graph.node, patterns)
    result = without_nodes(proto, positions, graph_of(inferred).types)
    onnx.checker.check_model(result.proto)
    return result


def operators(of: Removal) -> list[str]:
    return [node.op_type for node in of.proto.graph.node]


def branching() -> onnx.ModelProto:
    """A product with another shape between two sums, whose second input is computed."""
    nodes = [
        node("Neg", ["x"], ["n"]),
        node("Add", ["n", "x"], ["s"], name="first/sum"),
        node("Concat", ["s", "s"], ["c"], axis=1, name="join"),
        node("ReduceSum", ["c"], ["r"], keepdims=1),
        node("Mul", ["c", "r"], ["y"], name="last"),
    ]
    return model(nodes, [value("x", [1, 4])], [value("y", [1, 8])])


def test_a_node_with_one_value_of_its_type_is_bypassed() -> None:
    of = removed(branching(), "Neg")
    assert operators(of) == ["Add", "Concat", "ReduceSum", "Mul"]
    assert [*of.proto.graph.node[0].input] == ["x", "x"]
    assert (of.bypassed, of.given) == (("Neg",), ())


def test_what_only_a_bypassed_node_read_is_gone_too() -> None:
    of = removed(branching(), "last")
    assert operators(of) == ["Neg", "Add", "Concat"]
    assert [output.name for output in of.proto.graph.output] == ["c"]


def test_results_of_any_other_node_are_given_and_its_inputs_are_computed() -> None:
    of = removed(branching(), "join")
    assert operators(of) == ["Neg", "Add", "ReduceSum", "Mul"]
    assert [each.name for each in of.proto.graph.input] == ["x", "c"]
    assert [each.name for each in of.proto.graph.output] == ["y", "s"]
    assert (of.bypassed, of.given) == ((), ("Concat",))
    twice = removed(branching(), "first/*")  # two values of its type: which one it stands for?
    assert twice.given == ("Add",)


def test_nodes_in_a_row_are_removed_together() -> None:
    of = removed(chain("Neg", "Abs", "Relu"), "Neg", "Abs")
    assert operators(of) == ["Relu"]
    assert [*of.proto.graph.node[0].input] == ["x"]


def test_nothing_is_left_of_a_model_without_all_its_nodes() -> None:
    with refused(ModelError, "graph"):
        removed(chain("Neg", "Abs"), "*")


def test_names_are_patterns_and_mistakes_are_met_with_the_nearest() -> None:
    nodes = branching().graph.node
    assert matching_nodes("net", nodes, ["Add"]) == matching_nodes("net", nodes, ["first/*"]) == [1]
    assert matching_nodes("net", nodes, ["y", "Neg"]) == [0, 4]
    with refused(UsageError, "net", "Concta", "Concat"):
        matching_nodes("net", nodes, ["Concta"])


def test_an_edited_graph_is_compared_in_one_call(bench: Bench) -> None:
    original = conv_net()
    edited = conv_net(blocks=1)
    original.graph.name = edited.graph.name = "net"
    one, other = bench.read(original), bench.read(edited)
    answer = bench.what_if(one, other)
    assert answer.original == bench.predict(one)
    assert answer.edited == bench.predict(other)
    assert answer.gain.value == answer.original.estimate_s - answer.edited.estimate_s


def test_errors_of_bricks_that_both_have_cancel(bench: Bench) -> None:
    read = bench.read(conv_net())
    same = bench.what_if(read, read)
    assert (same.gain.value, same.gain.half_width) == (0, 0)
    shorter = bench.what_if(read, bench.read(conv_net(blocks=2))).gain
    assert shorter.half_width < bench.predict(read).latency_s.half_width


def test_a_program_has_no_nodes_to_leave_out(bench: Bench, tmp_path: Path) -> None:
    program = bench.read(save(training_step(), tmp_path, "step.onnx"))
    with refused(UsageError, "PyTorch"):
        shortened(bench.workspace, program, ["Conv"])


def test_the_command_says_what_is_left(here: Here, tmp_path: Path) -> None:
    path = save(conv_net(), tmp_path, "conv.onnx")
    explain = ("explain", path, "--threads", 1, "--without", "Relu,Gemm")
    assert here(*explain).status == 0  # measures: the host is known better from then on
    facts = here(*explain, "--json").json
    (row,) = facts["models"]
    assert (row["bypassed"], row["given"], row["error"]) == (4, 1, None)
    assert row["gain_s"] == pytest.approx(row["estimate_s"] - row["without_s"])
    assert facts["answer"].startswith("conv without 4 Relu and 1 Gemm takes ")
    shown = here(*explain)
    assert shown.out.splitlines()[0] == facts["answer"]
    assert "Bypassed: 4 Relu." in shown.out and "Results given: 1 Gemm." in shown.out
    mistyped = here("explain", path, "--without", "Rleu")
    assert mistyped.status == 2 and "did you mean Relu?" in mistyped.complaint
