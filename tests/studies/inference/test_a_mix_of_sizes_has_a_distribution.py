"""A mix of sizes: its file, the mean and percentiles over it, and what a change of size costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from estimates import predicted
from factories import constant, model, node, save, value
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

from bricks.errors import ModelError, ShapeError, UsageError
from bricks.graph.shapes import with_open_sizes
from bricks.graph.view import parse_model
from bricks.measure.conditions import Conditions
from bricks.reading.read import read_model
from bricks.samples.whole_models import SizeTimes
from bricks.session.options import Options
from bricks.session.whole_models import size_changes
from bricks.session.workspace import Workspace
from bricks.studies.inference.prediction import PredictedModel, SingleRuns, mixes_of
from bricks.studies.inference.settings import MixedSize, read_sizes
from bricks.units.interval import Interval


def written(folder: Path, text: str) -> Path:
    path = folder / "sizes.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_file_has_shapes_batches_and_weights(tmp_path: Path) -> None:
    text = "weight, ids,mask,batch\n6,1x64,1x64,2\n 1,1x128,1x128,1\n2, 1x64 ,1x64,2\n0,1x1,1x1,1\n"
    small, large = ("ids=1x64", "mask=1x64"), ("ids=1x128", "mask=1x128")
    assert read_sizes(written(tmp_path, text)) == (
        MixedSize(small, 2, pytest.approx(8 / 9)), MixedSize(large, 1, pytest.approx(1 / 9)),
    )  # fmt: skip
    assert read_sizes(written(tmp_path, "﻿batch,weight\n1,0.5\n8,0.5\n")) == (
        MixedSize((), 1, 0.5), MixedSize((), 8, 0.5),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no column 'weight'"),
        ("x,count\n1x8,1\n", "no column 'weight'"),
        ("weight\n1\n", "columns weight"),
        ("x,x,weight\n1x8,1x8,1\n", "once"),
        ("x,weight\n1x8,-1\n", "line 2: weight -1 is negative"),
        ("x,weight\n1x8,1\n1x8,nan\n", "line 3: weight nan"),
        ("x,weight\n1x8,often\n", "line 2: weight 'often' is no number"),
        ("x,weight\n1x8,0\n", "no weight above 0"),
        ("x,weight\n1x8,1,1\n", "line 2 has more or fewer values"),
        ("x,weight\n1x8\n", "line 2 has more or fewer values"),
        ("x,weight\nwide,1\n", "line 2: not a shape"),
        ("batch,weight\n0,1\n", "line 2: batch '0'"),
        ("batch,weight\n" + "".join(f"{n},1\n" for n in range(1, 66)), "65 sizes"),
    ],
)
def test_a_file_that_is_no_mix_is_refused_in_one_line(tmp_path: Path, text: str, said: str) -> None:
    with refused(UsageError, said):
        read_sizes(written(tmp_path, text))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with refused(UsageError, tmp_path / "none.csv"):
        read_sizes(tmp_path / "none.csv")


def of_size(latency_s: float, width: int, spread: Sequence[float] = (1.0,)) -> PredictedModel:
    """A size whose single runs are equally often its latency times each of ``spread``."""
    cell = predicted("net", Interval.around(latency_s, 0.1 * latency_s), shapes=(f"x=1x{width}",))
    runs_s = tuple(latency_s * each for each in spread)
    return replace(cell, single_runs=SingleRuns(0.0, 0.0, 0.0, runs_s))


def shares(*of: float) -> list[MixedSize]:
    return [MixedSize((), None, share) for share in of]


@given(st.lists(st.tuples(st.floats(1e-3, 1.0), st.integers(1, 9)), min_size=1, max_size=6))
def test_percentiles_are_those_of_all_runs_together(parts: list[tuple[float, int]]) -> None:
    spread, total = (0.9, 1.0, 1.3), sum(weight for _, weight in parts)
    cells = [of_size(latency_s, n, spread) for n, (latency_s, _) in enumerate(parts)]
    (mix,) = mixes_of(cells, shares(*(weight / total for _, weight in parts)))
    every = [s * latency_s for latency_s, weight in parts for s in spread for _ in range(weight)]
    for rank, found in ((50, mix.p50_s), (90, mix.p90_s), (99, mix.p99_s)):
        assert found == pytest.approx(np.percentile(every, rank, method="inverted_cdf"))
    assert mix.mean_s is not None
    assert mix.mean_s.value == pytest.approx(sum(s * w for s, w in parts) / total)
    assert mix.mean_s.high == pytest.approx(1.1 * mix.mean_s.value)  # errors of sizes are common


def test_changes_cost_as_often_as_sizes_follow_others() -> None:
    slow = SizeTimes(None, (1.5, 1.4, 1.5), (1.0, 1.0, 1.0), (1.2, 1.0, 1.1))
    fast = SizeTimes(0.9, (0.2, 0.2, 0.2), (0.1, 0.1, 0.1), (1.0, 1.0, 1.0))
    cells = [replace(of_size(1.0, 1), size_times=slow), replace(of_size(0.1, 2), size_times=fast)]
    (mix,) = mixes_of(cells, shares(0.25, 0.75))
    assert mix.change_s is not None and mix.shuffled_s is not None and mix.mean_s is not None
    # Half of the changes lead to each of the two sizes.
    assert mix.change_s.value == pytest.approx((0.5 + 0.1) / 2)
    assert mix.shuffled_s.value == pytest.approx(0.325 + 0.25 * 0.75 * 0.5 + 0.75 * 0.25 * 0.1)
    assert [of.times.new_s for of in mix.sizes if isinstance(of.times, SizeTimes)] == [
        None, pytest.approx(0.8),
    ]  # fmt: skip
    assert mix.open_ratio == pytest.approx((0.25 * 1.0 * 1.1 + 0.75 * 0.1 * 1.0) / 0.325)


def test_without_one_size_there_is_no_mix() -> None:
    lacking = PredictedModel(model="net", failure="net: --shape x=1x9 has 2 dimensions")
    (mix,) = mixes_of([of_size(1.0, 1), lacking], shares(0.5, 0.5))
    assert (mix.sizes, mix.mean_s, mix.p99_s, mix.change_s) == ((), None, None, None)
    assert mix.error == "net: no mix without 1 of its 2 sizes"


def lines_net() -> onnx.ModelProto:
    """Reads lines of text of any width."""
    return model(
        [
            node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
            node("Reshape", ["c", "s"], ["y"]),
        ],
        [value("x", ["n", 1, 8, "width"])],
        [value("y", ["n", 4, "pixels"])],
        [constant("w", np.ones((4, 1, 3, 3)), "FLOAT"), constant("s", [0, 4, -1])],
    )


@pytest.mark.parametrize("runtime", ["onnxruntime", "openvino", "fake"])
def test_a_session_with_open_dimensions_runs_all_sizes(runtime: str, tmp_path: Path) -> None:
    path = save(lines_net(), tmp_path)
    conditions = Conditions(exclusive=False)  # no time is looked at
    options = Options(runtime=runtime, threads=1, conditions=conditions)
    with Workspace.open(tmp_path / "cache", options) as workspace:
        sizes = [(1, 16), (1, 64), (3, 16)]
        models = [workspace.read(path, shapes={"x": (n, 1, 8, width)}) for n, width in sizes]
        first, *others = size_changes(workspace, models).sizes
    assert first.first_s is None and all(of.first_s for of in others)
    for of in (first, *others):
        assert len(of.changed_s) == len(of.settled_s) >= 6 and len(of.open_ratios) >= 6
        assert min(*of.changed_s, *of.settled_s, *of.open_ratios) > 0
    if runtime == "fake":  # computes its times
        assert others[0].change_s.value == pytest.approx(0.25 * others[0].settled_s[0], rel=0.05)


@pytest.mark.parametrize(
    ("copies", "sizes", "said"),
    [(1, [16, 16], "it has one size"), (2, [16, 64], "leave out --copies")],
)
def test_sizes_that_do_not_change_in_one_session_are_refused(
    copies: int, sizes: list[int], said: str, tmp_path: Path
) -> None:
    path = save(lines_net(), tmp_path)
    options = Options(runtime="fake", threads=1, copies=copies)
    with Workspace.open(tmp_path / "cache", options) as workspace, refused(ModelError, said):
        size_changes(workspace, [workspace.read(path, shapes={"x": (1, 1, 8, n)}) for n in sizes])


def test_only_dimensions_that_differ_are_opened(tmp_path: Path) -> None:
    path = save(lines_net(), tmp_path)
    protos = [
        parse_model(read_model(path, shapes={"x": (1, 1, 8, width)}).skeleton) for width in (16, 64)
    ]
    dims = with_open_sizes(protos, "net").graph.input[0].type.tensor_type.shape.dim
    assert [dim.dim_value for dim in dims] == [1, 1, 8, 0] and dims[3].dim_param
    protos[1].graph.node[0].name = "other"
    with refused(ShapeError, "graph depends on the size"):
        with_open_sizes(protos, "net")
