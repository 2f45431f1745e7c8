from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import psutil
import pytest
from commands import chain
from factories import conv_net, mlp, model, node, save, value

import bricks
from bricks import Bench, decompose_all
from bricks.errors import BricksError, StoreError


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    folder = tmp_path / "zoo"
    folder.mkdir()
    return [
        save(conv_net(), folder, "conv.onnx"),
        save(mlp(), folder, "mlp.onnx"),
        save(conv_net(blocks=4), folder, "deep.onnx"),
        save(chain("Relu", "Tanh"), folder, "chain.onnx"),
        save(conv_net(seed=1, prefix="p."), folder, "conv_again.onnx"),  # the same but for names
    ]


@pytest.mark.parametrize(("runtime", "cut"), [("onnxruntime", "executed"), ("fake", "2")])
def test_side_by_side_gives_the_same_plans_and_bricks(
    paths: list[Path], tmp_path: Path, runtime: str, cut: str
) -> None:
    found = []
    for processes in (1, 2):
        cache = tmp_path / str(processes)
        with Bench(cache, runtime=runtime, granularity=cut, threads=1) as bench:
            models = [bench.read(path) for path in paths]
            decompose_all(bench, models, processes=processes)
            assert all(bench.knows(each) == (processes > 1) for each in models)
            done = [bench.decompose(each) for each in models]
            found.append([(each.plan, dict(each.bricks)) for each in done])
            assert bench.store.verify() == []
    assert found[0] == found[1]


def test_nothing_runs_on_afterwards_and_progress_is_told(paths: list[Path], tmp_path: Path) -> None:
    told: list[tuple[str, float]] = []
    with Bench(tmp_path / "cache", runtime="fake", progress=lambda *at: told.append(at)) as bench:
        decompose_all(bench, [bench.read(path) for path in [*paths, paths[0]]], processes=2)
        left = [" ".join(each.cmdline()) for each in psutil.Process().children(recursive=True)]
    # What tracks resources for joblib lives as long as this process, and does nothing.
    assert [words for words in left if "tracker" not in words] == []
    assert {what for what, _ in told} == {"decomposing 5 models"}  # one is named twice
    assert [share for _, share in told] == sorted(share for _, share in told)
    assert told[-1][1] == 1.0


def test_what_cannot_be_decomposed_holds_up_no_other(paths: list[Path], tmp_path: Path) -> None:
    strange = model([node("Strange", ["x"], ["y"], domain="org.x")], [value("x", [1])],
                    [value("y", [1])], domains=["org.x"])  # fmt: skip
    with Bench(tmp_path / "cache", runtime="fake") as bench:
        unknown = bench.read(save(strange, tmp_path, "strange.onnx"))
        models = [unknown, *(bench.read(path) for path in paths)]
        decompose_all(bench, models, processes=2)
        assert [bench.knows(each) for each in models] == [False, *[True] * len(paths)]
        with pytest.raises(BricksError, match="Strange"):
            bench.plan(unknown)


def test_coverage_grows_with_what_is_measured(paths: list[Path], tmp_path: Path) -> None:
    with Bench(tmp_path / "cache", runtime="fake", threads=1) as bench:
        models = [bench.read(path) for path in paths]
        plans = [bench.plan(each) for each in models]
        before = bricks.coverage(bench, plans)
        assert (before.together.share, before.together.cost) == (0.0, None)
        bench.measure(models[:1])
        partly = bricks.coverage(bench, plans)
        assert partly.models[0].coverage.complete
        assert partly.models[0].coverage.share == 1.0
        assert partly.models[4].coverage.complete  # the same bricks under other names
        assert 0 < partly.together.share < 1
        assert not partly.together.complete
        bench.measure(models)
        after = bricks.coverage(bench, plans)
        assert after.together.complete
        assert (after.together.share, after.together.missing) == (1.0, ())
        assert after.cost_model is not None
        assert [row.new for row in after.models] == [()] * len(models)


def test_marginal_costs_add_up_to_the_cost_of_all(paths: list[Path], tmp_path: Path) -> None:
    operators = ("Abs", "Ceil", "Cos", "Erf", "Exp", "Floor", "Neg", "Relu", "Sigmoid", "Sin")
    with Bench(tmp_path / "cache", runtime="fake", threads=1) as bench:
        bench.measure([bench.read(save(chain(*operators), tmp_path, "measured.onnx"))])
        plans = [bench.plan(bench.read(path)) for path in paths]
        for order in (plans, plans[::-1]):
            found = bricks.coverage(bench, order)
            costs = [row.marginal.estimate_s for row in found.models if row.marginal is not None]
            assert found.together.cost is not None
            assert len(costs) == len(plans)
            assert sum(costs) == pytest.approx(found.together.cost.estimate_s)
            assert min(costs) == 0.0 < max(costs)  # of two that are the same, one is for free


def test_a_cache_that_lacks_a_brick_says_so(paths: list[Path], tmp_path: Path) -> None:
    with Bench(tmp_path / "cache", runtime="fake") as bench:
        plan = bench.plan(bench.read(paths[0]))
    with closing(sqlite3.connect(tmp_path / "cache" / "bricks.sqlite")) as connection:
        connection.execute("DELETE FROM bricks WHERE key = ?", (plan.keys[0],))
        connection.commit()
    with (
        Bench(tmp_path / "cache", runtime="fake") as bench,
        pytest.raises(StoreError, match=f"lacks {plan.keys[0]}, which a plan names"),
    ):
        bricks.coverage(bench, [plan])
