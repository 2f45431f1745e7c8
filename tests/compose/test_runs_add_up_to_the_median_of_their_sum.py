"""In a sum of many runs each counts with its mean: medians of skewed runs do not add up."""

from __future__ import annotations

import numpy as np
import pytest

from bricks.samples.measurement import Measurement, Round
from bricks.samples.statistics import Term, skew_share


def skewed(rng: np.random.Generator, runs: int) -> np.ndarray:
    """Seconds of runs, one in four of which takes a third longer."""
    return np.where(rng.random(runs) < 0.25, 1.33, 1.0) * rng.normal(1e-3, 2e-5, runs)


def sum_s(term: Term) -> float:
    return term.medians_s + skew_share([term]) * (term.mean_s - term.medians_s)


def measured(samples: np.ndarray) -> Measurement:
    return Measurement("a", tuple(Round(tuple(pair)) for pair in samples.reshape(-1, 2)), 0.0)


@pytest.mark.parametrize("occurrences", [10, 40, 160])
def test_many_runs_take_their_mean(occurrences: int) -> None:
    rng = np.random.default_rng(0)
    whole_s = skewed(rng, 4000 * occurrences).reshape(4000, occurrences).sum(axis=1)
    brick = measured(skewed(rng, 400))
    term = brick.runs.term(brick.latency_s, occurrences)
    told_s = sum_s(term)
    assert told_s == pytest.approx(float(np.median(whole_s)), rel=0.01)
    assert occurrences * brick.latency_s < 0.97 * told_s  # what adding up medians would say


def test_a_single_run_takes_its_median() -> None:
    brick = measured(skewed(np.random.default_rng(0), 400))
    term = brick.runs.term(brick.latency_s, 1)
    assert sum_s(term) == pytest.approx(brick.latency_s)


def test_one_interruption_does_not_decide() -> None:
    quiet = np.full(40, 1e-3)
    hit = quiet.copy()
    hit[7] = 1.0
    assert measured(hit).mean_s == pytest.approx(measured(quiet).mean_s, rel=0.06)


def test_what_changes_from_round_to_round_is_common_to_all_runs() -> None:
    rounds = tuple(Round((s, s)) for s in (1e-3, 1e-3, 1e-3, 1.2e-3))
    drifted = Measurement("a", rounds, 0.0)
    term = drifted.runs.term(drifted.latency_s, 100)
    assert sum_s(term) == pytest.approx(0.1)


def test_runs_that_do_not_vary_add_up_as_they_are() -> None:
    brick = measured(np.full(8, 1e-3))
    term = brick.runs.term(brick.latency_s, 5)
    assert sum_s(term) == pytest.approx(5e-3)
