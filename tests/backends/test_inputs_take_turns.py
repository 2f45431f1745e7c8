"""Sets of values take turns at inputs, drawn before the first run and copied between runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from factories import constant, model, node, save, value
from onnx import helper

from bricks import Bench
from bricks.backends.base import BindableModel, Binding, RotatingInputs
from bricks.backends.input_values import (
    ALL_ELEMENTS,
    MOST_SETS,
    Rotation,
    Turns,
    joined,
    sets_in_turn,
)
from bricks.backends.instruments import NoPreparation
from bricks.backends.onnxruntime.graphs import OnnxRuntimeGraphs
from bricks.backends.onnxruntime.loaded import LoadedSession
from bricks.backends.onnxruntime.synthetic_data import SyntheticData
from bricks.graph.model_metadata import SPECIFIED, note, noted_sketches
from bricks.graph.sketch import COLUMNS, Sketch
from bricks.graph.synthesis import Pool
from bricks.graph.view import parse_model
from bricks.measure.protocol.walking import BackendSettings, BindPiece, LoadPiece
from bricks.measure.worker.input_turns import turns_of
from bricks.measure.worker.instruments import WorkerInstruments
from bricks.measure.worker.loaded_pieces import LoadedPieces
from bricks.measure.worker.runtime import WorkerRuntime
from bricks.operators.rotated_inputs import rotated_inputs
from bricks.units.sample import Sample

NOTHING = np.zeros(0, np.uint8)


@pytest.mark.parametrize(
    ("elements", "sets"), [(0, MOST_SETS), (30, MOST_SETS), (10_000, 209), (ALL_ELEMENTS, 2)]
)
def test_small_inputs_have_many_sets(elements: int, sets: int) -> None:
    assert sets_in_turn(elements) == sets


def test_sets_come_in_turn_at_every_binding() -> None:
    rotation, buffers = Rotation(), [np.zeros(4, np.float32) for _ in range(2)]
    made: list[int] = []

    def make(turn: int) -> np.ndarray:
        made.append(turn)
        return np.full(buffers[0].shape, turn, np.float32)

    turns = {"x": [0, 3, 7], "of another step": [1]}
    nexts = [rotation.of({"x": (buffer, make)}, turns) for buffer in buffers]
    for buffer, write in zip(buffers, nexts, strict=True):
        assert write is not None
        seen = []
        for _ in range(5):
            write()
            seen.append(buffer[0])
        assert seen == [0, 3, 7, 0, 3]
    assert made == [0, 3, 7]
    assert rotation.of({"x": (buffers[0], make)}, {"y": [0]}) is None


def test_runs_are_joined_along_rows() -> None:
    runs = [{"a": np.full((1, 2), n), "b": np.ones((2, n + 1)), "c": np.array(n)} for n in range(3)]
    tensors = joined(runs)
    assert tensors["a"].tolist() == [[0, 0], [1, 1], [2, 2]]
    assert tensors["b"].shape == (2, 1)  # of the first run
    assert tensors["c"].tolist() == [0, 1, 2]


def searching(known: bool = False) -> onnx.ModelProto:
    nodes = [
        node("TopK", ["x", "k"], ["values", "positions"]),
        node("Gather", ["table", "rows"], ["y"]),
        node("Relu", ["z"], ["w"]),
    ]
    inputs = [value("x", [100]), value("rows", [8], "INT64"), value("z", [4])]
    outputs = [value("values", [2]), value("y", [8, 64]), value("w", [4])]
    weights = [
        constant("k", [2], "INT64"),
        constant("table", np.zeros((1 << 13, 64)), "FLOAT"),
    ]
    proto = model(nodes, inputs, outputs, weights)
    if known:
        note(proto, SPECIFIED, {"x": [0.5] * 100})
    return proto


def test_sets_differ_and_have_one_distribution() -> None:
    _, inputs = SyntheticData(Pool(0)).of(searching(), "key")
    x, rows = inputs["x"][0], inputs["rows"][0]
    many = np.stack([x(turn) for turn in range(64)])
    assert np.array_equal(x(), many[0])
    assert len({each.tobytes() for each in many}) == 64
    assert abs(many.mean()) < 0.05 and many.std() == pytest.approx(3**-0.5, abs=0.02)
    indices = np.stack([rows(turn) for turn in range(64)])
    assert indices.min() >= 0 and indices.max() < 1 << 13
    assert len(np.unique(indices)) > 400
    _, known = SyntheticData(Pool(0)).of(searching(known=True), "key")
    assert np.array_equal(known["x"][0](7), np.full(100, 0.5, np.float32))


class Bound(RotatingInputs):
    """A model that records the turn in which each of its runs reads inputs."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.turn, self.turns = 0, list[int]()

    def bind(self, binding: Binding, region: np.ndarray) -> Bound:
        return self

    def rotation(self, turns: Turns) -> Callable[[], None] | None:
        self.names = set(turns)
        return self._next

    def _next(self) -> None:
        self.turn += 1

    def sample(self) -> Sample:
        self.turns.append(self.turn)
        return Sample(1e-3)


