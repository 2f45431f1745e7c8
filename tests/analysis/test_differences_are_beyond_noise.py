"""Which bricks and models of two targets differ: what is found, and what noise is not taken for."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from plans import plan, results
from scipy.special import ndtri
from store_examples import make_target

from bricks.analysis.difference import Difference, difference
from bricks.analysis.significance import (
    BRICK_DRIFT,
    FALSE_DISCOVERY_RATE,
    MACHINE_DRIFT,
    LogRatio,
    degrees_of_freedom,
    judge,
)
from bricks.analysis.target_data import TargetData
from bricks.decompose.plan import Plan
from bricks.predict.prediction import BrickPredictions, Prediction
from bricks.samples.measurement import Failure, Measurement, Round
from bricks.system.target import Target

OLD = make_target()
NEW = Target(OLD.system, replace(OLD.runtime, version="2.0"))
KEYS = [f"b{i:03}" for i in range(200)]


def chain_plan(name: str, keys: Sequence[str]) -> Plan:
    places = [(key, [i], [i + 1]) for i, key in enumerate(keys)]
    return replace(plan(places), model=name)


class Noise:
    """Rounds of bricks as two sessions would take them: a drift of all, of each, and of rounds."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def session(
        self,
        latency_s: Mapping[str, float],
        *,
        rounds: int = 12,
        deviation: float = 0.02,
    ) -> dict[str, Measurement]:
        all_ = self._random.gauss(0, MACHINE_DRIFT)
        found = {}
        for key, middle_s in latency_s.items():
            own = all_ + self._random.gauss(0, BRICK_DRIFT)
            taken = (
                middle_s * math.exp(own + self._random.gauss(0, deviation)) for _ in range(rounds)
            )
            found[key] = Measurement(key, tuple(Round((s,)) for s in taken), 0.0)
        return found


def latencies(count: int = 200) -> dict[str, float]:
    return {key: 1e-5 * (1 + i) for i, key in enumerate(KEYS[:count])}


def data(
    name: str,
    target: Target,
    parts: Mapping[str, Measurement | Failure],
    plans: Mapping[str, Plan] | None = None,
    predictions: BrickPredictions | None = None,
) -> TargetData:
    known = plans or {"net": chain_plan("net", list(parts))}
    return TargetData(
        name, target, known, {**parts, **results({})}, predictions or BrickPredictions()
    )


def compared(
    old: Mapping[str, Measurement | Failure],
    new: Mapping[str, Measurement | Failure],
    targets: tuple[Target, Target] = (OLD, NEW),
) -> Difference:
    return difference(data("old", targets[0], old), data("new", targets[1], new), ["net"])


def steady(latency_s: float, rounds: int = 8, key: str = "b000") -> Measurement:
    """A measurement without noise."""
    return Measurement(key, tuple(Round((latency_s,)) for _ in range(rounds)), 0.0)


def test_one_brick_of_two_hundred_that_is_a_fifth_slower_is_found() -> None:
    found, others = 0, 0
    for seed in range(5):
        noise, slow = Noise(seed), KEYS[seed * 14]
        old = noise.session(latencies())
        new = noise.session({**latencies(), slow: 1.2 * latencies()[slow]})
        beyond = [b for b in compared(old, new).bricks if b.ratio.beyond_noise]
        found += slow in [b.brick for b in beyond]
        others += sum(b.brick != slow for b in beyond)
        for brick in beyond:
            assert (
                brick.ratio.slower
                == (brick.ratio.interval.value > 1)
                == (brick.ratio.interval.low > 1)
            )
            assert brick.ratio.faster == (brick.ratio.interval.high < 1)
    assert found >= 3  # a fifth is some five deviations of what two sessions differ by
    assert others <= 1


@pytest.mark.slow
def test_between_two_sessions_of_the_same_hardly_anything_is_found() -> None:
    bricks = models = 0
    for seed in range(40):
        noise = Noise(seed)
        diff = compared(noise.session(latencies()), noise.session(latencies()))
        assert len(diff.bricks) == 200
        bricks += any(b.ratio.beyond_noise for b in diff.bricks)
        models += diff.models[0].ratio.beyond_noise
    assert bricks <= 4  # 2 of 40 are nominal; few degrees of freedom make them fewer
    assert models <= 5


