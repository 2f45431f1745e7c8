from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import onnx
import pytest
from graphs import FLOATS, Maker, adds, cut, disguised, isomorphic, one_node, random_graph
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bricks.decompose.canonical import SearchBudget, canonical_order
from bricks.decompose.identity import Cutter, key_of
from bricks.graph.model import Graph
from bricks.graph.types import TensorType

SEEDS = st.integers(0, 10**6)
PAIRS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=6)


def key(graph: Graph, nodes: Sequence[int] | None = None) -> str:
    return cut(graph, range(len(graph.nodes)) if nodes is None else nodes).brick.key


@settings(deadline=None, max_examples=30)
@given(SEEDS, SEEDS)
def test_a_disguised_graph_is_the_same_brick_to_the_byte(seed: int, other: int) -> None:
    graph = random_graph(seed)
    hidden = disguised(graph, other)
    plain, found = (
        cut(graph, range(len(graph.nodes))),
        cut(hidden, range(len(graph.nodes))),
    )
    assert plain.brick == found.brick
    assert isomorphic(graph, hidden)


@settings(deadline=None, max_examples=30)
@given(SEEDS, SEEDS)
def test_the_single_nodes_of_a_disguised_graph_are_the_same_bricks(seed: int, other: int) -> None:
    def keys(graph: Graph) -> list[str]:
        cutter = Cutter(graph)
        return sorted(cutter.cut([i]).brick.key for i in range(len(graph.nodes)))

    graph = random_graph(seed)
    assert keys(graph) == keys(disguised(graph, other))


@settings(deadline=None, max_examples=100)
@given(PAIRS, PAIRS, st.booleans())
@example(
    [(0, 1), (1, 2), (2, 0), (3, 4), (4, 5), (5, 3)], [(i, (i + 1) % 6) for i in range(6)], True
)
@example(
    [(0, 1), (1, 2), (2, 0), (3, 4), (4, 5), (5, 3)], [(i, (i + 1) % 6) for i in range(6)], False
)
@example([(0, 0), (1, 1)], [(0, 1), (1, 0)], False)
@example(
    [(0, 0), (0, 0), (0, 0), (0, 1), (0, 1), (1, 0)],
    [(0, 0), (0, 0), (0, 1), (0, 0), (0, 1), (1, 0)],
    False,
)
def test_keys_are_equal_just_when_networkx_finds_an_isomorphism(
    first: list[tuple[int, int]], second: list[tuple[int, int]], weights: bool
) -> None:
    a, b = adds(first, weights=weights), adds(second, weights=weights)
    assert (key(a) == key(b)) == isomorphic(a, b)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 400), st.integers(0, 400), st.integers(1, 3))
def test_small_random_graphs_agree_with_networkx(first: int, second: int, size: int) -> None:
    a, b = random_graph(first, size), random_graph(second, size)
    assert (key(a) == key(b)) == isomorphic(a, b)


@settings(deadline=None, max_examples=40)
@given(
    st.sampled_from(["cycle", "complete", "cube", "two cycles", "torus"]),
    SEEDS,
    st.booleans(),
)
def test_very_symmetric_graphs_have_one_canonical_form(
    shape: str, seed: int, weights: bool
) -> None:
    edges = {
        "cycle": [(i, (i + 1) % 9) for i in range(9)],
        "complete": [(i, j) for i in range(5) for j in range(5) if i != j],
        "cube": [(i, i ^ (1 << k)) for i in range(8) for k in range(3)],
        "two cycles": [(i, (i + 1) % 4) for i in range(4)]
        + [(4 + i, 4 + (i + 1) % 5) for i in range(5)],
        "torus": [(i, i // 3 * 3 + (i + 1) % 3) for i in range(9)]
        + [(i, (i + 3) % 9) for i in range(9)],
    }[shape]
    graph = adds(edges, weights=weights)
    assert key(graph) == key(disguised(graph, seed))


@pytest.mark.parametrize("shared", [True, False])
def test_interchangeable_branches_are_the_same_in_any_order(shared: bool) -> None:
    maker = Maker()
    for i in range(32):
        if not shared or not i:
            maker.input(f"x{i}")
        value = "x0" if shared else f"x{i}"
        for op in ("Relu", "Tanh", "Exp"):
            value = maker.node(op, [value], [f"{op}{i}"])
    graph = maker.graph()
    assert key(graph) == key(disguised(graph, 3))


def test_ordering_interchangeable_branches_takes_few_visits() -> None:
    numbers = random.Random(1).sample(range(96), 96)
    kinds = [b"%d" % (i % 3) for i in range(96)]
    chains = [(i, i + 1, "") for i in range(96) if i % 3 != 2]
    mixed = [b""] * 96
    for i, number in enumerate(numbers):
        mixed[number] = kinds[i]
    forms = []
    for labels, edges in (
        (kinds, chains),
        (mixed, [(numbers[a], numbers[b], label) for a, b, label in chains]),
    ):
        rank = {v: r for r, v in enumerate(canonical_order(labels, edges, SearchBudget(500)))}
        forms.append(sorted((rank[a], rank[b]) for a, b, _ in edges))
    assert forms[0] == forms[1]


def test_a_search_cut_short_still_yields_every_vertex() -> None:
    edges = [(i, (i + 1) % 12, "") for i in range(12)]
    assert sorted(canonical_order([b""] * 12, edges, SearchBudget(0))) == list(range(12))


def test_order_of_attributes_and_how_a_tensor_is_written_do_not_count() -> None:
    shape = np.array([2, 8])
    graph = one_node("Reshape", FLOATS, shape, out=TensorType("FLOAT", (2, 8)), allowzero=0)
    typed = onnx.helper.make_tensor("k1", onnx.TensorProto.INT64, [2], [2, 8])
    assert not typed.raw_data
    assert key(graph) == key(replace(graph, initializers={"k1": typed}))


def test_the_format_version_is_kept_but_does_not_count() -> None:
    graph = one_node("Relu", FLOATS)
    new, old = replace(graph, ir_version=10), replace(graph, ir_version=3)
    a, b = cut(graph, [0]).brick, cut(new, [0]).brick
    assert a.key == b.key
    assert onnx.load_from_string(b.model).ir_version == 10
    assert onnx.load_from_string(cut(old, [0]).brick.model).ir_version == 4


def test_a_key_can_be_computed_again_from_the_brick() -> None:
    graph = random_graph(5)
    for nodes in ([0], range(len(graph.nodes))):
        brick = cut(graph, nodes).brick
        assert key_of(brick.model) == brick.key
        assert brick.key.startswith("b1-") and len(brick.key) == 35


@pytest.mark.parametrize("dtype", ["UINT8", "INT8"])
def test_quantised_values_are_weights_whatever_their_size(dtype: str) -> None:
    out = TensorType("FLOAT", (4,))
    zeros = [np.array(z, dtype.lower()) for z in (3, 100)]
    scale = np.array(0.1, np.float32)
    of = TensorType(dtype, (4,))
    first, second = (one_node("DequantizeLinear", of, scale, z, out=out) for z in zeros)
    assert key(first) == key(second)
    assert set(cut(first, [0]).weights) == {"k1", "k2"}
