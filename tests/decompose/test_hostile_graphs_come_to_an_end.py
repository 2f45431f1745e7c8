"""Small files that ask for much: time, memory, nodes without end."""

import contextlib
import os
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import pytest
from factories import constant, mlp, model, node, save, value
from fork_server import children
from graphs import Maker
from hostile import peak_bytes, refusal
from onnx import helper
from refusals import refused
from tiers import slow_but

from bricks import Bench
from bricks.decompose import canonical
from bricks.decompose.identity import Cutter
from bricks.errors import BricksError, WorkerError
from bricks.graph.subgraphs import hoist
from bricks.graph.types import TensorType
from bricks.graph.view import graph_of
from bricks.measure.conditions import GRAPH_TIMEOUT_S
from bricks.measure.protocol import models
from bricks.measure.protocol.walking import UnloadAll
from bricks.measure.supervisor import Supervisor, WorkerDied, WorkerSettings
from bricks.operators import integer_ranges as following
from bricks.operators.integer_ranges import integer_ranges
from bricks.operators.registry import flops
from bricks.reading.read import read_model

# Graphs that take long to understand


@pytest.mark.slow
def test_following_integers_through_a_graph_ends(tmp_path: Path) -> None:
    """Sums and products of integers, whose bounds multiply on the way."""
    maker, ints = Maker(), TensorType("INT64", (4,))
    at = maker.input("x", ints)
    one, two = (maker.initializer(f"k{i}", np.array([i])) for i in (1, 2))
    for i in range(400):
        added = maker.node("Add", [at, one], [f"a{i}"], [ints])
        doubled = maker.node("Mul", [at, two], [f"b{i}"], [ints])
        at = maker.node("Max", [added, doubled], [f"v{i}"], [ints])
    follower = following._UseFollower(maker.graph())
    for name in maker.types:
        follower.range_of(name, ints)
    followed = following._ALL_STEPS - follower._steps_left
    assert followed < following._ALL_STEPS + following._MAX_STEPS + 1200 * following._FEW_STEPS


def ring(size: int) -> onnx.GraphProto:
    """Nodes of which each looks like every other."""
    nodes = [node("Relu", ["x"], [f"r{i}"]) for i in range(size)]
    nodes += [node("Add", [f"r{i}", f"r{(i + 1) % size}"], [f"s{i}"]) for i in range(size)]
    return helper.make_graph(nodes, "ring", [], [onnx.ValueInfoProto(name="s0")])


def test_telling_equal_nodes_apart_ends(tmp_path: Path) -> None:
    maker, one = Maker(), TensorType("FLOAT", (1,))
    maker.input("x", one)
    maker.input("c", TensorType("BOOL", ()))
    for i in range(12):
        maker.node("If", ["c"], [f"y{i}"], [one], then_branch=ring(100 + i))
    cutter = Cutter(maker.graph())
    spent = [cutter._visits_left]
    for i in range(12):
        cutter.cut((i,))
        spent.append(cutter._visits_left)
    assert all(a - b < 2 * canonical.VISITS for a, b in pairwise(spent))
    assert spent[-1] > -canonical.VISITS


def test_constants_of_many_branches_are_named_without_trying_all_names() -> None:
    branch = helper.make_graph(
        [node("Add", ["x", "k"], ["z"])], "b", [], [value("z", [1])], [constant("k", [1])]
    )
    nodes = [node("If", ["c"], [f"y{i}"], then_branch=branch) for i in range(500)]
    inputs = [value("c", [], "BOOL"), value("x", [1], "INT64")]
    graph = model(nodes, inputs, [value("y0", [1], "INT64")], [constant("k:3", [1])]).graph
    hoist(graph)
    names = [tensor.name for tensor in graph.initializer]
    assert names == ["k:3", *(f"k:{i}" for i in range(501) if i != 3)]


@pytest.mark.parametrize(
    ("op", "ports", "attributes"),
    [
        ("Mul", 1, {}),
        ("Sub", 3, {}),
        ("ReverseSequence", 2, {"time_axis": 1}),
        ("ReverseSequence", 2, {"time_axis": -7}),
        ("Gather", 2, {"axis": 2**62}),
        ("OneHot", 2, {}),
        ("LSTM", 5, {}),
        ("GatherND", 2, {"batch_dims": -(2**62)}),
    ],
)
def test_integers_at_ports_that_do_not_fit_the_operator_are_no_error(
    op: str, ports: int, attributes: dict[str, int]
) -> None:
    names = [f"x{i}" for i in range(ports)]
    inputs = [value(name, [3], "INT64") for name in names]
    proto = model([node(op, names, ["y"], **attributes)], inputs, [value("y", None)])
    assert integer_ranges(graph_of(proto), names).keys() <= set(names)