@pytest.mark.slow
def test_halves_of_one_measurement_do_not_differ() -> None:
    for seed in range(15):
        whole = Noise(seed).session(latencies(), rounds=16)
        halves = [{k: replace(m, rounds=m.rounds[i::2]) for k, m in whole.items()} for i in (0, 1)]
        diff = compared(*halves)
        assert not [b for b in diff.bricks if b.ratio.beyond_noise]
        assert not diff.models[0].ratio.beyond_noise


def test_a_single_round_proves_nothing_but_a_large_change() -> None:
    slow = KEYS[3]
    for factor, is_found in ((1.2, False), (20.0, True)):
        noise = Noise(1)
        old = noise.session(latencies(), rounds=1)
        new = noise.session({**latencies(), slow: factor * latencies()[slow]}, rounds=1)
        beyond = [b.brick for b in compared(old, new).bricks if b.ratio.beyond_noise]
        assert beyond == [slow] * is_found


def test_outliers_of_single_rounds_are_no_findings() -> None:
    """One in a hundred takes half as long again, as it does where a machine is shared."""
    wrong = 0
    for seed in range(6):
        noise, lot = Noise(seed), random.Random(seed)
        sessions = [
            {
                key: steady(m.latency_s * (1.5 if lot.random() < 0.01 else 1.0), 1, key=key)
                for key, m in noise.session(latencies(), rounds=1, deviation=0.03).items()
            }
            for _ in range(2)
        ]
        wrong += any(b.ratio.beyond_noise for b in compared(*sessions).bricks)
    assert wrong <= 1


def test_what_is_common_to_all_is_told_and_stays_in_every_ratio() -> None:
    noise = Noise(5)
    old = noise.session(latencies())
    new = noise.session({key: 1.3 * s for key, s in latencies().items()})
    diff = compared(old, new)
    assert diff.common is not None
    assert diff.common.bricks == 200
    assert diff.common.ratio.low < diff.common.ratio.value < diff.common.ratio.high
    assert diff.common.ratio.value == pytest.approx(1.3, rel=0.05)
    assert diff.models[0].ratio.interval.value == pytest.approx(1.3, rel=0.05)
    assert diff.models[0].ratio.slower
    assert sum(b.ratio.slower for b in diff.bricks) > 150


def test_changes_are_judged_by_benjamini_and_hochberg() -> None:
    """The example of their paper (1995, section 3.2): four of fifteen."""
    chances = [
        0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459, 0.3240, 0.4262,
        0.5719, 0.6528, 0.7590, 1.0000,
    ]  # fmt: skip
    changes = [LogRatio(-float(ndtri(p / 2)) * 0.1, 0.1) for p in chances]
    ratios = judge(changes)
    assert [r.beyond_noise for r in ratios] == [True] * 4 + [False] * 11
    for ratio in ratios:  # and their intervals say the same
        assert ratio.beyond_noise == (not ratio.interval.low <= 1 <= ratio.interval.high)
    assert judge([]) == []
    assert FALSE_DISCOVERY_RATE == 0.05


@pytest.mark.parametrize(
    "degrees_of_freedom", [degrees_of_freedom(1), degrees_of_freedom(3), math.inf]
)
def test_intervals_leave_out_one_exactly_where_something_is_found(
    degrees_of_freedom: float,
) -> None:
    lot = random.Random(2)
    changes = [
        LogRatio(lot.gauss(0, 0.1) + (i % 3 == 0), 0.1, degrees_of_freedom) for i in range(300)
    ]
    ratios = judge([*changes, LogRatio(20.0, 10.0, degrees_of_freedom)])
    assert any(r.slower for r in ratios) or degrees_of_freedom == degrees_of_freedom(1)
    for ratio in ratios:
        assert ratio.interval.low <= ratio.interval.value <= ratio.interval.high
        assert ratio.beyond_noise == (not ratio.interval.low <= 1 <= ratio.interval.high)
        assert math.isfinite(ratio.interval.high)


def test_contributions_and_overhead_add_up_to_the_difference() -> None:
    noise = Noise(9)
    old, new = noise.session(latencies(20)), noise.session(latencies(20))
    (model,) = compared(old, new).models
    added = sum(c.difference_s for c in model.contributions)
    added += model.new.call_overhead_s - model.old.call_overhead_s
    assert added == pytest.approx(model.new.estimate_s - model.old.estimate_s)
    sizes = [abs(c.difference_s) for c in model.contributions]
    assert sizes == sorted(sizes, reverse=True)
    assert (model.gone_s, model.come_s) == (0, 0)


