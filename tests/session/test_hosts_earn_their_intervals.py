"""Networks run along with their bricks after the first measurements, and correct what follows."""

from __future__ import annotations

from pathlib import Path

import pytest
from factories import mlp, save

from bricks import Bench
from bricks.compose.estimate import Estimate
from bricks.measure.jobs import ModelJob
from bricks.session.campaigns import with_runs
from bricks.session.measuring import bricks_job

NETWORK = "mx_face_landmarks"


@pytest.fixture
def _one_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bricks.session.campaigns.REFERENCE_NETWORKS", (NETWORK,))
    monkeypatch.setattr("bricks.session.campaigns.SHORT_S", 0.0)


def own_runs(bench: Bench, path: Path) -> int | None:
    estimate = bench.predict(bench.read(path))
    assert isinstance(estimate, Estimate)
    return estimate.own_runs


@pytest.mark.usefixtures("_one_network")
def test_a_network_runs_once_and_counts_for_other_models(tmp_path: Path) -> None:
    path = save(mlp(), tmp_path, "mlp.onnx")
    with Bench(tmp_path / "cache", threads=1) as bench:
        assert own_runs(bench, path) == 1
        (digest,) = bench.workspace.whole_runs()
        network = bench.predict(bench.read(NETWORK))  # which its own run says nothing of
        assert isinstance(network, Estimate)
        assert network.own_runs == 0
        assert network.predicted_share == 0.0  # its bricks were measured, too
        bench.measure([bench.read(save(mlp(widths=(32, 8, 10)), tmp_path, "wider.onnx"))])
        assert bench.workspace.whole_runs() == [digest]


@pytest.mark.usefixtures("_one_network")
def test_made_up_latencies_are_earned_by_nobody(tmp_path: Path) -> None:
    path = save(mlp(), tmp_path, "mlp.onnx")
    with Bench(tmp_path / "cache", runtime="fake") as bench:
        assert not bench.workspace.earns_intervals(bench.target)
        assert own_runs(bench, path) is None


def test_where_bricks_are_predicted_some_small_models_run(tmp_path: Path) -> None:
    with Bench(tmp_path / "cache", runtime="fake") as bench:
        jobs = [
            bricks_job(
                bench.workspace,
                bench.read(save(mlp(widths=(32, width, 10)), tmp_path, f"{width}.onnx")),
            )
            for width in range(4, 104, 4)
        ]
    assert ran(with_runs(jobs, 0)) == ran(with_runs([*reversed(jobs)], 0))
    assert len(ran(with_runs(jobs, 0))) == 5
    assert len(ran(with_runs(jobs, 6))) == 2  # others ran before
    assert not ran(with_runs(jobs, 8))
    assert not ran(with_runs(jobs[:4], 0))
    small = {job.model.name for job in jobs[: len(jobs) // 2]}
    assert ran(with_runs(jobs, 0)) <= small


def ran(jobs: list[ModelJob]) -> set[str]:
    return {job.model.name for job in jobs if job.whole}
