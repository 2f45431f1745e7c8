"""Errors of single bricks cancel out in a model, so its latency is predicted without bias."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pytest
from brick_examples import halves, latencies, learned, mixture

from bricks.predict.prediction import Prediction, Predictions


def sum_s(predictions: Mapping[str, Prediction]) -> float:
    counts = dict.fromkeys(predictions, 1)
    factors = Predictions(predictions).factors(counts)
    return sum(factors[key] * p.latency_s for key, p in predictions.items())


def test_a_brick_alone_counts_with_its_median() -> None:
    assert sum_s({"a": Prediction(2e-3, 0.5, 0.5)}) == pytest.approx(2e-3)


def test_errors_that_bricks_have_in_common_do_not_cancel_out() -> None:
    many = {str(i): Prediction(1e-3, 0.5) for i in range(1000)}
    assert sum_s(many) == pytest.approx(1.0)


@pytest.mark.parametrize("log_sd", [0.1, 0.3, 0.6])
@pytest.mark.parametrize("count", [1, 3, 300])
def test_the_factors_give_the_median_of_a_sum_of_log_normal_latencies(
    count: int, log_sd: float
) -> None:
    rng = np.random.default_rng(1)
    medians_s = rng.uniform(0.5, 2.0, count)
    sums_s = (medians_s * np.exp(rng.normal(0, log_sd, (20_000, count)))).sum(axis=1)
    predicted = {str(i): Prediction(s, log_sd, log_sd) for i, s in enumerate(medians_s)}
    assert sum_s(predicted) == pytest.approx(float(np.median(sums_s)), rel=0.02)


def test_often_counts_as_one_error() -> None:
    found = Predictions({"a": Prediction(1e-3, 0.4, 0.4), "b": Prediction(1e-3, 0.4, 0.4)})
    assert found.factors({"a": 1, "b": 1}) == found.factors({"a": 70, "b": 70})
    assert found.factors({"a": 0}) == pytest.approx({"a": math.exp(0.08)})


# Three bricks are half of a sum, so a few seeds tell little.
@pytest.mark.parametrize(
    ("seeds", "off"), [(20, 0.05), pytest.param(60, 0.03, marks=pytest.mark.slow)]
)
def test_the_sum_of_many_noisy_bricks_is_predicted_without_bias(seeds: int, off: float) -> None:
    known, unseen = halves(mixture())
    ratios = []
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        noisy = {key: s * math.exp(rng.normal(0, 0.2)) for key, s in latencies(mixture()).items()}
        found = learned(known, {key: noisy[key] for key in known}).predict(unseen)
        ratios.append(sum_s(found) / sum(noisy[key] for key in unseen))
    assert np.mean(ratios) == pytest.approx(1.0, abs=off)
