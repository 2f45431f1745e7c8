"""Sets of values take turns at inputs, drawn before the first run and copied between runs."""

from __future__ import annotations

from collections.abc import Callable, Collection
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from factories import constant, model, node, value

from bricks.backends.base import Binding, RotatingInputs
from bricks.backends.instruments import NoPreparation
from bricks.backends.onnxruntime.backend import OnnxRuntimeBackend
from bricks.backends.onnxruntime.synthetic_data import SyntheticData
from bricks.backends.rotation import ALL_ELEMENTS, MOST_SETS, Rotation, joined, sets_in_turn
from bricks.graph.model_metadata import SPECIFIED, note
from bricks.graph.sketch import COLUMNS, Sketch
from bricks.graph.synthesis import Pool
from bricks.measure.protocol.loading import BindPiece, LoadPiece
from bricks.measure.protocol.process import BackendSettings
from bricks.measure.worker.instruments import WorkerInstruments
from bricks.measure.worker.loaded_pieces import LoadedPieces
from bricks.measure.worker.runtime import WorkerRuntime
from bricks.units.sample import Sample

NOTHING = np.zeros(0, np.uint8)


@pytest.mark.parametrize(
    ("elements", "sets"), [(0, MOST_SETS), (30, MOST_SETS), (10_000, 209), (ALL_ELEMENTS, 2)]
)
def test_small_inputs_have_many_sets(elements: int, sets: int) -> None:
    assert sets_in_turn(elements) == sets


def test_sets_come_in_turn_at_every_binding() -> None:
    rotation, buffers = Rotation(), [np.zeros(ALL_ELEMENTS // 3, np.float32) for _ in range(2)]
    made: list[int] = []

    def make(turn: int) -> np.ndarray:
        made.append(turn)
        return np.full(buffers[0].shape, turn, np.float32)

    nexts = [rotation.of({"x": (buffer, make)}, {"x", "of another step"}) for buffer in buffers]
    for buffer, write in zip(buffers, nexts, strict=True):
        assert write is not None
        seen = []
        for _ in range(5):
            write()
            seen.append(buffer[0])
        assert seen == [0, 1, 2, 0, 1]
    assert made == [0, 1, 2]
    assert rotation.of({"x": (buffers[0], make)}, {"y"}) is None


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


@pytest.fixture(scope="module")
def backend() -> OnnxRuntimeBackend:
    return OnnxRuntimeBackend(threads=1, seed=0)


class Bound(RotatingInputs):
    """A model that records the turn in which each of its runs reads inputs."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.turn, self.turns = 0, list[int]()

    def bind(self, binding: Binding, region: np.ndarray) -> Bound:
        return self

    def rotation(self, names: Collection[str]) -> Callable[[], None] | None:
        self.names = set(names)
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


def test_a_session_rotates_inputs_in_its_own_memory(backend: OnnxRuntimeBackend) -> None:
    loaded = backend.load(searching(), key="m1-key", optimize=True)
    bound = loaded.bind(Binding.separate(3, 3), NOTHING)
    write = bound.rotation({"x", "rows"})
    assert write is not None
    for _ in range(3):
        write()
        assert bound.sample().host_s > 0
    assert bound.rotation({"of another model"}) is None
    x_bytes = 4 * 100
    shared = Binding((0, None, None), (None,) * 3)
    assert loaded.bind(shared, np.zeros(x_bytes, np.uint8)).rotation({"x"}) is None


def test_few_rows_are_observed_over_several_runs(backend: OnnxRuntimeBackend) -> None:
    shifted = node("Add", ["x", "x"], ["twice"])
    proto = model([shifted], [value("x", [1, 3])], [value("twice", [1, 3])])
    one = backend.observe(proto, ["twice"], key="observed")["twice"]
    rows = backend.observe(proto, ["twice"], key="observed", turning={"x"}, turns=5)["twice"]
    assert rows.shape == (5, 3)
    assert np.array_equal(rows[:1], one)
    assert len(np.unique(rows)) == 15


def test_a_row_has_columns_of_its_own() -> None:
    table = np.random.default_rng(0).uniform(-1, 1, (64, 5))
    sketch = Sketch.of(table, (COLUMNS,))
    row = np.zeros((1, 5), np.float32)
    rows = np.concatenate([sketch.drawn(row, seed) for seed in range(200)])
    correlations = np.corrcoef(rows.T)[np.triu_indices(5, 1)]
    assert np.abs(correlations).max() < 0.3
