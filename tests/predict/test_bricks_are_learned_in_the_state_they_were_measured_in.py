"""On a machine of two speeds, what was measured at one of them predicts bricks at the other."""

from __future__ import annotations

import numpy as np
import pytest
from brick_examples import conv, groups_of, ideal_s, mixture

from bricks.predict.defaults import MIN
from bricks.predict.features import extract_features
from bricks.predict.observations import Observations
from bricks.predict.predictor import learn
from bricks.samples.measurement import Measurement, Round

FAST, SLOW = 1e-4, 2e-4  # reference latencies, in seconds
# In the slow state, passing values between cores makes each call take longer.
LATER_S = 5e-6


def measured_s(key: str, state_s: float) -> float:
    return ideal_s(mixture()[key]) + (LATER_S if state_s == SLOW else 0.0)


def measurement(key: str, *states: float) -> Measurement:
    rounds = tuple(Round((measured_s(key, s),), reference_s=s) for s in states for _ in range(3))
    return Measurement(key, rounds, 1.0)


def test_each_brick_counts_in_the_preferred_state_or_else_in_its_own() -> None:
    both, slow, *_ = sorted(mixture())
    measured = {both: measurement(both, SLOW, FAST), slow: measurement(slow, SLOW)}
    seen = Observations.of(measured, FAST)
    assert seen.states == {both: FAST, slow: SLOW}
    assert seen.latency_s[both] == pytest.approx(measured_s(both, FAST))
    assert seen.latency_s[slow] == pytest.approx(measured_s(slow, SLOW))
    assert seen.state_counts.fastest_s == FAST
    slowness = {key: t.context.slowness for key, t in seen.features(mixture_of(seen)).items()}
    assert slowness == {both: 0.0, slow: pytest.approx(1.0)}


def mixture_of(seen: Observations) -> dict[str, object]:
    return {key: mixture()[key] for key in seen.latency_s}


def test_without_references_all_is_one_state() -> None:
    key = min(mixture())
    seen = Observations.of({key: Measurement(key, (Round((1e-3,)),), 1.0)}, None)
    assert seen.state_counts.fastest_s is None
    assert seen.features({key: mixture()[key]}) == {key: mixture()[key]}
    assert seen.state_counts.in_state({key: mixture()[key]}, FAST) == {key: mixture()[key]}


def test_predictions_are_for_the_state_that_is_asked_for() -> None:
    measured = {
        key: measurement(key, (FAST, SLOW)[i % 2]) for i, key in enumerate(sorted(mixture()))
    }
    seen = Observations.of(measured, FAST)
    predictor = learn(seen.features(mixture()), seen.latency_s, groups_of(mixture()))
    assert predictor is not None
    unseen = {f"{side}": extract_features(conv(32, 40, side)) for side in (10, 20, 40)}
    for state_s, later_s in ((FAST, 0.0), (SLOW, LATER_S)):
        found = predictor.predict(seen.state_counts.in_state(unseen, state_s))
        errors = [found[k].latency_s / (ideal_s(t) + later_s) - 1 for k, t in unseen.items()]
        assert np.abs(errors).max() < 0.1


def test_a_state_in_which_little_was_observed_cannot_be_predicted() -> None:
    keys = sorted(mixture())
    few = Observations.of({key: measurement(key, FAST) for key in keys[: MIN - 1]}, FAST)
    assert not few.state_counts.enough_in(FAST)
    one_state = Observations.of({key: measurement(key, FAST) for key in keys[:MIN]}, FAST)
    assert one_state.state_counts.enough_in(FAST) and not one_state.state_counts.enough_in(SLOW)
