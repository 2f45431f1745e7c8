"""What a brick finds in the caches and in its inputs belongs to what it is."""

import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest
from factories import constant, model, node, save, value
from onnx import TensorProto

from bricks import Bench
from bricks.decompose.build import build
from bricks.decompose.granularity import Granularity
from bricks.decompose.identity import key_of, surrounding_bytes
from bricks.decompose.lowering import Contents
from bricks.decompose.plan import Brick, Plan
from bricks.graph.sketch import Sketch
from bricks.graph.view import source_graph
from bricks.predict.features import extract_features
from bricks.reading.read import read_model

WIDTH = 512
MIB = 1 << 20


def products(layers: int, rows: int) -> onnx.ModelProto:
    """A chain of matrix products, with a MiB of weights each that stand in no file."""
    names = ["x", *(f"h{i}" for i in range(layers))]
    nodes = [node("MatMul", [names[i], f"w{i}"], [names[i + 1]]) for i in range(layers)]
    weights = []
    for i in range(layers):
        weight = TensorProto(name=f"w{i}", data_type=TensorProto.FLOAT, dims=(WIDTH, WIDTH))
        weight.data_location = TensorProto.EXTERNAL
        weight.external_data.add(key="location", value="nowhere")
        weights.append(weight)
    shape = [rows, WIDTH]
    return model(nodes, [value("x", shape)], [value(names[-1], shape)], weights)


def bricks_of(
    proto: onnx.ModelProto,
    folder: Path,
    granularity: str = "executed",
    sketches: Mapping[str, Sketch] | None = None,
) -> dict[str, Brick]:
    read = read_model(save(proto, folder))
    cut = Granularity.parse(granularity)
    return dict(
        build(read, source_graph(read), cut, contents=Contents(sketches=sketches or {})).bricks
    )


def test_a_product_of_few_rows_is_another_brick_in_a_much_larger_model(tmp_path: Path) -> None:
    (small,), (large,) = (bricks_of(products(n, 1), tmp_path) for n in (4, 64))
    assert small != large
    (alike,) = bricks_of(products(66, 1), tmp_path)
    assert large == alike


def test_a_product_of_many_rows_is_the_same_brick_in_models_of_any_size(tmp_path: Path) -> None:
    (small,), (large,) = (bricks_of(products(n, 256), tmp_path) for n in (4, 64))
    assert small == large


def test_layers_of_the_source_graph_are_the_same_bricks_in_models_of_any_size(
    tmp_path: Path,
) -> None:
    (small,), (large,) = (bricks_of(products(n, 1), tmp_path, "1") for n in (4, 64))
    assert small == large


@pytest.mark.parametrize(("rows", "bound"), [(1, True), (256, False)])
def test_a_plan_knows_which_of_its_bricks_mostly_read_weights(
    rows: int, bound: bool, tmp_path: Path
) -> None:
    read = read_model(save(products(4, rows), tmp_path))
    plan = build(read, source_graph(read), Granularity.parse("executed")).plan
    assert plan.weight_bound == (plan.keys if bound else ())
    assert Plan.from_json(plan.to_json()) == plan


def test_a_brick_carries_its_context_along(tmp_path: Path) -> None:
    ((key, brick),) = bricks_of(products(64, 1), tmp_path).items()
    assert key_of(brick.model) == key
    assert 64 * MIB <= surrounding_bytes(brick) + MIB < 128 * MIB
    features = extract_features(brick)
    assert features.context.working_set_bytes == features.context_bytes == 96 * MIB


def test_a_brick_that_is_not_bound_by_weights_has_no_context_of_its_own(tmp_path: Path) -> None:
    ((_, brick),) = bricks_of(products(64, 256), tmp_path).items()
    features = extract_features(brick)
    assert (features.context.working_set_bytes, features.context_bytes) == (math.inf, None)


PRELU = model(
    [node("Neg", ["x"], ["n"]), node("PRelu", ["n", "s"], ["y"])],
    [value("x", [64]), value("s", [1])],
    [value("y", [64])],
)


def test_signs_that_an_operator_is_sensitive_to_make_another_brick(tmp_path: Path) -> None:
    keys = [
        set(bricks_of(PRELU, tmp_path, sketches=sketches))
        for sketches in (
            None,
            {"n": Sketch(0.5, 0.5)},
            {"n": Sketch(0.25, 0.125)},
            {"n": Sketch(0.5, 0.5)},
        )
    ]
    assert keys[1] == keys[3]
    assert len({*keys[0], *keys[1], *keys[2]}) == 4  # one Neg, three times PRelu


@pytest.mark.parametrize("factor", [1.0, -1.0])
def test_signs_are_those_that_the_model_makes(tmp_path: Path, factor: float) -> None:
    nodes = [
        node("Abs", ["x"], ["a"]),
        node("Mul", ["a", "c"], ["n"]),
        node("PRelu", ["n", "s"], ["y"]),
    ]
    initializers = [constant("c", factor, "FLOAT"), constant("s", np.full(1, 0.5), "FLOAT")]
    proto = model(nodes, [value("x", [8, 64])], [value("y", [8, 64])], initializers)
    with Bench(tmp_path / "cache", threads=1) as bench:
        made = bench.decompose(bench.read(save(proto, tmp_path)))
    (prelu,) = (b for b in made.bricks.values() if b.operators == ("PRelu",))
    share = 0.0 if factor > 0 else 1.0
    noted = {e.key: e.value for e in onnx.ModelProto.FromString(prelu.model).metadata_props}
    assert noted["bricks.signs"] == f'{{"i0": [{share}, 0.0]}}'
