"""Where values decide how long operators take, bricks read the distribution of their model."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from commands import Here
from factories import constant, model, node, save, value
from onnx import TensorProto, helper
from refusals import refused

from bricks import Bench
from bricks.errors import ShapeError, UsageError
from bricks.graph.input_values import read_arrays
from bricks.graph.model import Model
from bricks.graph.model_metadata import noted_iterations, noted_sketches
from bricks.graph.sketch import Sketch
from bricks.graph.view import parse_model

ROWS = 2000


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with Bench(tmp_path_factory.mktemp("cache"), threads=1) as made:
        yield made


def sketches(bench: Bench, read: Model, operator: str) -> dict[str, Sketch]:
    """Of the only brick of this operator."""
    bricks = bench.decompose(read).bricks.values()
    (brick,) = (each for each in bricks if each.operators[0].endswith(operator))
    return noted_sketches(parse_model(brick.model))


def selecting(threshold: float) -> onnx.ModelProto:
    return model(
        [node("Greater", ["x", "t"], ["m"]), node("NonZero", ["m"], ["y"])],
        [value("x", [ROWS])],
        [value("y", None, "INT64")],
        [constant("t", threshold, "FLOAT")],
    )


def test_as_many_are_selected_as_by_the_models_own_weights(bench: Bench, tmp_path: Path) -> None:
    shares = []
    for threshold in (-0.5, 0.0, 0.5):
        read = bench.read(save(selecting(threshold), tmp_path, f"at {threshold}.onnx"))
        shares.append(sketches(bench, read, "NonZero")["i0"].zeros)
    assert shares == pytest.approx([0.25, 0.5, 0.75], abs=0.05)


def test_inputs_that_are_given_decide(bench: Bench, tmp_path: Path) -> None:
    path = save(selecting(0.0), tmp_path)
    held = {"x": np.where(np.arange(ROWS) % 10, -1, 1).astype(np.float32)}
    (sketch,) = sketches(bench, bench.read(path, values=held), "NonZero").values()
    assert sketch.zeros == pytest.approx(0.9)


def test_sorted_and_repeated_values_are_told(bench: Bench, tmp_path: Path) -> None:
    nodes = [
        node("Mul", ["x", "k"], ["s"]),
        node("Cast", ["s"], ["i"], to=TensorProto.INT64),
        node("Unique", ["i"], ["u"], sorted=1),
    ]
    proto = model(
        nodes, [value("x", [ROWS])], [value("u", None, "INT64")], [constant("k", 50.0, "FLOAT")]
    )
    read = bench.read(save(proto, tmp_path))
    (sketch,) = sketches(bench, read, "Unique").values()
    assert sketch.distinct == 99  # from -49 to 49
    assert sketch.quantiles is not None and sketch.quantiles[-1] == 49
    assert bench.verify(read).exact


def converging(least: float) -> onnx.ModelProto:
    """A loop that halves a number until it is less than ``least``."""
    scalars = [helper.make_tensor_value_info("i", TensorProto.INT64, [])]
    condition = helper.make_tensor_value_info("c", TensorProto.BOOL, [])
    body = helper.make_graph(
        [node("Mul", ["h", "half"], ["next"]), node("Greater", ["next", "least"], ["go"])],
        "body",
        [*scalars, condition, value("h", [])],
        [helper.make_tensor_value_info("go", TensorProto.BOOL, []), value("next", [])],
    )
    held = [
        constant("half", 0.5, "FLOAT"),
        constant("least", least, "FLOAT"),
        constant("begin", 1024.0, "FLOAT"),
        constant("many", 100),
        constant("yes", True, "BOOL"),
    ]
    nodes = [
        node("Loop", ["many", "yes", "begin"], ["end"], body=body),
        node("Add", ["x", "end"], ["y"]),
    ]
    return model(nodes, [value("x", [])], [value("y", [])], held)


def test_a_loop_runs_as_often_as_by_the_models_own_weights(bench: Bench, tmp_path: Path) -> None:
    for least, times in ((1.0, 10), (100.0, 4)):
        read = bench.read(save(converging(least), tmp_path, f"{times}.onnx"))
        bricks = bench.decompose(read).bricks.values()
        counts = [noted_iterations(parse_model(brick.model)) for brick in bricks]
        assert [*filter(None, counts)] == [{"v0": times}]
        assert bench.verify(read).exact


def test_what_is_random_by_itself_is_told_by_no_sketch(bench: Bench, tmp_path: Path) -> None:
    proto = model(
        [node("TopK", ["x", "k"], ["v", "i"], axis=0)],
        [value("x", [ROWS])],
        [value("v", None), value("i", None, "INT64")],
        [constant("k", [5])],
    )
    assert not sketches(bench, bench.read(save(proto, tmp_path)), "TopK")


def test_boxes_of_a_detector_are_told(bench: Bench, tmp_path: Path) -> None:
    held = [constant("most", [50]), constant("overlap", [0.5], "FLOAT")]
    proto = model(
        [
            node("Mul", ["x", "x"], ["boxes"]),
            node("NonMaxSuppression", ["boxes", "s", "most", "overlap"], ["y"]),
        ],
        [value("x", [1, 100, 4]), value("s", [1, 2, 100])],
        [value("y", None, "INT64")],
        held,
    )
    found = sketches(bench, bench.read(save(proto, tmp_path)), "NonMaxSuppression")
    assert any(each.places for each in found.values())


def test_random_outputs_are_told_and_what_they_are_made_of_is_compared(
    bench: Bench, tmp_path: Path
) -> None:
    nodes = [
        node("Mul", ["x", "x"], ["m"]),
        node("RandomNormalLike", ["m"], ["e"]),
        node("Add", ["m", "e"], ["y"]),
        node("Neg", ["m"], ["z"]),
    ]
    outputs = [value("y", [8]), value("z", [8])]
    done = bench.verify(bench.read(save(model(nodes, [value("x", [8])], outputs), tmp_path)))
    assert done.exact and done.random == ("y",)


def test_explain_tells_on_what_values_bricks_were_measured(here: Here, tmp_path: Path) -> None:
    path = save(selecting(0.5), tmp_path)
    words = ("explain", path, "--no-measure", "--json")
    here("measure", path, runtime="onnxruntime")
    (row,) = here(*words, runtime="onnxruntime").json["models"]
    values = {brick["operator"]: brick["values"] for brick in row["bricks"]}
    assert values["NonZero"]["i0"]["zeros"] == pytest.approx(0.75, abs=0.05)
    assert not values["Greater"]


def test_arrays_of_inputs_come_from_a_file(here: Here, tmp_path: Path) -> None:
    path, arrays = save(selecting(0.0), tmp_path), tmp_path / "inputs.npz"
    np.savez(arrays, x=np.ones(ROWS, np.float32))
    words = ("decompose", path, "--inputs", arrays)
    assert here(*words, runtime="onnxruntime").status == 0
    np.savez(arrays, x=np.ones(ROWS + 1, np.float32))
    assert here(*words).status == 1
    np.savez(arrays, z=np.ones(3, np.float32))
    assert "'z'" in here(*words).complaint
    twice = here(*words, "--value", "z=1")
    assert twice.status == 2 and "'z'" in twice.complaint


def test_what_is_no_file_of_arrays_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "one.npy", np.ones(3))
    (tmp_path / "text.npz").write_text("no arrays")
    for name in ("one.npy", "text.npz", "none.npz"):
        with refused(UsageError, name):
            read_arrays(tmp_path / name)


def test_an_input_that_a_model_lacks_is_refused(bench: Bench, tmp_path: Path) -> None:
    with refused(ShapeError, "'z'"):
        bench.read(save(selecting(0.0), tmp_path), values={"z": np.ones(3, np.float32)})


def test_indices_of_a_models_input_are_those_that_its_table_allows(
    bench: Bench, tmp_path: Path
) -> None:
    table = constant("t", np.zeros((20_000, 16)), "FLOAT")
    proto = model([node("Gather", ["t", "x"], ["y"])], [value("x", [ROWS], "INT64")], [], [table])
    proto.graph.output.append(value("y", [ROWS, 16]))
    assert not sketches(bench, bench.read(save(proto, tmp_path)), "Gather")