class Worker(WorkerRuntime):
    """A worker whose runtime loads a given model."""

    def __init__(self, bound: Bound, *, repeat: bool) -> None:
        super().__init__()
        self.settings = BackendSettings("fake", 1, 0, repeat_inputs=repeat)
        self._given = bound

    @property
    def backend(self) -> Any:
        return SimpleNamespace(sign_sensitive=lambda operator: False, load=self._load)

    @property
    def instruments(self) -> Any:
        return SimpleNamespace(preparation=lambda proto: NoPreparation())

    def _load(self, proto: onnx.ModelProto, **facts: object) -> Bound:
        return self._given


@pytest.mark.parametrize("repeat", [False, True])
def test_runs_read_other_values_unless_inputs_repeat(repeat: bool) -> None:
    bound = Bound()
    runtime = Worker(bound, repeat=repeat)
    pieces = LoadedPieces(runtime, WorkerInstruments(runtime))
    pieces.load(LoadPiece("m", "m1-key", searching().SerializeToString(), optimize=True))
    binding = Binding.separate(3, 3)
    pieces.bind(BindPiece("s", "m", binding.inputs, binding.outputs, repeated=True))
    run = pieces.steps["s"].runner(sampled=True)
    for _ in range(3):
        run()
    assert bound.names == (set() if repeat else {"x", "rows"})
    assert bound.turns == ([0] * 6 if repeat else [1, 2, 3])  # twice on data that stay


def test_a_session_rotates_inputs_in_its_own_memory() -> None:
    proto = searching()
    # Of its own, since a backend would share its threads and memory with all later tests.
    session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    loaded = LoadedSession(session, {}, SyntheticData(Pool(0)).of(proto, "key")[1])
    bound = loaded.bind(Binding.separate(3, 3), NOTHING)
    write = bound.rotation({"x": range(2), "rows": range(3)})
    assert write is not None
    for _ in range(3):
        write()
        assert bound.sample().host_s > 0
    assert bound.rotation({"of another model": [0]}) is None
    x_bytes = 4 * 100
    shared = Binding((0, None, None), (None,) * 3)
    assert loaded.bind(shared, np.zeros(x_bytes, np.uint8)).rotation({"x": [0, 1]}) is None


def choosing(threshold: float) -> onnx.ModelProto:
    """A branch that the sum of ``x`` chooses, before a search whose time depends on values."""
    branches = {
        f"{name}_branch": helper.make_graph([node(op, ["x"], [name])], name, [], [value(name, [9])])
        for name, op in (("then", "Relu"), ("else", "Neg"))
    }
    nodes = [
        node("ReduceSum", ["x"], ["sum"], keepdims=0),
        node("Greater", ["sum", "threshold"], ["condition"]),
        node("If", ["condition"], ["z"], **branches),
        node("TopK", ["z", "k"], ["y", "positions"]),
    ]
    weights = [constant("threshold", threshold, "FLOAT"), constant("k", [2], "INT64")]
    return model(nodes, [value("x", [9])], [value("y", [2])], weights)


class Observer(OnnxRuntimeGraphs):
    """The runtime without a pool of threads, which all later tests would share."""

    def load(self, proto: onnx.ModelProto, **facts: object) -> BindableModel:
        raise NotImplementedError

    def options(self, *, optimize: bool) -> ort.SessionOptions:
        return ort.SessionOptions()


