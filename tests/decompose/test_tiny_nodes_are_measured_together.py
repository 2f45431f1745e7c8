"""Nodes that take less than a call are bricks together where many follow each other."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import pytest
from factories import constant, model, node, save, value

from bricks import Bench, Decomposition
from bricks.decompose.granularity import Granularity, split
from bricks.graph.model import Graph
from bricks.graph.program import Call
from bricks.graph.types import TensorType
from bricks.graph.view import source_graph
from bricks.measure.conditions import Conditions, StopRule
from bricks.measure.walk_builder import walk_of
from bricks.predict.features import extract_features
from bricks.reading.read import read_model

ONCE = Conditions(rule=StopRule(min_rounds=1, max_rounds=1, passes=1), exclusive=False)


def chain(length: int, width: int = 8, wide_at: int | None = None) -> onnx.ModelProto:
    """Sums and products with numbers of their own; at ``wide_at``, of all rows of a table."""
    names = ["x", *(f"v{i}" for i in range(1, length)), "y"]
    nodes, constants = [], []
    for i in range(length):
        shape = (4096, width) if i == wide_at else (width,)
        constants.append(constant(f"w{i}", np.full(shape, 0.5 + i / 1e4), "FLOAT"))
        nodes.append(node("Mul" if i % 2 else "Add", [names[i], f"w{i}"], [names[i + 1]]))
    if wide_at is not None:
        nodes.insert(wide_at + 1, node("ReduceSum", [names[wide_at + 1]], ["sum"], keepdims=0))
        nodes[wide_at + 2].input[0] = "sum"
    return model(nodes, [value("x", [width])], [value("y", None)], constants)


def lengths(proto: onnx.ModelProto, folder: Path) -> list[int]:
    """The number of nodes in each brick of the executed graph, as if it were the source."""
    graph = source_graph(read_model(save(proto, folder)))
    return [len(part) for part in split(graph, Granularity(None))]


def test_a_long_stretch_is_one_brick_and_a_short_one_is_not(tmp_path: Path) -> None:
    assert lengths(chain(8), tmp_path) == [1] * 8
    assert lengths(chain(100), tmp_path) == [100]


def test_a_very_long_stretch_is_several_bricks(tmp_path: Path) -> None:
    assert lengths(chain(2048 + 40), tmp_path) == [2048, 40]


def test_calls_of_a_recorded_program_stay_apart() -> None:
    names = [f"v{i}" for i in range(101)]
    calls = [
        Call("aten", "relu", ([{"t": 0}], {})).node([read], [made])
        for read, made in pairwise(names)
    ]
    types = dict.fromkeys(names, TensorType("FLOAT", (8,)))
    graph = Graph(tuple(calls), ("v0",), ("v100",), {}, types, {}, 8)
    assert split(graph, Granularity(None)) == [(i,) for i in range(100)]


def test_large_values_end_a_stretch(tmp_path: Path) -> None:
    assert lengths(chain(100, width=2048), tmp_path) == [1] * 100
    assert lengths(chain(100, wide_at=40), tmp_path) == [40, 1, 1, 59]


def test_nodes_whose_values_are_read_far_away_stay_apart(tmp_path: Path) -> None:
    proto = chain(100)
    outputs = [value(name, [8]) for node_ in proto.graph.node for name in node_.output]
    del proto.graph.output[:]
    proto.graph.output.extend(outputs)
    assert lengths(proto, tmp_path) == [1] * 100


def test_shapes_are_computed_by_single_nodes(tmp_path: Path) -> None:
    names = ["x", *(f"v{i}" for i in range(1, 50)), "y"]
    nodes = [node("Add", [a, "one"], [b]) for a, b in pairwise(names)]
    shape = [value("x", [2], "INT64")], [value("y", [2], "INT64")]
    assert lengths(model(nodes, *shape, [constant("one", [1])]), tmp_path) == [1] * 50


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with Bench(tmp_path_factory.mktemp("cache"), threads=1, conditions=ONCE) as made:
        yield made


@pytest.fixture(scope="module")
def twice(bench: Bench, tmp_path_factory: pytest.TempPathFactory) -> Decomposition:
    """Two equal stretches, each as long as one may be."""
    return bench.decompose(bench.read(save(chain(4096), tmp_path_factory.mktemp("twice"))))


def test_equal_stretches_are_one_brick(twice: Decomposition) -> None:
    assert [occurrence.nodes for occurrence in twice.plan.occurrences] == [2048, 2048]
    assert len(twice.bricks) == 1
    assert twice.plan.nodes == 4096


@pytest.mark.parametrize(
    ("nodes", "stretches"), [(100, [100]), pytest.param(4096, [2048, 2048], marks=pytest.mark.slow)]
)
def test_stretches_compute_what_the_model_does(
    bench: Bench, tmp_path: Path, nodes: int, stretches: list[int]
) -> None:
    read = bench.read(save(chain(nodes), tmp_path))
    decomposition = bench.decompose(read)
    assert [o.nodes for o in decomposition.plan.occurrences] == stretches
    assert len(decomposition.bricks) == 1
    assert bench.verify(read).exact
    assert bench.measure([read]).failures == ()


def test_places_of_a_stretch_have_sessions_of_their_own_and_are_run_once(
    twice: Decomposition,
) -> None:
    walk = walk_of(twice, twice.bricks.keys())
    assert len({step.load for step in walk.steps if step.timed}) == 2
    assert not any(step.repeated for step in walk.steps)


def test_what_is_predicted_grows_with_the_nodes(bench: Bench, tmp_path: Path) -> None:
    few, many = (
        bench.decompose(bench.read(save(chain(n), tmp_path, f"{n}.onnx"))) for n in (50, 1200)
    )
    calls = [
        extract_features(*decomposition.bricks.values()).calls for decomposition in (few, many)
    ]
    assert calls[1] > 20 * calls[0]