@pytest.mark.parametrize(
    ("op", "attributes"),
    [
        ("MaxPool", {"kernel_shape": [2**62, 2**62]}),
        ("MaxPool", {"kernel_shape": [-3]}),
        ("LRN", {"size": 2**62}),
        ("Einsum", {"equation": "abc->"}),
        ("Einsum", {"equation": b"\xff"}),
        ("LSTM", {}),
    ],
)
def test_work_that_attributes_make_senseless_is_unknown(
    op: str, attributes: dict[str, object]
) -> None:
    four = TensorType("FLOAT", (4, 4))
    maker = Maker()
    inputs = [maker.input("x", four), maker.input("w", four)]
    maker.node(op, inputs, ["y"], [four], **attributes)
    assert flops(maker.graph(), [0]) is None


# Functions


def calling(*bodies: list[onnx.NodeProto], output: str = "b") -> onnx.ModelProto:
    """A model of one call, and functions f0, f1, … from a to b with these nodes."""
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    functions = [
        helper.make_function("local", f"f{i}", ["a"], [output], body, imports)
        for i, body in enumerate(bodies)
    ]
    return model(
        [call(0, "x", "y")],
        [value("x", [1])],
        [value("y", [1])],
        domains=["local"],
        functions=functions,
    )


def call(number: int, source: str, target: str, **attributes: object) -> onnx.NodeProto:
    return node(f"f{number}", [source], [target], domain="local", **attributes)


def in_an_if(inner: onnx.NodeProto) -> list[onnx.NodeProto]:
    body = helper.make_graph([inner], "body", [], [onnx.ValueInfoProto(name="b")])
    choice = node("Constant", [], ["c"], value_int=1)
    return [choice, node("If", ["c"], ["b"], then_branch=body, else_branch=body)]


def twice(number: int) -> list[onnx.NodeProto]:
    return [call(number, "a", "t"), call(number, "t", "b")]


RELU = [node("Relu", ["a"], ["b"])]


def test_functions_that_call_themselves_are_refused(tmp_path: Path) -> None:
    for proto in (
        calling([call(0, "a", "b")]),
        calling([call(1, "a", "b")], [call(2, "a", "b")], [call(0, "a", "b")]),
        calling(in_an_if(call(0, "a", "b"))),
    ):
        assert "calls itself: refused" in refusal(save(proto, tmp_path))


@pytest.mark.parametrize("levels", [15, 20, 50])
def test_functions_that_grow_without_end_are_refused(tmp_path: Path, levels: int) -> None:
    proto = calling(*(twice(i + 1) for i in range(levels)), RELU)
    assert f"would make {3 * 2**levels - 2} nodes" in refusal(save(proto, tmp_path))


def test_functions_that_make_graphs_too_deep_are_refused(tmp_path: Path) -> None:
    chain = [[call(i + 1, "a", "b")] for i in range(3000)]
    assert "nested too deep" in refusal(save(calling(*chain, RELU), tmp_path))
    deep = [in_an_if(call(i + 1, "a", "b")) for i in range(40)]
    assert "nested too deep" in refusal(save(calling(*deep, RELU), tmp_path))


def test_functions_that_repeat_what_they_are_given_are_refused(tmp_path: Path) -> None:
    many = calling([node("Sum", ["a"] * 5000, ["b"])])
    many.graph.input[0].name = many.graph.node[0].input[0] = "x" * 100_000
    assert "(476 MiB) of 2: refused" in refusal(save(many, tmp_path))
    graph = helper.make_graph(RELU, "body", [], [onnx.ValueInfoProto(name="b")])
    passing = calling(RELU)
    passing.graph.node[0].CopyFrom(call(0, "x", "y", body=graph))
    assert "passes a graph to a function" in refusal(save(passing, tmp_path))


def test_a_function_that_is_defined_twice_is_refused(tmp_path: Path) -> None:
    proto = calling(RELU)
    proto.functions.append(proto.functions[0])
    assert "function f0 is defined more than once" in refusal(save(proto, tmp_path))


def test_functions_as_exporters_write_them_are_inlined(tmp_path: Path) -> None:
    proto = calling(twice(1), twice(2), in_an_if(call(3, "a", "b")), RELU)
    read = onnx.ModelProto.FromString(read_model(save(proto, tmp_path)).skeleton)
    assert [n.op_type for n in read.graph.node] == ["If"] * 4