@pytest.fixture(scope="module")
def runtime() -> Observer:
    return Observer(seed=0, level="all")


def test_inputs_that_choose_a_branch_change_among_those_that_choose_the_same(
    runtime: Observer,
) -> None:
    proto = choosing(0.0)
    turns = turns_of(runtime, proto, "m1-x", rotated_inputs(proto))
    make = runtime.data.of(proto, "m1-x")[1]["x"][0]
    signs = {bool(make(turn).sum() > 0) for turn in turns["x"]}
    assert len(signs) == 1 and turns["x"][0] == 0
    assert len(turns["x"]) == MOST_SETS


def test_an_input_repeats_where_no_other_chooses_the_same(runtime: Observer) -> None:
    proto = choosing(0.0)
    (run,) = runtime.observe(proto, ["sum"], key="m1-x")
    proto.graph.node[1].CopyFrom(node("Equal", ["sum", "threshold"], ["condition"]))
    proto.graph.initializer[0].CopyFrom(constant("threshold", run["sum"], "FLOAT"))
    assert turns_of(runtime, proto, "m1-x", rotated_inputs(proto)) == {}


def test_a_plan_says_which_inputs_repeat(runtime: Observer, tmp_path: Path) -> None:
    proto = choosing(0.0)
    (run,) = runtime.observe(proto, ["sum"], key="m1-x")
    proto.graph.node[1].CopyFrom(node("Equal", ["sum", "threshold"], ["condition"]))
    proto.graph.initializer[0].CopyFrom(constant("threshold", run["sum"], "FLOAT"))
    with Bench(cache=tmp_path / "cache", threads=1) as bench:
        plans = [
            bench.decompose(bench.read(save(each, tmp_path, f"{number}.onnx"))).plan
            for number, each in enumerate((choosing(0.0), proto))
        ]
    repeats = [[note for note in plan.assumed if "has the same values" in note] for plan in plans]
    assert [len(notes) for notes in repeats] == [0, 1]
    assert repeats[1][0].startswith("input 'x' ")


def test_few_rows_are_observed_over_several_runs(tmp_path: Path) -> None:
    """One row would show a constant."""
    facts = {
        "nodes_treeids": [0, 0, 0], "nodes_nodeids": [0, 1, 2], "nodes_featureids": [0, 0, 0],
        "nodes_values": [0.0, 0.0, 0.0], "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
        "nodes_truenodeids": [1, 0, 0], "nodes_falsenodeids": [2, 0, 0],
        "target_treeids": [0, 0], "target_nodeids": [1, 2], "target_ids": [0, 0],
        "target_weights": [1.0, 2.0], "n_targets": 1,
    }  # fmt: skip
    tree = helper.make_node(
        "TreeEnsembleRegressor", ["scaled"], ["y"], domain="ai.onnx.ml", **facts
    )
    scaled = node("Mul", ["x", "factor"], ["scaled"])
    ends = [value("x", [1, 3])], [value("y", [1, 1])]
    proto = model([scaled, tree], *ends, [constant("factor", 100 * np.ones(3), "FLOAT")])
    proto.opset_import.append(helper.make_opsetid("ai.onnx.ml", 3))
    with Bench(cache=tmp_path / "cache", threads=1) as bench:
        bricks = bench.decompose(bench.read(save(proto, tmp_path))).bricks.values()
    (brick,) = (b for b in bricks if b.operators == ("ai.onnx.ml.TreeEnsembleRegressor",))
    (sketch,) = noted_sketches(parse_model(brick.model)).values()
    assert not sketch.is_constant
    assert sketch.columns is not None and len(sketch.columns) == 3
    assert min(column[-1] - column[0] for column in sketch.columns) > 100  # of -100 to 100


def test_a_row_has_columns_of_its_own() -> None:
    table = np.random.default_rng(0).uniform(-1, 1, (64, 5))
    sketch = Sketch.of(table, (COLUMNS,))
    row = np.zeros((1, 5), np.float32)
    rows = np.concatenate([sketch.drawn(row, seed) for seed in range(200)])
    correlations = np.corrcoef(rows.T)[np.triu_indices(5, 1)]
    assert np.abs(correlations).max() < 0.3
