"""An imprecise measurement is combined with priors of other hosts of its kind."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
from factories import mlp, save
from hypothesis import given
from hypothesis import strategies as st
from plans import CHAIN, estimate_of, measurement, results
from systems import know_on, on

from bricks import Bench
from bricks.analysis.publishing import Validated, publish
from bricks.compose.basis import (
    OTHER_HOST_SD,
    Basis,
    Results,
    imprecise_bricks,
    prior_of_measurement,
    prior_of_prediction,
)
from bricks.compose.estimate import Estimate
from bricks.compose.recomposition_error import OTHER_HOST_SHARE
from bricks.predict.prediction import BrickPredictions, Prediction
from bricks.samples.measurement import Measurement, Round
from bricks.samples.sensitivity import Sensitivities
from bricks.samples.statistics import NORMAL_95
from bricks.samples.usual_conditions import UsualConditions
from bricks.store import Store
from bricks.system import fingerprint
from bricks.system.host_conditions import HostConditions
from bricks.units.interval import Interval

NOTHING_KNOWN = BrickPredictions()
UNREST = [1e-3, 4e-3, 2e-3, 6e-3, 1.5e-3, 5e-3, 3e-3]


def published(key: str, latency_s: float) -> Measurement:
    return replace(measurement(key, *[latency_s] * 8), published=True)


def estimate(known: Results, predictions: BrickPredictions = NOTHING_KNOWN) -> Estimate:
    return estimate_of(Basis(CHAIN, known, predictions=predictions))


def half_s(found: Estimate) -> float:
    return (found.high_s - found.low_s) / 2


SECONDS = st.floats(1e-6, 1.0)


@given(SECONDS, SECONDS, st.floats(0.01, 1.0), st.floats(0.01, 1.0))
def test_both_together_lie_between_and_are_surer_than_either(
    mine_s: float, before_s: float, width: float, sd: float
) -> None:
    factor = math.exp(width)
    both, weight = Prediction(before_s, sd).combined_with(
        Interval(mine_s, mine_s / factor, mine_s * factor)
    )
    low_s, high_s = sorted((mine_s, before_s))
    assert low_s * (1 - 1e-9) <= both.value <= high_s * (1 + 1e-9)
    both_sd = math.log(both.high / both.low) / 2 / NORMAL_95
    assert both_sd <= min(sd, width / NORMAL_95) * (1 + 1e-9)
    assert weight == pytest.approx(1 / (1 + (sd / (width / NORMAL_95)) ** 2))


def test_a_certain_measurement_is_hardly_moved() -> None:
    both, weight = Prediction(2e-3, 0.1).combined_with(Interval(1e-3, 0.999e-3, 1.001e-3))
    assert both.value == pytest.approx(1e-3, rel=1e-3)
    assert weight < 1e-3


def test_an_interval_down_to_zero_says_little() -> None:
    both, weight = Prediction(2e-3, 0.1).combined_with(Interval(1e-3, 0.0, 9e-3))
    assert both.value == pytest.approx(2e-3, rel=0.05)
    assert weight > 0.95


def test_wide_intervals_of_own_measurements_are_unsure() -> None:
    known = results({"a": 1e-3}) | {"b": measurement("b", *UNREST)}
    assert imprecise_bricks(Basis(CHAIN, known)) == {"b"}
    others = {"b": replace(measurement("b", *UNREST), published=True)}
    assert imprecise_bricks(Basis(CHAIN, known | others)) == set()


def test_what_kernels_explain_is_no_uncertainty() -> None:
    """A host that flips makes latencies differ, and its kernels say why."""
    speeds = (1.0, 2.0) * 8
    rounds = tuple(Round((f**0.9 * 1e-3,), HostConditions((f * 1e-3,) * 5)) for f in speeds)
    known = {key: Measurement(key, rounds, 1.0) for key in "ab"}
    to = UsualConditions.exactly(HostConditions((1e-3,) * 5))
    assert imprecise_bricks(Basis(CHAIN, known)) == {"a", "b"}
    assert (
        imprecise_bricks(Basis(CHAIN, known, BrickPredictions(), to, Sensitivities({}, 1))) == set()
    )


def test_what_another_host_tells_is_as_uncertain_as_hosts_differ() -> None:
    exact = prior_of_measurement(Interval(1e-3, 1e-3, 1e-3))
    assert (exact.latency_s, exact.log_sd) == (1e-3, OTHER_HOST_SD)
    assert prior_of_prediction(Prediction(1e-3, 0.1)).log_sd == math.hypot(0.1, OTHER_HOST_SD)


def test_an_estimate_from_other_hosts_has_their_spread_in_its_interval() -> None:
    own, others = results({"a": 1e-3, "b": 1e-3}), {k: published(k, 1e-3) for k in "ab"}
    mine, theirs = estimate(own), estimate(own | others)
    assert (mine.published_share, theirs.published_share) == (0.0, 1.0)
    assert theirs.estimate_s == mine.estimate_s
    assert mine.uncertainty.other_host_s == 0.0
    assert theirs.uncertainty.other_host_s > 0.0
    assert half_s(theirs) == pytest.approx(math.hypot(half_s(mine), OTHER_HOST_SHARE * 3e-3))


def test_an_unsure_brick_counts_with_what_was_known_before() -> None:
    known = results({"a": 1e-3}) | {"b": measurement("b", *UNREST)}
    before = BrickPredictions(prior={"b": Prediction(1e-3, 0.04)})
    alone, both = estimate(known), estimate(known, before)
    assert alone.estimate_s == pytest.approx(5e-3)
    assert both.estimate_s == pytest.approx(3e-3, rel=0.03)
    assert half_s(both) < half_s(alone) / 2
    assert 0.3 < both.published_share < 1 / 3
    assert not any(share.published for share in both.shares)  # it was measured here, too


def test_a_disturbed_host_answers_with_what_its_kind_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, host = save(mlp(), tmp_path, "net.onnx"), fingerprint()
    place = tmp_path / "published"
    place.mkdir()
    know_on(host, tmp_path / "theirs", path, 1e-3, runtime="fake", threads=1)
    with Store.open(tmp_path / "theirs") as store:
        publish(tmp_path / "theirs", [Validated(t.key, {}) for t in store.systems.targets()], place)
    monkeypatch.setenv("BRICKS_FAKE_UNREST", "200")  # samples vary by 80 %

    def asked() -> Estimate:
        with on(host), Bench(tmp_path / "own", runtime="fake", threads=1) as bench:
            found = bench.predict(bench.read(path))
            assert isinstance(found, Estimate)
            return found

    alone = asked()
    monkeypatch.setenv("BRICKS_PUBLISHED", str(place))
    both = asked()
    assert alone.published_share == 0 < both.published_share < 1
    assert half_s(both) / both.estimate_s < half_s(alone) / alone.estimate_s
