"""A dimension of 0 is a size like others: the empty cache of a decoder at its first token."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from commands import Here
from factories import constant, model, node, save, value
from onnx import helper

from bricks import Bench, Estimate
from bricks.measure.conditions import Conditions, StopRule

# Measured in one round: what is of interest is that it can be.
ONCE = Conditions(rule=StopRule(min_rounds=1, max_rounds=1, passes=1), exclusive=False)


def attention(past: int | str) -> onnx.ModelProto:
    """Scores over a cache and two new tokens, as in a decoder; the cache grows by them."""
    cache = [value(f"past_key_values.0.{name}", [1, 2, past, 4]) for name in ("key", "value")]
    nodes = [
        node("Concat", ["past_key_values.0.key", "k"], ["present.0.key"], axis=2),
        node("Concat", ["past_key_values.0.value", "v"], ["present.0.value"], axis=2),
        node("Transpose", ["present.0.key"], ["columns"], perm=[0, 1, 3, 2]),
        node("MatMul", ["q", "columns"], ["scores"]),
        node("Softmax", ["scores"], ["shares"], axis=-1),
        node("MatMul", ["shares", "present.0.value"], ["y"]),
    ]
    new = [value(name, [1, 2, 2, 4]) for name in "qkv"]
    made = [value(name, None) for name in ("y", "present.0.key", "present.0.value")]
    return model(nodes, [*new, *cache], made)


def empty_cache() -> onnx.ModelProto:
    return attention(0)


def no_images() -> onnx.ModelProto:
    weight = constant("w", np.linspace(-1, 1, 108).reshape(4, 3, 3, 3), "FLOAT")
    nodes = [node("Conv", ["x", "w"], ["c"]), node("Relu", ["c"], ["y"])]
    return model(nodes, [value("x", [0, 3, 8, 8])], [value("y", None)], [weight])


def views_and_sums() -> onnx.ModelProto:
    """A view, a copy, nothing of a table, and a sum over no rows, which is zero."""
    nodes = [
        node("Reshape", ["x", "split"], ["r"], allowzero=1),
        node("Expand", ["r", "more"], ["a"]),
        node("Gather", ["table", "rows"], ["g"], axis=0),
        node("Exp", ["g"], ["b"]),
        node("ReduceSum", ["x", "first"], ["s"], keepdims=0),
        node("Add", ["s", "shift"], ["c"]),
    ]
    constants = [
        constant("split", [2, 0, 2]), constant("more", [3, 2, 0, 2]), constant("first", [0]),
        constant("table", np.ones((5, 4)), "FLOAT"), constant("shift", np.ones(4), "FLOAT"),
    ]  # fmt: skip
    inputs = [value("x", [0, 4]), value("rows", [0], "INT64")]
    return model(nodes, inputs, [value(name, None) for name in "abc"], constants)


def loop_without_trips() -> onnx.ModelProto:
    """A loop that runs as often as there are rows: what it collects has none either."""
    body = helper.make_graph(
        [
            node("Identity", ["go"], ["still"]),
            node("Mul", ["carried", "carried"], ["next"]),
            node("Neg", ["carried"], ["collected"]),
        ],
        "body",
        [value("i", [], "INT64"), value("go", [], "BOOL"), value("carried", [2])],
        [value("still", [], "BOOL"), value("next", [2]), value("collected", [2])],
    )
    nodes = [
        node("Shape", ["x"], ["shape"]),
        node("Gather", ["shape", "first"], ["trips"]),
        node("Loop", ["trips", "", "start"], ["last", "all"], body=body),
        node("Exp", ["all"], ["y"]),
    ]
    inputs = [value("x", [0, 2]), value("start", [2])]
    outputs = [value("last", [2]), value("y", None)]
    return model(nodes, inputs, outputs, [constant("first", 0)])


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with Bench(tmp_path_factory.mktemp("cache"), threads=1, conditions=ONCE) as made:
        yield made


@pytest.mark.parametrize("make", [empty_cache, no_images, views_and_sums, loop_without_trips])
def test_they_are_computed_measured_and_predicted(
    bench: Bench, make: Callable[[], onnx.ModelProto], tmp_path: Path
) -> None:
    read = bench.read(save(make(), tmp_path, f"{make.__name__}.onnx"))
    assert bench.verify(read).exact
    assert bench.measure([read]).failures == ()
    assert isinstance(bench.predict(read), Estimate)


def test_an_empty_cache_is_another_brick_than_a_full_one(bench: Bench, tmp_path: Path) -> None:
    path = save(attention("past"), tmp_path)
    sizes = [{"past_key_values.0.key": (1, 2, past, 4)} for past in (0, 3)]
    empty, full = (bench.decompose(bench.read(path, shapes=shapes)) for shapes in sizes)
    fixed = bench.decompose(bench.read(save(empty_cache(), tmp_path, "fixed.onnx")))
    assert empty.bricks.keys() == fixed.bricks.keys()
    assert not empty.bricks.keys() & full.bricks.keys()


def test_every_command_takes_a_shape_with_a_zero(here: Here, tmp_path: Path) -> None:
    path, suite = save(attention("past"), tmp_path, "step.onnx"), tmp_path / "suite.zip"
    shape = ("--shape", "past_key_values.0.key=1x2x0x4")
    for command in ("decompose", "predict", "compare", "explain"):
        done = here(command, path, *shape)
        assert (done.status, done.err) == (0, ""), command
    assert here("generate", path, *shape, "--out", suite).status == 0
    assert here("measure", suite, "--json").json["bricks"] == 5


def test_a_file_that_fixes_a_zero_is_taken_at_its_word_and_one_is_told(
    here: Here, tmp_path: Path
) -> None:
    path = save(no_images(), tmp_path, "conv.onnx")
    done = here("predict", path)
    assert done.status == 0
    for word in ("conv", "'x'", "--shape", "--batch"):
        assert word in done.complaint
    assert here("predict", path, "--shape", "x=2x3x8x8").err == ""
    assert here("predict", path, "--quiet").err == ""


def test_what_a_runtime_does_not_take_names_the_empty_input(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BRICKS_FAKE_FAULTS", "Conv=crash")
    done = here("compare", save(no_images(), tmp_path, "conv.onnx"), "--quiet")
    assert done.status == 1
    assert "'x'" in done.complaint
