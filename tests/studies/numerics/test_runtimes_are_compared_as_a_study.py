from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from factories import mlp, save

from bricks import Bench, Estimate
from bricks.sources import Unread
from bricks.studies.numerics.study import NetworkComparisonOptions, NetworkStudy
from bricks.studies.study import ask


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with Bench(tmp_path / "cache", runtime="fake", threads=1) as opened:
        yield opened


def test_further_runtimes_share_the_cache_of_the_workspace_and_leave_it_open(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BRICKS_ENVIRONMENTS", str(tmp_path / "none"))
    model = bench.read(save(mlp(), tmp_path, "mlp.onnx"))
    asked = NetworkComparisonOptions(
        models=[model, Unread("other", "other: there is no such file")],
        runtimes=("onnxruntime", "mxnet", "fake", "onnxruntime"),
        repeats=1,
    )
    found = ask(NetworkStudy(asked, bench.workspace))
    assert [runtime.backend for runtime in found.runtimes] == ["onnxruntime", "fake"]
    assert [runtime.threads for runtime in found.runtimes] == [1, 1]
    assert [each.runtime for each in found.missing] == ["mxnet"]
    (network,) = found.networks
    assert [run.runtime for run in network.runs] == ["onnxruntime", "fake"]
    assert found.errors == ("other: there is no such file",)
    assert isinstance(bench.predict(model), Estimate)


def test_a_further_runtime_keeps_its_plans_in_the_same_cache(bench: Bench, tmp_path: Path) -> None:
    model = bench.read(save(mlp(), tmp_path, "mlp.onnx"))
    with bench.workspace.with_runtime("onnxruntime") as other:
        other.plans.decompose(model)
        assert other.store is bench.workspace.store
    assert bench.workspace.store.plans.usage(other.target.key, str(other.granularity))