def test_where_executed_graphs_differ_what_was_replaced_is_told() -> None:
    parts = {key: steady(1e-3 * (i + 1), key=key) for i, key in enumerate("abcd")}
    old = data("old", OLD, {k: parts[k] for k in "abc"}, {"net": chain_plan("net", list("abbc"))})
    new = data("new", NEW, {k: parts[k] for k in "abd"}, {"net": chain_plan("net", list("abd"))})
    diff = difference(old, new, ["net"])
    (model,) = diff.models
    assert model.gone_s == pytest.approx(3e-3, rel=0.01)
    assert model.come_s == pytest.approx(4e-3, rel=0.01)
    by_key = {c.brick: c for c in model.contributions}
    assert {k for k, c in by_key.items() if c.replaced} == {"c", "d"}
    assert (by_key["b"].old_occurrences, by_key["b"].new_occurrences) == (2, 1)
    assert {b.brick for b in diff.bricks} == {"a", "b"}
    # What recomposing is wrong by stays only in what is the same on both.
    same = compared({k: parts[k] for k in "ab"}, {k: parts[k] for k in "ab"}).models[0]
    assert same.ratio.interval.high < model.ratio.interval.high / model.ratio.interval.value


def test_what_lacks_on_one_side_is_named() -> None:
    parts = {key: steady(1e-3, key=key) for key in "ab"}
    failed = compared(parts, {**parts, "b": Failure("b", "it crashed")})
    assert failed.models == ()
    assert failed.incomparable[0].error == "net: new lacks b (it crashed)"
    plans = {"net": chain_plan("net", list("ab"))}
    missing = difference(data("old", OLD, {}, plans), data("new", NEW, parts), ["net"])
    assert missing.incomparable[0].error == ("net: old lacks a, b (not measured on this target)")
    unknown = difference(
        data("old", OLD, parts), data("new", NEW, parts, {"other": chain_plan("x", ["a"])}), ["net"]
    )
    assert unknown.incomparable[0].error == "net: new does not know it: measure it there first"
    edited = difference(
        data("old", OLD, parts), data("new", NEW, parts, {"e": chain_plan("net", ["a"])}), ["net"]
    )
    assert "new knows another model of that name" in edited.incomparable[0].error


def test_what_is_predicted_is_marked_and_proves_nothing() -> None:
    parts = {key: steady(1e-3, key=key) for key in "ab"}
    plans = {"net": chain_plan("net", list("ab"))}
    predictions = BrickPredictions({"b": Prediction(5e-3, 0.5)}, bias=0.1)
    new = data("new", NEW, {"a": parts["a"]}, plans, predictions)
    diff = difference(data("old", OLD, parts), new, ["net"])
    (model,) = diff.models
    assert model.ratio.interval.value == pytest.approx(3, rel=0.01)
    assert model.ratio.interval.high / model.ratio.interval.low > 5
    assert model.predicted_share == pytest.approx(5 / 6, rel=0.03)  # of its mean, which is longer
    assert [b.brick for b in diff.bricks] == ["a"]
    assert [c.predicted for c in model.contributions] == [True, False]
    assert diff.unproven(0.5) == [model]
    assert diff.unproven(0.9) == []
    assert diff.regressions(0.03) == []


def test_a_regression_is_beyond_noise_and_more_than_is_allowed() -> None:
    noise = Noise(3)
    old = noise.session(latencies(50))
    diff = compared(old, noise.session({k: 1.15 * s for k, s in latencies(50).items()}))
    assert [m.model for m in diff.regressions(0.03)] == ["net"]
    assert diff.regressions(0.5) == []
    assert compared(old, old).regressions(0.0) == []


def test_rounds_in_which_others_kept_the_processors_busy_prove_little() -> None:
    old = {key: steady(1e-3, key=key) for key in KEYS[:50]}
    for waited, is_found in ((0.0, True), (0.5, False)):
        slow = Measurement("b000", tuple(Round((1.3e-3,), None, waited) for _ in range(8)), 0.0)
        (first,) = [b for b in compared(old, {**old, "b000": slow}).bricks if b.brick == "b000"]
        assert first.disturbed is not is_found
        assert first.ratio.slower is is_found
