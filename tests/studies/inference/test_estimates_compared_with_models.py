from __future__ import annotations

import pytest
from plans import measurement, plan, results

from bricks.compose.basis import Basis
from bricks.compose.estimate import Estimate
from bricks.compose.recompose import recompose
from bricks.samples.measurement import round_spread
from bricks.studies.inference.result import ModelComparison, repeat_error, summarise

PLAN = plan([("a", [0], [1]), ("b", [1], [2]), ("a", [2], [3])])


def compared(whole_s: float, latencies: dict[str, float]) -> tuple[ModelComparison, dict]:
    found = results(latencies)
    rounds = [whole_s, whole_s * 1.01] * 4
    found[PLAN.digest] = measurement(PLAN.digest, *rounds, wall_s=6.0)
    estimate = recompose(Basis(PLAN, found))
    assert isinstance(estimate, Estimate)
    whole = found[PLAN.digest]
    return ModelComparison("net", PLAN, 2, round_spread(whole), estimate), found


def test_the_summary_is_what_its_names_say() -> None:
    row, found = compared(10e-3, {"a": 2e-3, "b": 5e-3})
    times = {PLAN.digest: 0.25}
    summary = summarise([row], found, decompose_s=times, read_s={PLAN.digest: 0.5})
    whole = 10e-3 * 1.005
    assert row.ratio == pytest.approx(9e-3 / whole)
    assert summary.median_abs_error == pytest.approx(1 - 9e-3 / whole)
    assert summary.max_abs_error == summary.p95_abs_error == summary.median_abs_error
    assert summary.geomean_ratio == pytest.approx(row.ratio)
    assert summary.interval_hit_rate == 0.0
    assert summary.noise_floor == pytest.approx(0.01)
    assert summary.speedup_latency == pytest.approx(whole / 7e-3)
    assert summary.bricks_wall_s == pytest.approx(0.5 + 0.25 + 2 * 1.0)
    assert summary.models_wall_s == pytest.approx(0.5 + 6.0)
    assert summary.speedup_wall == pytest.approx(6.5 / 2.75)
    assert (summary.models, summary.occurrences, summary.bricks) == (1, 3, 2)


def test_the_mean_of_ratios_shows_a_lean_that_errors_hide() -> None:
    (high, found), (low, _) = (compared(s, {"a": 2e-3, "b": 5e-3}) for s in (8e-3, 10e-3))
    times = {PLAN.digest: 0.25}
    summary = summarise([high, low], found, decompose_s=times, read_s=times)
    assert high.ratio > 1 > low.ratio
    assert summary.geomean_ratio == pytest.approx((high.ratio * low.ratio) ** 0.5)


def test_no_models_make_no_figures() -> None:
    summary = summarise([], {}, decompose_s={}, read_s={})
    assert summary.models == 0
    assert summary.median_abs_error is None
    assert summary.geomean_ratio is None
    assert summary.speedup_latency is None


def test_the_noise_floor_needs_repeats() -> None:
    assert repeat_error(measurement("m", 1.0)) is None
    assert repeat_error(measurement("m", 1.0, 1.1, 1.0, 1.1)) == pytest.approx(0.1)
