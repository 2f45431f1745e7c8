"""Single runs of a model vary as the samples of its bricks do."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from factories import conv_net, save

from bricks import Bench
from bricks.compose.basis import Basis
from bricks.compose.estimate import Estimate
from bricks.compose.queueing.run import run_factors, single_runs_s
from bricks.compose.recompose import recompose
from bricks.samples.measurement import Measurement, Round
from bricks.session import predicting


@pytest.fixture(scope="module")
def basis(tmp_path_factory: pytest.TempPathFactory) -> tuple[Basis, Estimate]:
    tmp_path = tmp_path_factory.mktemp("basis")
    with Bench(tmp_path / "cache", runtime="fake", threads=1) as bench:
        basis = predicting.basis(
            bench.workspace, bench.read(save(conv_net(), tmp_path, "conv.onnx"))
        )
    estimate = recompose(basis)
    assert isinstance(estimate, Estimate)
    return basis, estimate


def measured(basis: Basis, samples: list[list[float]]) -> Basis:
    """Every brick with rounds that have these samples, relative to its median."""
    results = {}
    for key, found in basis.results.items():
        assert isinstance(found, Measurement)
        rounds = [Round(tuple(found.latency_s * s for s in round_)) for round_ in samples]
        results[key] = Measurement(key, tuple(rounds), 1.0)
    return replace(basis, results=results)


def test_even_samples_give_even_runs(basis: tuple[Basis, Estimate]) -> None:
    of, estimate = basis
    assert run_factors(measured(of, [[1.0] * 5] * 6), estimate) == pytest.approx(1.0)


def test_rounds_are_common_to_the_bricks_and_so_are_not_averaged(
    basis: tuple[Basis, Estimate],
) -> None:
    of, estimate = basis
    factors = run_factors(measured(of, [[0.9] * 5, [1.0] * 5, [1.1] * 5]), estimate)
    assert np.median(factors) == pytest.approx(1.0)
    assert (factors.min(), factors.max()) == pytest.approx((0.9, 1.1), abs=0.001)


def test_an_outlier_of_a_call_lengthens_few_runs(basis: tuple[Basis, Estimate]) -> None:
    of, estimate = basis
    rounds = [[1.0] * 5] * 19 + [[1.0, 1.0, 1.0, 1.0, 3.0]]
    factors = run_factors(measured(of, rounds), estimate)
    calls = sum(share.occurrences for share in estimate.shares)
    slow = 1 - 0.99**calls
    assert (factors > 1 + 1e-9).mean() == pytest.approx(slow, rel=0.3)
    assert factors.mean() == pytest.approx(1.02, abs=0.004)
    assert np.median(factors) == pytest.approx(1.0)


def test_the_same_seed_draws_the_same_runs(basis: tuple[Basis, Estimate]) -> None:
    of, estimate = basis
    first, again = (run_factors(of, estimate, seed=4) for _ in range(2))
    assert (first == again).all()


def test_an_interruption_lengthens_one_occurrence_and_not_all_that_its_place_stands_for() -> None:
    """Nine occurrences, timed at one: a run is interrupted nine times as often, by a ninth each."""
    rng = np.random.default_rng(1)
    seconds = np.where(rng.random(4000) < 0.01, 3e-3, 1e-3)
    counts, places = {"a": 9, "b": 9}, {"a": 1, "b": 1}
    other = np.full(4000, 1e-3)
    found = single_runs_s({"a": seconds, "b": other}, counts, places)
    assert found.mean() == pytest.approx(9 * seconds.mean() + 9e-3, rel=0.01)
    assert np.mean(found > 19e-3) == pytest.approx(1 - 0.99**9, rel=0.2)
    assert np.percentile(found, 99) < 9 * 3e-3


def test_what_slows_all_bricks_of_a_pass_slows_the_run() -> None:
    slow = np.where(np.arange(400) % 10 == 0, 2e-3, 1e-3)
    keys = ("a", "b", "c")
    found = single_runs_s(dict.fromkeys(keys, slow), dict.fromkeys(keys, 5), dict.fromkeys(keys, 2))
    assert found == pytest.approx(15 * slow)
