"""Whole models that a host ran show how far its estimates are off, and how sure that is."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from plans import CHAIN, results

from bricks.compose.basis import Basis
from bricks.compose.estimate import Estimate
from bricks.compose.recompose import own_run, recompose
from bricks.compose.recomposition_error import LimitShares, OwnRun, OwnRuns
from bricks.predict.prediction import BrickPredictions
from bricks.samples.measurement import Measurement, Round

SD = 0.001
ARITHMETIC = LimitShares(1.0, 0.0, 0.0, 0.0, 0.0, 0.0)
MEMORY = replace(ARITHMETIC, arithmetic=0.0, memory=1.0)
PREDICTED = replace(ARITHMETIC, arithmetic=0.0, predicted=1.0)


def runs(count: int, shares: LimitShares, log_ratio: float, scatter: float = 0.0) -> list[OwnRun]:
    found = np.random.default_rng(0).normal(log_ratio, scatter, count)
    return [OwnRun(f"m{n}", shares, float(log), SD) for n, log in enumerate(found)]


def test_without_runs_nothing_is_corrected_and_the_interval_is_wide() -> None:
    error = OwnRuns().error(ARITHMETIC, 0.0)
    assert (error.factor, error.runs) == (1.0, 0)
    assert 0.06 < error.recomposition < 0.1


def test_runs_that_agree_correct_and_narrow() -> None:
    error = OwnRuns(runs(12, ARITHMETIC, 0.05, 0.005)).error(ARITHMETIC, 0.0)
    assert error.factor == pytest.approx(math.exp(0.05), rel=0.02)
    assert error.recomposition < 0.04
    assert error.runs == 12


def test_runs_that_scatter_widen() -> None:
    error = OwnRuns(runs(12, ARITHMETIC, 0.0, 0.1)).error(ARITHMETIC, 0.0)
    assert error.recomposition > 0.12


def test_what_one_kind_shows_is_not_said_of_another() -> None:
    seen = OwnRuns(runs(12, MEMORY, 0.05, 0.005))
    assert seen.error(ARITHMETIC, 0.0).factor == pytest.approx(1.0)
    assert seen.error(ARITHMETIC, 0.0).recomposition > seen.error(MEMORY, 0.0).recomposition


def test_a_common_error_of_predictions_is_learned() -> None:
    """A constant would correct a zoo of random networks: estimates 1.16 times the runs."""
    before = OwnRuns().error(PREDICTED, 0.15)
    after = OwnRuns(runs(8, PREDICTED, -math.log(1.16), 0.04)).error(PREDICTED, 0.15)
    assert before.predicted > 0.3
    assert after.factor == pytest.approx(1 / 1.16, rel=0.04)
    assert after.predicted < before.predicted / 3


def test_a_run_says_nothing_of_its_own_estimate() -> None:
    own = OwnRuns(runs(3, ARITHMETIC, 0.05))
    assert len(own.without("m0")) == 2
    assert len(own.without("other")) == 3


@pytest.fixture
def basis() -> Basis:
    return Basis(CHAIN, results({"a": 1e-3, "b": 1e-3}), BrickPredictions())


def test_the_sum_of_bricks_is_corrected_as_the_estimate_is(basis: Basis) -> None:
    plain = recompose(basis)
    found = recompose(replace(basis, own_runs=OwnRuns(runs(9, ARITHMETIC, 0.05))))
    assert isinstance(plain, Estimate)
    assert isinstance(found, Estimate)
    assert plain.own_runs is None
    assert found.own_runs == 9
    factor = found.estimate_s / plain.estimate_s
    assert factor == pytest.approx(math.exp(0.05), rel=0.02)
    for one, other in zip(found.shares, plain.shares, strict=True):
        assert one.latency_s == pytest.approx(factor * other.latency_s)
    assert found.critical_path_s == pytest.approx(factor * plain.critical_path_s)


def test_a_run_is_compared_with_what_the_bricks_say(basis: Basis) -> None:
    plain = recompose(basis)
    assert isinstance(plain, Estimate)
    run = Measurement("m", (Round((1.1 * plain.estimate_s,) * 2),) * 8, 1.0)
    found = own_run(basis, run)
    assert found is not None
    assert (found.digest, found.log_ratio) == (CHAIN.digest, pytest.approx(math.log(1.1)))
    assert sum(found.shares.vector[:3]) == pytest.approx(1.0, rel=0.01)
    again = own_run(replace(basis, own_runs=OwnRuns([found] * 5)), run)
    assert again == found  # against the bricks alone, whatever was learned before
    assert own_run(replace(basis, results={}), run) is None
