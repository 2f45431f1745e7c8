"""A bench learns from what was measured after it was opened, and gives back what it had opened."""

from dataclasses import replace
from pathlib import Path

import pytest
from factories import mlp, save
from refusals import refused

import bricks
from bricks.errors import StoreError
from bricks.session import whole_models
from bricks.session.latencies import Latencies
from bricks.store import Store
from bricks.store.systems import Systems

QUICK = bricks.Conditions(rule=bricks.StopRule(min_rounds=2, max_rounds=2), exclusive=False)


def known(latencies: Latencies) -> dict[str, float]:
    return latencies.target.latencies().seconds


def test_rounds_that_are_added_to_a_measurement_count_in_the_same_bench(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host that is slower: what was known is measured again in other conditions."""
    small = save(mlp(widths=(8, 8, 4)), tmp_path, "small.onnx")
    conditions = replace(QUICK, again=True)
    options = bricks.Options(runtime="fake", threads=1, conditions=conditions)
    with bricks.Bench(tmp_path / "cache", options) as bench:
        bench.measure([bench.read(small)])
        known(bench.workspace.estimators.latencies())  # learned once
        monkeypatch.setenv("BRICKS_FAKE_STATE", "2")
        # In a worker of its own, which is slower.
        whole_models.profile(bench.workspace, bench.read(small))
        again = bench.measure([bench.read(small)])
        assert again.remeasured_bricks > 0
        with bricks.Bench(tmp_path / "cache", options) as fresh:
            latencies = bench.workspace.estimators.latencies()
            assert known(latencies) == known(fresh.workspace.estimators.latencies())


def test_a_bench_that_cannot_be_opened_leaves_no_cache_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed, refusal = [], StoreError("the names are damaged")

    def damaged(*_: object) -> None:
        raise refusal

    monkeypatch.setattr(Systems, "named", damaged)
    monkeypatch.setattr(Store, "close", lambda store: closed.append(store))
    with refused(StoreError) as caught:
        bricks.Bench(tmp_path / "cache", runtime="fake")
    assert caught.value is refusal
    assert len(closed) == 1