# Time and memory of what runs in the worker


def test_an_answer_that_would_fill_the_memory_is_not_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bricks.measure.worker_process.MAX_ANSWER_BYTES", 1 << 20)
    program = "print('x' * (4 << 20), flush=True); input()"
    with (
        Supervisor(WorkerSettings("fake", 1, 0, command=(sys.executable, "-c", program))) as one,
        refused(WorkerDied, "1 MiB"),
    ):
        one.ask(UnloadAll(), timeout_s=30)


def endless(turns: int) -> onnx.ModelProto:
    """A Loop whose result is of a shape that only running it tells."""
    body = helper.make_graph(
        [node("Identity", ["go"], ["on"]), node("Concat", ["a", "a"], ["b"], axis=0)]
        if turns < 100
        else [node("Identity", ["go"], ["on"]), node("NonZero", ["a"], ["b"])],
        "body",
        [value("turn", [], "INT64"), value("go", [], "BOOL"), value("a", None, "INT64")],
        [value("on", [], "BOOL"), value("b", None, "INT64")],
    )
    loop = node("Loop", ["turns", "", "x"], ["y"], body=body)
    inputs, outputs = [value("x", [2], "INT64")], [value("y", None, "INT64")]
    return model([loop], inputs, outputs, [constant("turns", turns)])


@pytest.mark.parametrize("granularity", slow_but("executed".__eq__, ["executed", "1"]))
def test_a_loop_without_end_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, granularity: str
) -> None:
    path = save(endless(2**62), tmp_path)
    with Bench(tmp_path / "c", granularity=granularity, threads=1) as bench:
        hostile = bench.read(path)
        with monkeypatch.context() as impatient:
            impatient.setattr(models, "MIN_REQUEST_S", 1.0)
            with refused(WorkerError, "model", "1 s"):
                bench.decompose(hostile)
        bench.decompose(bench.read(save(mlp(), tmp_path, "next.onnx")))


def test_what_work_on_a_graph_may_take_grows_with_the_model() -> None:
    def allowed(*widths: int, batch: int = 1) -> tuple[float, int]:
        proto = mlp(widths=widths, batch=batch)
        for tensor in proto.graph.initializer:
            tensor.data_location = onnx.TensorProto.EXTERNAL
        return models.allowed_s(proto), models.allowed_bytes(proto)

    tiny, deep = allowed(1, 1), allowed(*[1] * 200)
    wide, batched = allowed(1024, 4096, 1024), allowed(1024, 4096, 1024, batch=4096)
    assert tiny[0] < 6
    assert tiny[1] < 1.1 * 2**30
    assert tiny[0] < deep[0]
    assert tiny < wide < batched
    assert allowed(1 << 10, 1 << 14, batch=1 << 30)[0] == GRAPH_TIMEOUT_S


INFLATING = {
    "a loop that doubles": endless(40),
    "a constant of a shape": model(
        [node("ConstantOfShape", ["shape"], ["y"])],
        [value("x", [1])],
        [value("y", None)],
        [constant("shape", [1 << 20, 1 << 10])],
    ),
    "a long range": model(
        [node("Range", ["none", "many", "one"], ["r"]), node("Add", ["x", "r"], ["y"])],
        [value("x", [1], "INT64")],
        [value("y", None, "INT64")],
        [constant("none", 0), constant("many", 1 << 30), constant("one", 1)],
    ),
    "an expansion": model(
        [node("Expand", ["x", "shape"], ["e"]), node("NonZero", ["e"], ["y"])],
        [value("x", [1])],
        [value("y", None, "INT64")],
        [constant("shape", [1 << 30])],
    ),
}


@pytest.mark.parametrize("proto", INFLATING.values(), ids=INFLATING)
@pytest.mark.parametrize("granularity", ["executed", "1"])
@pytest.mark.slow
def test_a_few_bytes_cannot_ask_for_gigabytes(
    tmp_path: Path, proto: onnx.ModelProto, granularity: str
) -> None:
    before = children()
    with Bench(tmp_path / "c", granularity=granularity, threads=1) as bench:
        bench.decompose(bench.read(save(mlp(), tmp_path, "first.onnx")))
        (worker,) = set(children()).difference(before)
        with contextlib.suppress(BricksError):
            bench.decompose(bench.read(save(proto, tmp_path)))
        if worker.is_running():
            assert peak_bytes(worker.pid) < 2 << 30
        assert peak_bytes(os.getpid()) < 2 << 30
