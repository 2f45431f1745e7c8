"""How much each source contributes to an interval's width, and which of them make it wide."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from plans import CHAIN, decomposed, estimate_of, measurement, plan, results

from bricks.compose.basis import Basis, Results
from bricks.compose.estimate import DeviceTimes, ErrorSource, Estimate, Share, Uncertainty
from bricks.compose.interval_width import Remedy, wide_interval
from bricks.compose.recompose import recompose
from bricks.compose.schedule import Construction
from bricks.predict.prediction import BrickPredictions, Prediction
from bricks.samples.measurement import Measurement, Round
from bricks.samples.sensitivity import Sensitivities
from bricks.samples.usual_conditions import UsualConditions
from bricks.system.host_conditions import KERNELS, HostConditions
from bricks.units.interval import Interval

NOTHING_KNOWN = BrickPredictions()


def estimate(known: Results, of: BrickPredictions = NOTHING_KNOWN, **more: object) -> Estimate:
    return estimate_of(Basis(CHAIN, known, predictions=of, **more))  # type: ignore[arg-type]


def half_width_s(found: Estimate) -> float:
    return (found.high_s - found.low_s) / 2


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("workers", [1, 2])
def test_the_sources_add_up_to_half_the_width(seed: int, workers: int) -> None:
    draw = random.Random(seed)
    keys = "abcdefgh"
    places = [(key, draw.sample(range(i + 1), 1), [i + 1]) for i, key in enumerate(keys)]
    of = plan(places)
    known = results({}, overhead_s=draw.choice([0.0, 2e-6]))
    predicted = {}
    for key in keys:
        latency_s = 10 ** draw.uniform(-6, -3)
        if draw.random() < 0.4:
            predicted[key] = Prediction(latency_s, draw.choice([0.1, 1.0]))
        else:
            noisy = [latency_s * draw.uniform(0.8, 1.2) for _ in range(draw.randint(1, 9))]
            known[key] = Measurement(key, tuple(Round((s,)) for s in noisy), 1.0)
    construction = None
    if workers > 1:
        streams = tuple(i % workers for i in range(len(keys)))
        construction = Construction(workers, streams, decomposed(of).bricks, processors=2)
    predictions = BrickPredictions(predicted, bias=0.1)
    found = recompose(Basis(of, known, predictions=predictions, construction=construction))
    assert isinstance(found, Estimate)
    assert found.uncertainty.half_width_s == pytest.approx(half_width_s(found))
    assert all(part_s >= 0 for part_s in found.uncertainty.by_source.values())


def test_a_narrow_interval_needs_no_reason() -> None:
    found = estimate(results({"a": 2e-3, "b": 5e-3}))
    assert found.relative_uncertainty < 0.05
    assert wide_interval(found) is None


def test_independent_sources_contribute_as_their_squares_do() -> None:
    """The spread of samples hardly counts next to the wider error of a prediction."""
    noisy = {"a": measurement("a", *[1e-3, 2e-3, 3e-3] * 5)}
    predictions = BrickPredictions({"b": Prediction(5e-3, 0.4)})
    alone_s = estimate(results({"b": 5e-3}) | noisy).uncertainty.samples_s
    predicted_s = estimate(results({"a": 2e-3}), predictions).uncertainty.predicted_s
    both = estimate(results({}) | noisy, predictions).uncertainty
    assert both.samples_s < 0.6 * alone_s
    assert both.samples_s + both.predicted_s < 0.9 * (alone_s + predicted_s)


def test_predicted_bricks_are_the_reason_and_can_be_measured() -> None:
    found = estimate(results({"a": 2e-4}), BrickPredictions({"b": Prediction(5e-3, 0.3)}, bias=0.1))
    wide = wide_interval(found)
    assert wide is not None
    assert [reason.source for reason in wide.reasons] == [ErrorSource.PREDICTED]
    assert wide.reasons[0].share > 0.9
    assert wide.remedy is Remedy.MEASURE


def test_the_error_that_predictions_share_counts_as_predicted() -> None:
    known = results({"a": 2e-4})
    exact, biased = (
        estimate(known, BrickPredictions({"b": Prediction(5e-3, 0.0)}, bias=bias)).uncertainty
        for bias in (0.0, 0.2)
    )
    assert exact.predicted_s == 0
    assert biased.predicted_s > 1.96 * 0.2 * 5e-3  # a normal error; tails of predictions are longer


def test_a_host_that_changes_is_the_reason_and_only_the_present_is_narrower() -> None:
    covariance = np.full((len(KERNELS),) * 2, 0.3**2)
    usual = UsualConditions(HostConditions((1e-3,) * len(KERNELS)), covariance)
    found = estimate(
        results({"a": 2e-3, "b": 5e-3}), conditions=usual, sensitivities=Sensitivities({}, 1)
    )
    wide = wide_interval(found)
    assert wide is not None
    assert [reason.source for reason in wide.reasons] == [ErrorSource.CONDITIONS]
    assert wide.remedy is Remedy.NOW
    # A brick of unknown work follows nine tenths of what all kernels have in common.
    assert found.relative_uncertainty == pytest.approx(1.96 * 0.9 * 0.3, rel=0.05)


def test_a_brick_is_predicted_for_the_conditions_of_the_estimate() -> None:
    slow, fast = (HostConditions((s,) * len(KERNELS)) for s in (2e-3, 1e-3))
    predictions = BrickPredictions({"b": Prediction(5e-3, 0.0)}, host=slow)
    of = {"conditions": UsualConditions.exactly(fast), "sensitivities": Sensitivities({}, 1)}
    usual, now = (
        estimate(results({"a": 1e-6}), predictions, **more)  # type: ignore[arg-type]
        for more in ({}, of)
    )
    assert now.estimate_s / usual.estimate_s == pytest.approx(0.5**0.9, rel=0.01)


def test_scattered_samples_are_the_reason() -> None:
    found = estimate(results({"a": 1e-4}) | {"b": measurement("b", *[1e-3, 2e-3, 4e-3] * 2)})
    wide = wide_interval(found)
    assert wide is not None
    assert [reason.source for reason in wide.reasons] == [ErrorSource.SAMPLES]
    assert wide.remedy is Remedy.MEASURE_AGAIN


def test_calls_are_the_reason_where_bricks_take_hardly_longer() -> None:
    found = estimate(results({"a": 5e-6, "b": 6e-6}, overhead_s=2e-6))
    wide = wide_interval(found)
    assert wide is not None
    assert [reason.source for reason in wide.reasons] == [ErrorSource.CALLS]
    assert wide.remedy is Remedy.NOTHING


@pytest.mark.parametrize(("published", "remedy"), [(True, Remedy.MEASURE), (False, Remedy.NOTHING)])
def test_calls_of_another_host_can_be_measured(published: bool, remedy: Remedy) -> None:
    once = Interval(1e-3, 5e-4, 2e-3)
    found = replace(
        estimate(results({"a": 2e-3, "b": 5e-3})),
        low_s=0.0,
        uncertainty=Uncertainty(calls_s=1e-3),
        shares=(Share("a", 1, 2e-3, 1.0, published=published),),
        device=DeviceTimes(once, once, "host", once, once, kernels=1),
    )
    wide = wide_interval(found)
    assert wide is not None and wide.remedy is remedy


def test_workers_are_the_reason_though_every_brick_is_known_exactly() -> None:
    fork = plan([("a", [0], [1]), ("b", [0], [2]), ("c", [1, 2], [3])])
    construction = Construction(2, (0, 1, 0), decomposed(fork).bricks)
    known = results({"a": 5e-3, "b": 5e-3, "c": 1e-4})
    found = recompose(Basis(fork, known, construction=construction))
    assert isinstance(found, Estimate)
    wide = wide_interval(found)
    assert wide is not None
    assert wide.reasons[0].source is ErrorSource.WORKERS
    assert wide.remedy is Remedy.NOTHING


def test_several_reasons_are_given_and_the_first_that_has_one_sets_the_remedy() -> None:
    narrow = estimate(results({"a": 2e-3, "b": 5e-3}))
    half_s = half_width_s(replace(narrow, low_s=0.0))
    parts = Uncertainty(calls_s=0.5 * half_s, predicted_s=0.3 * half_s, samples_s=0.2 * half_s)
    wide = wide_interval(replace(narrow, low_s=0.0, uncertainty=parts))
    assert wide is not None
    assert [reason.source for reason in wide.reasons] == [
        ErrorSource.CALLS,
        ErrorSource.PREDICTED,
    ]
    assert [reason.share for reason in wide.reasons] == pytest.approx([0.5, 0.3])
    assert wide.remedy is Remedy.MEASURE


def test_models_on_one_host_are_slower_together_so_that_their_order_stays_sure() -> None:
    covariance = np.full((len(KERNELS),) * 2, 0.3**2)
    usual = UsualConditions(HostConditions((1e-3,) * len(KERNELS)), covariance)
    known = results({"a": 2e-3, "b": 5e-3})
    exact = estimate(known)
    found = estimate(known, conditions=usual, sensitivities=Sensitivities({}, 1))
    assert found.latency_s.relative > 0.5
    assert found.comparable_s.value == found.estimate_s
    assert found.comparable_s.relative == pytest.approx(exact.latency_s.relative, rel=0.01)
    assert found.conditions_sd == pytest.approx(0.9 * 0.3, rel=0.05)
