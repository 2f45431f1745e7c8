"""Laws of overlapping bricks, on random graphs and, end to end, with both runtimes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import networkx as nx
import pytest
from factories import conv_net, mlp, model, node, save, value
from graphs import FLOATS, Maker
from hypothesis import given
from hypothesis import strategies as st
from plans import results
from tiers import one_in, slow_but

from bricks import Bench, Estimate
from bricks.backends.fake.backend import node_latency_s
from bricks.compose.basis import Basis
from bricks.compose.recompose import recompose
from bricks.decompose.build import build
from bricks.decompose.granularity import Granularity, split
from bricks.decompose.occurrence import Occurrence
from bricks.decompose.overlap import Window, windows
from bricks.decompose.plan import Decomposition, Plan
from bricks.graph.model import Graph, Model
from bricks.graph.topology import used_values
from bricks.measure.conditions import Conditions, StopRule
from bricks.samples.call_overhead import PROBES

MODEL = Model("net", Path(), b"", (), "m1-net")


def chain(length: int) -> Graph:
    maker = Maker()
    name = maker.input("x0")
    for i in range(length):
        name = maker.node("Relu" if i % 2 else "Tanh", [name], [f"x{i + 1}"])
    maker.outputs.append(name)
    return maker.graph()


@st.composite
def random_graphs(draw: st.DrawFn) -> Graph:
    maker = Maker()
    names = [maker.input("x"), maker.input("y")]
    for i in range(draw(st.integers(1, 30))):
        op = draw(st.sampled_from(["Relu", "Tanh", "Add", "Concat"]))
        ports = {"Add": 2, "Concat": 3}.get(op, 1)
        # Mostly what was made last, so that there are pieces of several layers.
        near = st.sampled_from(names[-1:] * 3 + names)
        reads = [draw(near) for _ in range(ports)]
        names.append(maker.node(op, reads, [f"v{i}"], [FLOATS]))
    maker.outputs.append(names[-1])
    return maker.graph()


sizes = st.integers(1, 12)


def overlapping(graph: Graph, layers: int) -> Decomposition:
    return build(MODEL, graph, Granularity(layers, overlap=True))


def cut(graph: Graph, layers: int) -> list[Window]:
    return windows(graph, Granularity(layers, overlap=True))


def test_a_chain_is_cut_into_windows_that_begin_with_the_layer_before() -> None:
    assert cut(chain(7), 3) == [
        Window((0, 1, 2)), Window((2,), repeats=0), Window((2, 3, 4, 5)),
        Window((5,), repeats=2), Window((5, 6)),
    ]  # fmt: skip


def test_bricks_of_one_layer_become_pairs() -> None:
    assert [window.nodes for window in cut(chain(3), 1)] == [(0,), (0,), (0, 1), (1,), (1, 2)]


def test_a_model_of_one_brick_has_nothing_to_share() -> None:
    assert cut(chain(4), 4) == [Window((0, 1, 2, 3))]


def test_where_several_layers_feed_a_brick_it_shares_the_last_of_them() -> None:
    maker = Maker()
    x = maker.input("x")
    a = maker.node("Relu", [x], ["a"])
    b = maker.node("Tanh", [a], ["b"])
    maker.outputs.append(maker.node("Add", [a, b], ["c"]))  # with a, b would lie in the middle
    assert cut(maker.graph(), 2) == [Window((0, 1)), Window((1,), repeats=0), Window((1, 2))]


def test_branches_from_one_layer_share_it_each() -> None:
    maker = Maker()
    x = maker.node("Relu", [maker.input("x")], ["a"])
    b, c = maker.node("Tanh", [x], ["b"]), maker.node("Abs", [x], ["c"])
    maker.outputs.append(maker.node("Add", [b, c], ["d"]))
    plan = overlapping(maker.graph(), 1).plan
    assert [(window.nodes, window.repeats) for window in cut(maker.graph(), 1)] == [
        ((0,), None), ((0,), 0), ((0, 1), None), ((0,), 0), ((0, 2), None), ((2,), 4),
        ((2, 3), None),
    ]  # fmt: skip
    assert plan.nodes == 4
    assert plan.counts[plan.occurrences[0].brick] == -1  # stands alone once, is shared twice


@given(random_graphs(), sizes)
def test_each_layer_counts_once_net(graph: Graph, layers: int) -> None:
    times: Counter[int] = Counter()
    for window in cut(graph, layers):
        times.update(dict.fromkeys(window.nodes, 1 if window.repeats is None else -1))
    assert times == dict.fromkeys(range(len(graph.nodes)), 1)
    assert overlapping(graph, layers).plan.nodes == len(graph.nodes)


@given(random_graphs(), sizes)
def test_bricks_are_those_without_overlap_and_at_most_one_layer_that_feeds_them(
    graph: Graph, layers: int
) -> None:
    found, pieces = cut(graph, layers), split(graph, Granularity(layers))
    bricks = [window.nodes for window in found if window.repeats is None]
    for piece, nodes in zip(pieces, bricks, strict=True):
        assert nodes[-len(piece) :] == piece
        assert len(nodes) <= len(piece) + 1
        if len(nodes) > len(piece):
            read = used_values(graph.nodes[piece[0]])
            assert set(graph.nodes[nodes[0]].output) & set(read)
    shared = [window for window in found if window.repeats is not None]
    assert all(window.nodes[0] in found[window.repeats].nodes for window in shared)
    assert [window.nodes for window in shared] == [
        n[:1] for n, p in zip(bricks, pieces, strict=True) if len(n) > len(p)
    ]


@given(random_graphs(), sizes)
def test_nothing_in_the_middle_of_a_brick_runs_outside_of_it(graph: Graph, layers: int) -> None:
    producer = {name: i for i, node in enumerate(graph.nodes) for name in node.output}
    flow = nx.DiGraph(
        (producer[name], i)
        for i, node in enumerate(graph.nodes)
        for name in used_values(node)
        if name in producer
    )
    flow.add_nodes_from(range(len(graph.nodes)))
    for window in cut(graph, layers):
        inside = set(window.nodes)
        after = set().union(*(nx.descendants(flow, i) for i in inside)) - inside
        assert not any(inside & nx.descendants(flow, i) for i in after)


@given(random_graphs(), sizes)
def test_a_plan_says_where_each_value_comes_from_and_travels(graph: Graph, layers: int) -> None:
    plan = overlapping(graph, layers).plan
    assert Plan.from_json(plan.to_json()) == plan
    made = list(plan.inputs)
    for i, occurrence in enumerate(plan.occurrences):
        assert set(occurrence.inputs) <= set(made), "read before it is made"
        made += occurrence.made
        if occurrence.sign < 0:
            assert plan.occurrences[i + 1].sign == 1
    assert len(made) == len(set(made)), "made twice"
    assert set(plan.outputs) <= set(made)
    assert len(plan.types) == len(made)


@given(random_graphs(), sizes)
def test_shared_layers_are_bricks_of_one_layer(graph: Graph, layers: int) -> None:
    """So they are measured once, whatever the granularity."""
    ones = set(build(MODEL, graph, Granularity(1)).bricks)
    plan = overlapping(graph, layers).plan
    assert {o.brick for o in plan.occurrences if o.sign < 0} <= ones


@given(random_graphs(), sizes)
def test_where_latencies_add_up_overlapping_changes_nothing(graph: Graph, layers: int) -> None:
    ones = build(MODEL, graph, Granularity(1)).plan.occurrences
    alone_s = {i: node_latency_s(one.brick) for i, one in enumerate(ones)}
    estimates = []
    for overlap in (False, True):
        granularity = Granularity(layers, overlap=overlap)
        plan = build(MODEL, graph, granularity).plan
        known = {
            o.brick: 2e-6 + sum(alone_s[i] for i in window.nodes)
            for o, window in zip(plan.occurrences, windows(graph, granularity), strict=True)
        }
        found = recompose(Basis(plan, results(known, overhead_s=2e-6), in_walk_call_factor=1.0))
        assert isinstance(found, Estimate)
        estimates.append(found)
    plain, overlapped = estimates
    assert plain.estimate_s == pytest.approx(2e-6 + sum(alone_s.values()))
    assert overlapped.estimate_s == pytest.approx(plain.estimate_s)
    assert overlapped.critical_path_s == pytest.approx(plain.critical_path_s)
    assert overlapped.low_s <= overlapped.estimate_s <= overlapped.high_s


def test_plans_without_overlap_are_written_as_before() -> None:
    place = Occurrence("b1-0", (0,), (1,), 2, None, (3,))
    assert place.to_json() == ["b1-0", [0], [1], 2, None, [3]]
    assert Occurrence.from_json(["b1-0", [0], [1], 2, None]) == Occurrence("b1-0", (0,), (1,), 2)


@pytest.mark.parametrize("text", ["1+1", "4+1"])
def test_the_text_of_a_granularity_gives_it_back(text: str) -> None:
    assert str(Granularity.parse(text)) == text
    assert Granularity.parse(text) != Granularity.parse(text.removesuffix("+1"))


def test_end_to_end_the_fake_runtime_adds_up(tmp_path: Path) -> None:
    path, estimates = save(conv_net(), tmp_path, "conv.onnx"), []
    for granularity in ("2", "2+1"):
        with Bench(tmp_path / "cache", runtime="fake", granularity=granularity, threads=1) as bench:
            read = bench.read(path)
            assert isinstance(bench.predict(read), Estimate)
            plan = bench.decompose(read).plan
            found = bench.store.measurements.results(
                bench.target.key, [*plan.keys, *PROBES.values()]
            )
            # The fake runtime's calls cost no more in a walk than in a probe.
            estimates.append(recompose(Basis(plan, found, in_walk_call_factor=1.0)))
    plain, overlapped = estimates
    assert isinstance(plain, Estimate) and isinstance(overlapped, Estimate)
    # Its samples vary by 0.4 %, each brick's in a pattern that begins elsewhere.
    assert overlapped.estimate_s == pytest.approx(plain.estimate_s, rel=0.01)


@pytest.fixture(scope="module", params=slow_but(lambda cut: cut == "4+1", ["1+1", "4+1"]))
def bench(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator:
    with Bench(tmp_path_factory.mktemp("cache"), granularity=request.param, threads=1) as made:
        yield made


@pytest.mark.parametrize("name", one_in(3, ["squeezenet", "shufflenet", "resnet18", "bert_mini"]))
def test_overlapping_bricks_chained_equal_the_model(name: str, bench: Bench) -> None:
    result = bench.verify(bench.read(name))
    assert result.difference.finite
    assert result.difference.max_rel <= result.difference.tolerance == 1e-3


def test_verifying_notices_a_brick_that_begins_from_another_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    operators = ("Tanh", "Sigmoid", "Softplus", "Tanh", "Sigmoid")
    nodes = [node(op, [f"x{i}"], [f"x{i + 1}"]) for i, op in enumerate(operators)]
    path = save(model(nodes, [value("x0", [2, 4])], [value("x5", [2, 4])]), tmp_path)
    with Bench(tmp_path / "cache", granularity="3+1", threads=1) as bench:
        read = bench.read(path)
        assert bench.verify(read).difference.max_rel <= 1e-6
        made = bench.decompose(read)
        first, *others = made.plan.occurrences
        ((k, number),) = first.hidden
        assert k == 1  # what Softplus takes, with which the second brick begins
        spoilt = replace(first, hidden=((0, number),))
        changed = replace(made, plan=replace(made.plan, occurrences=(spoilt, *others)))
        monkeypatch.setattr(bench.workspace.plans, "decompose", lambda read: changed)
        result = bench.verify(read)
    assert result.difference.max_rel > result.difference.tolerance


def test_overlapping_bricks_are_measured_once_and_their_plan_is_kept(tmp_path: Path) -> None:
    once = Conditions(rule=StopRule(min_rounds=1, max_rounds=1, passes=1), exclusive=False)
    path, estimates = save(mlp(), tmp_path), []
    for measure in (True, False):
        with Bench(tmp_path / "cache", granularity="2+1", threads=1, conditions=once) as bench:
            estimates.append(bench.predict(bench.read(path), measure=measure))
    assert isinstance(estimates[0], Estimate)
    assert estimates[0] == estimates[1]
