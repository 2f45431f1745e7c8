from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch_environment
from refusals import refused
from torch_environment import program

from bricks import BackendError, Bench, ModelComparison
from bricks.backends import describe
from bricks.backends.torch import cxx_compiler
from bricks.graph.program import call_of
from bricks.graph.view import parse_model
from bricks.measure.conditions import Conditions, StopRule
from bricks.system import environments

QUICK = Conditions(rule=StopRule(precision=0.5, min_rounds=2, max_rounds=3))


@pytest.mark.slow
@pytest.mark.skipif(cxx_compiler() is None, reason="kernels are compiled from C++")
def test_a_compiled_step_is_measured_kernel_by_kernel(tmp_path: Path) -> None:
    torch_environment.python()
    with Bench(tmp_path, runtime="torch-compiled", threads=1, conditions=QUICK) as bench:
        model = bench.read(program("momentum"))
        made = _compiled()
        assert made
        calls = [call_of(node) for node in parse_model(model.skeleton).graph.node]
        kernels = [call for call in calls if call.namespace == "kernel"]
        assert kernels
        assert all(len(call.arguments[1]["key"]) == 32 for call in kernels)
        facts = bench.verify(model)
        assert facts.difference.max_abs < 1e-5
        (row,) = bench.compare([model]).rows
        assert isinstance(row, ModelComparison), row
        assert row.estimate.coverage == 1
        assert math.isfinite(row.ratio)
    assert made.items() <= _compiled().items()  # by other processes, not compiled again


def _compiled() -> dict[Path, int]:
    """When each binary that is kept was compiled."""
    found = (environments.root().parent / "compiled").glob("*/*.so")
    return {path: path.stat().st_mtime_ns for path in found}


@pytest.mark.slow
@pytest.mark.skipif(cxx_compiler() is None, reason="kernels are compiled from C++")
def test_walks_that_begin_behind_a_shared_storage_have_room_for_all_of_it(tmp_path: Path) -> None:
    torch_environment.python()
    with Bench(tmp_path, runtime="torch-compiled", threads=1, conditions=QUICK) as bench:
        model = bench.read(program("joined"))
        views = [node for node in parse_model(model.skeleton).graph.node
                 if node.op_type == "as_strided"]  # fmt: skip
        assert views
        (row,) = bench.compare([model]).rows
    assert isinstance(row, ModelComparison), row


def test_without_a_compiler_the_remedy_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    with refused(BackendError, "torch-compiled", "g++", "CXX"):
        describe("torch-compiled")
