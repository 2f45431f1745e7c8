"""A branch that data decide is the same for the plan, its bricks and runs of the whole model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from factories import constant, model, node, save, value

from bricks import Bench
from bricks.backends.onnxruntime.synthetic_data import SyntheticData
from bricks.compose.estimate import Estimate
from bricks.graph.model_metadata import steering_values_of
from bricks.graph.synthesis import Pool
from bricks.graph.view import parse_model

ROWS, COLUMNS = 16, 64


def branching(*, gated: bool = False, threshold: float = 0.0) -> onnx.ModelProto:
    """A sum of the input, weighed by a gate if ``gated``, chooses a product or nothing."""
    then = onnx.helper.make_graph(
        [node("MatMul", ["x", "weight"], ["a"])], "then", [], [value("a", [ROWS, COLUMNS])]
    )
    other = onnx.helper.make_graph(
        [node("Identity", ["x"], ["b"])], "other", [], [value("b", [ROWS, COLUMNS])]
    )
    random = np.random.default_rng(0)
    weights = [
        constant("threshold", threshold, "FLOAT"),
        constant("weight", random.standard_normal((COLUMNS, COLUMNS)) / 8, "FLOAT"),
        constant("gate", -np.ones((ROWS, COLUMNS)) if gated else np.ones(1), "FLOAT"),
    ]
    nodes = [
        node("Abs", ["x"], ["size"]),
        node("Mul", ["size" if gated else "x", "gate"], ["weighed"]),
        node("ReduceSum", ["weighed"], ["sum"], keepdims=0),
        node("Greater", ["sum", "threshold"], ["condition"]),
        node("If", ["condition"], ["y"], then_branch=then, else_branch=other, name="choice"),
    ]
    ends = [value("x", [ROWS, COLUMNS])], [value("y", [ROWS, COLUMNS])]
    return model(nodes, *ends, weights)


@pytest.mark.parametrize("threshold", [-30.0, -10.0, 0.0, 10.0, 30.0])
@pytest.mark.parametrize("gated", [False, True])
def test_bricks_take_the_branch_that_the_whole_model_takes(
    tmp_path: Path, threshold: float, gated: bool
) -> None:
    path = save(branching(gated=gated, threshold=threshold), tmp_path)
    with Bench(cache=tmp_path / "cache", threads=1) as bench:
        read = bench.read(path)
        decomposition = bench.decompose(read)
    (brick,) = (b for b in decomposition.bricks.values() if b.operators == ("If",))
    (taken,) = steering_values_of(parse_model(brick.model)).values()
    _, inputs = SyntheticData(Pool(0)).of(parse_model(read.skeleton), read.digest)
    make, _ = inputs["x"]  # as the run of the whole model reads it
    x = make()
    condition = (-abs(x) if gated else x).sum() > threshold
    assert bool(np.ravel(taken)[0]) == condition
    if gated:  # only its own weights are all negative
        assert not condition


def test_answers_say_which_branch_synthetic_data_chose(tmp_path: Path) -> None:
    path = save(branching(gated=True), tmp_path)
    with Bench(cache=tmp_path / "cache", threads=1) as bench:
        read = bench.read(path)
        (line,) = bench.decompose(read).plan.assumed
        estimate = bench.predict(read)
    assert isinstance(estimate, Estimate)
    assert estimate.assumed == (line,)
    assert "'choice'" in line and line.index("else_branch") < line.index("then_branch")
