"""Errors of single bricks cancel out in a model, so its latency is predicted without bias."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pytest
from brick_examples import halves, latencies, learned, mixture

from bricks.predict.prediction import Prediction
from bricks.samples.statistics import skew_share


def sum_s(predictions: Mapping[str, Prediction]) -> float:
    terms = [p.term(1) for p in predictions.values()]
    medians_s = sum(term.medians_s for term in terms)
    means_s = sum(term.mean_s for term in terms)
    return medians_s + skew_share(terms) * (means_s - medians_s)


def test_a_brick_alone_counts_with_its_median() -> None:
    assert sum_s({"a": Prediction(2e-3, 0.5)}) == pytest.approx(2e-3)


@pytest.mark.parametrize("log_sd", [0.1, 0.3, 0.6])
@pytest.mark.parametrize("count", [1, 3, 300])
def test_log_normal_latencies_add_up_to_the_median_of_their_sum(count: int, log_sd: float) -> None:
    rng = np.random.default_rng(1)
    medians_s = rng.uniform(0.5, 2.0, count)
    sums_s = (medians_s * np.exp(rng.normal(0, log_sd, (20_000, count)))).sum(axis=1)
    predicted = {str(i): Prediction(s, log_sd) for i, s in enumerate(medians_s)}
    assert sum_s(predicted) == pytest.approx(float(np.median(sums_s)), rel=0.02)


def test_all_occurrences_of_a_brick_have_one_error() -> None:
    many = Prediction(1e-3, 0.4).term(70)
    assert skew_share([many]) == pytest.approx(0.0)
    assert many.mean_s == pytest.approx(0.07 * math.exp(0.08))


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
