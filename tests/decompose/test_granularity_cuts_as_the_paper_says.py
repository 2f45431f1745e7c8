from __future__ import annotations

from pathlib import Path

import pytest
from graphs import FLOATS, Maker
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

from bricks.decompose.build import build
from bricks.decompose.granularity import Granularity, split
from bricks.decompose.lowering import Lowering
from bricks.decompose.plan import Plan
from bricks.errors import UsageError
from bricks.graph.model import Graph, Model


def chain(length: int) -> Graph:
    maker = Maker()
    name = maker.input("x0")
    for i in range(length):
        name = maker.node("Relu" if i % 2 else "Tanh", [name], [f"x{i + 1}"])
    maker.outputs.append(name)
    return maker.graph()


def test_a_chain_is_cut_into_windows() -> None:
    assert split(chain(7), Granularity(3)) == [(0, 1, 2), (3, 4, 5), (6,)]


def test_the_rest_of_a_window_is_cut_on_its_own() -> None:
    maker = Maker()
    x = maker.input("x")
    a = maker.node("Relu", [x], ["a"])
    b = maker.node("Tanh", [x], ["b"])  # a second branch: reads a value from before the window
    c = maker.node("Abs", [b], ["c"])
    maker.outputs.append(maker.node("Add", [a, c], ["d"]))
    assert split(maker.graph(), Granularity(3)) == [(0,), (1, 2), (3,)]


def test_a_concat_without_all_of_its_inputs_stands_alone() -> None:
    maker = Maker()
    x = maker.input("x")
    a = maker.node("Relu", [x], ["a"])
    b = maker.node("Tanh", [a], ["b"])
    joined = maker.node("Concat", [b, x], ["c"], axis=0)
    maker.outputs.append(maker.node("Abs", [joined], ["d"]))
    assert split(maker.graph(), Granularity(2)) == [(0, 1), (2, 3)]
    assert split(maker.graph(), Granularity(4)) == [(0,), (1,), (2, 3)]


def test_weights_do_not_stop_a_window() -> None:
    import numpy as np

    maker = Maker()
    x = maker.input("x")
    w = maker.initializer("w", np.ones((4, 4), np.float32))
    maker.outputs.append(maker.node("Add", [maker.node("Relu", [x], ["a"]), w], ["b"]))
    assert split(maker.graph(), Granularity(2)) == [(0, 1)]


@st.composite
def random_graphs(draw: st.DrawFn) -> Graph:
    maker = Maker()
    names = [maker.input("x")]
    for i in range(draw(st.integers(1, 30))):
        op = draw(st.sampled_from(["Relu", "Tanh", "Add", "Mul"]))
        reads = [draw(st.sampled_from(names)) for _ in range(2 if op in ("Add", "Mul") else 1)]
        names.append(maker.node(op, reads, [f"v{i}"], [FLOATS]))
    maker.outputs.append(names[-1])
    return maker.graph()


granularities = st.one_of(st.just(Granularity()), st.integers(1, 12).map(Granularity))


@given(random_graphs(), granularities)
def test_no_node_is_lost_and_none_is_there_twice(graph: Graph, granularity: Granularity) -> None:
    pieces = split(graph, granularity)
    assert [i for piece in pieces for i in piece] == list(range(len(graph.nodes)))
    assert all(len(piece) <= (granularity.layers or 1) for piece in pieces)


@given(random_graphs(), granularities, st.none() | st.integers(0, 1 << 40))
def test_a_plan_keeps_every_node_and_edge_and_travels(
    graph: Graph, granularity: Granularity, rewritten_bytes: int | None
) -> None:
    model = Model("net", Path(), b"", (), "m1-net")
    made = build(model, graph, granularity, lowering=Lowering(rewritten_bytes=rewritten_bytes))
    plan = made.plan
    assert plan.nodes == len(graph.nodes)
    assert plan.rewritten_bytes == rewritten_bytes
    assert set(plan.keys) == set(made.bricks)
    assert Plan.from_json(plan.to_json()) == plan
    produced = set(plan.inputs)
    for occurrence in plan.occurrences:
        assert set(occurrence.inputs) <= produced, "read before it is written"
        produced |= set(occurrence.outputs)
    assert set(plan.outputs) <= produced


@pytest.mark.parametrize(
    "text", ["0", "-1", "x", "1.5", "", "Executed", "4+2", "0+1", "+1", "4+1+1", "executed+1"]
)
def test_other_granularities_are_refused(text: str) -> None:
    with refused(UsageError, f"'{text}'", "executed"):
        Granularity.parse(text)
