"""A branch that data decide is the same for the plan, its bricks and runs of the whole model."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from factories import constant, model, node, save, value
from rough import ROUGH

from bricks import Bench
from bricks.backends.onnxruntime.synthetic_data import SyntheticData
from bricks.compose.estimate import Estimate
from bricks.decompose.identity import key_of, with_other_branch
from bricks.decompose.plan import Plan
from bricks.graph.model_metadata import steering_values_of
from bricks.graph.synthesis import Pool
from bricks.graph.view import parse_model
from bricks.report.prediction import branch_remarks
from bricks.session.options import Options
from bricks.session.workspace import Workspace
from bricks.studies.inference.predicting import PredictionOptions, PredictionStudy
from bricks.studies.study import ask

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


def test_values_that_the_user_gives_take_their_own_branch(tmp_path: Path) -> None:
    path, taken, digests = save(branching(), tmp_path), [], set()
    with Workspace.open(tmp_path / "cache", Options(threads=1)) as workspace:
        workspace.plans.decompose(workspace.read(path))
        for sign in (-1, 1):
            given = workspace.read(path, values={"x": sign * np.ones((ROWS, COLUMNS), np.float32)})
            digests.add(given.digest)
            of = workspace.plans.decompose(given)
            assert (of.plan.choices, of.plan.assumed) == ((), ())  # nothing was made up
            (brick,) = (b for b in of.bricks.values() if b.operators == ("If",))
            taken += [bool(values[0]) for values in brick.examples.values()]
    assert (taken, len(digests)) == ([False, True], 2)


def test_what_the_other_branch_takes_is_measured_too(tmp_path: Path) -> None:
    path = save(branching(), tmp_path, "sum.onnx")
    with Workspace.open(tmp_path / "cache", Options(threads=1, conditions=ROUGH)) as workspace:
        read = workspace.read(path)
        (row,) = ask(PredictionStudy(PredictionOptions(models=[read]), workspace)).models
        (branch,) = row.branches
        bricks = workspace.plans.decompose(read).bricks.values()
        (brick,) = (brick for brick in bricks if brick.operators == ("If",))
        assert {branch.taken, branch.other} == {"then_branch", "else_branch"}
        assert branch.other_s is not None and branch.other_s.value > 0 and branch.taken_s > 0
        known = replace(brick, key="", examples={})
        other = with_other_branch(brick)
        assert other is not None and other.key != brick.key == key_of(brick.model)
        assert other.key == key_of(other.model)
        assert with_other_branch(other) == brick
        assert replace(other, key="", examples={}, model=known.model) == known
        plan = workspace.plans.decompose(read).plan
        assert plan.choices == ((brick.key, branch.node),)
        assert Plan.from_json(json.loads(json.dumps(plan.to_json()))) == plan
    (line,) = branch_remarks(row)
    assert line.index(branch.taken) < line.index(branch.other)
