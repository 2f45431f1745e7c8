from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pytest
from commands import chain, environment
from factories import conv_net, mlp, model, node, save, value
from refusals import refused

import bricks
from bricks import Bench, decompose_all
from bricks.errors import CacheDamaged, WorkerError

# In a process of its own, so that all that is left of it can be seen.
SIDE_BY_SIDE = """
import json, sys
import psutil
from bricks import Bench, decompose_all

SABOTAGE
cache, runtime, cut, *paths = sys.argv[1:]
told = []
options = {"runtime": runtime, "granularity": cut, "threads": 1}
with Bench(cache, progress=lambda *at: told.append(at), **options) as one:
    decompose_all(one.workspace, [one.read(path) for path in paths], processes=2)
    left = [" ".join(each.cmdline()) for each in psutil.Process().children(recursive=True)]
print(json.dumps({"told": told, "left": left}))
"""

# Kills every worker of those that decompose side by side, as soon as it is there.
KILLED = """
import os
from bricks.measure.supervisor import Conversation

greet = Conversation.greet

def killed(self, hello):
    greet(self, hello)
    if not hello.settings.timing:
        os.kill(self.pid, 9)

Conversation.greet = killed
"""


def diff_targets(
    cache: Path, runtime: str, cut: str, paths: Sequence[Path], sabotage: str = ""
) -> Any:
    """Decompose in two processes; what progress was told, and which processes are left."""
    program = SIDE_BY_SIDE.replace("SABOTAGE", sabotage)
    words = [sys.executable, "-W", "error", "-c", program, cache, runtime, cut, *paths]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment())
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


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
@pytest.mark.slow
def test_side_by_side_gives_the_same_plans_and_bricks(
    paths: list[Path], tmp_path: Path, runtime: str, cut: str
) -> None:
    facts = diff_targets(tmp_path / "2", runtime, cut, [*paths, paths[0]])
    assert facts["left"] == []  # nothing that would run beside what is timed next
    assert {what for what, _ in facts["told"]} == {"decomposing 5 models"}  # one is named twice
    shares = [share for _, share in facts["told"]]
    assert shares == [0.0, *sorted(shares[1:-1]), 1.0]
    found = []
    for processes in ("1", "2"):
        with Bench(tmp_path / processes, runtime=runtime, granularity=cut, threads=1) as bench:
            models = [bench.read(path) for path in paths]
            assert all(bench.workspace.plans.knows(each) == (processes == "2") for each in models)
            done = [bench.decompose(each) for each in models]
            found.append([(each.plan, dict(each.bricks)) for each in done])
            assert bench.store.contents.verify() == []
    assert found[0] == found[1]


def test_what_cannot_be_decomposed_holds_up_no_other(paths: list[Path], tmp_path: Path) -> None:
    strange = model([node("Strange", ["x"], ["y"], domain="org.x")], [value("x", [1])],
                    [value("y", [1])], domains=["org.x"])  # fmt: skip
    paths = [save(strange, tmp_path, "strange.onnx"), *paths]
    with Bench(tmp_path / "cache", runtime="fake", threads=1) as bench:
        models = [bench.read(path) for path in paths]
        decompose_all(bench.workspace, models, processes=2)
        assert [bench.workspace.plans.knows(each) for each in models] == [
            False,
            *[True] * (len(paths) - 1),
        ]
        with refused(WorkerError, "strange", "Strange", "org.x"):
            bench.decompose(models[0])


@pytest.mark.slow
def test_what_a_killed_process_had_is_left_to_the_bench(paths: list[Path], tmp_path: Path) -> None:
    facts = diff_targets(tmp_path / "cache", "fake", "executed", paths, KILLED)
    assert facts["left"] == []
    with Bench(tmp_path / "cache", runtime="fake", threads=1) as bench:
        model = bench.read(paths[0])
        assert not bench.workspace.plans.knows(model)
        assert bench.decompose(model).plan.occurrences


def test_few_models_are_not_worth_a_process(paths: list[Path], tmp_path: Path) -> None:
    with Bench(tmp_path / "cache", runtime="fake", threads=1) as bench:
        models = [bench.read(path) for path in paths[:3]]
        before = psutil.Process().children()  # the server of forks may be there
        decompose_all(bench.workspace, models)
        assert psutil.Process().children() == before
        assert not any(bench.workspace.plans.knows(each) for each in models)


def test_coverage_grows_with_what_is_measured(paths: list[Path], tmp_path: Path) -> None:
    with Bench(tmp_path / "cache", runtime="fake", threads=1) as bench:
        models = [bench.read(path) for path in paths]
        plans = [bench.decompose(each).plan for each in models]
        before = bricks.coverage(bench.workspace, plans)
        assert (before.together.share, before.together.cost_s) == (0.0, None)
        bench.measure(models[:1])
        partly = bricks.coverage(bench.workspace, plans)
        assert partly.models[0].coverage.complete
        assert partly.models[0].coverage.share == 1.0
        assert partly.models[4].coverage.complete  # the same bricks under other names
        assert 0 < partly.together.share < 1
        assert not partly.together.complete
        bench.measure(models)
        after = bricks.coverage(bench.workspace, plans)
        assert after.together.complete
        assert (after.together.share, after.together.missing) == (1.0, ())
        assert after.cost_model is not None
        assert [row.new for row in after.models] == [()] * len(models)


def test_marginal_costs_add_up_to_the_cost_of_all(paths: list[Path], tmp_path: Path) -> None:
    operators = ("Abs", "Ceil", "Cos", "Erf", "Exp", "Floor", "Neg", "Relu", "Sigmoid", "Sin")
    with Bench(tmp_path / "cache", runtime="fake", threads=1) as bench:
        bench.measure([bench.read(save(chain(*operators), tmp_path, "measured.onnx"))])
        plans = [bench.decompose(bench.read(path)).plan for path in paths]
        for order in (plans, plans[::-1]):
            found = bricks.coverage(bench.workspace, order)
            costs = [row.marginal_s.value for row in found.models if row.marginal_s is not None]
            assert found.together.cost_s is not None
            assert len(costs) == len(plans)
            assert sum(costs) == pytest.approx(found.together.cost_s.value)
            assert min(costs) == 0.0 < max(costs)  # of two that are the same, one is for free


def test_a_cache_that_lacks_a_brick_says_so(paths: list[Path], tmp_path: Path) -> None:
    with Bench(tmp_path / "cache", runtime="fake") as bench:
        plan = bench.decompose(bench.read(paths[0])).plan
    with closing(sqlite3.connect(tmp_path / "cache" / "bricks.sqlite")) as connection:
        connection.execute("DELETE FROM bricks WHERE key = ?", (plan.keys[0],))
        connection.commit()
    with (
        Bench(tmp_path / "cache", runtime="fake") as bench,
        refused(CacheDamaged, plan.keys[0], "bricks cache verify"),
    ):
        bricks.coverage(bench.workspace, [plan])
