from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from plans import plan, results

from bricks.analysis.coverage import count_coverage
from bricks.decompose.plan import Brick, Plan
from bricks.graph.types import TensorType
from bricks.predict.cost import MIN, CostModel, fit

PER_BRICK_S, PER_FLOP_S, PER_BYTE_S = 1e-3, 2e-9, 1e-8


def brick(key: str, flops: int | None, *, width: int = 16, weights: int = 0) -> Brick:
    weights_ = {"w": TensorType("FLOAT", (weights,))} if weights else {}
    value = TensorType("FLOAT", (width,))
    return Brick(key, b"", {"x": value}, weights_, {"y": value}, ("Op",), flops)


def some(count: int, seed: int = 0, *, known: bool = True) -> list[Brick]:
    chance = random.Random(seed)
    return [
        brick(
            f"b1-{seed}-{i}",
            chance.randint(10**3, 10**8) if known else None,
            width=chance.randint(1, 10**4),
            weights=chance.randint(1, 10**5),
        )
        for i in range(count)
    ]


def seconds(brick_: Brick) -> float:
    return PER_BRICK_S + PER_FLOP_S * (brick_.flops or 0) + PER_BYTE_S * brick_.bytes_moved


def model(name: str, keys: str) -> Plan:
    return replace(plan([(key, [i], [i + 1]) for i, key in enumerate(keys)]), model=name)


BRICKS = {key: brick(key, flops, width=16) for key, flops in zip("abcd", (6, 3, 1, 0), strict=True)}
FLAT = CostModel((1.0, 0.0, 0.0, 0.0), (1.0, 0.0, 0.0, 0.0), ((1.0, 1.0),) * MIN)


def test_coverage_counts_places_and_weighs_work() -> None:
    zoo = count_coverage([model("one", "aaab")], BRICKS, results({"a": 1e-3}), FLAT)
    (row,) = zoo.models
    coverage = row.coverage
    assert (coverage.bricks, coverage.measured, coverage.failed, coverage.missing) == (
        2,
        1,
        0,
        ("b",),
    )
    assert (coverage.occurrences, coverage.share) == (4, 0.75)
    assert coverage.flops_share == 18 / 21
    assert coverage.bytes_share == 0.75
    assert not coverage.complete
    assert zoo.together == coverage


def test_all_measured_is_complete_and_costs_nothing() -> None:
    zoo = count_coverage([model("one", "ab")], BRICKS, results({"a": 1e-3, "b": 1e-3}), FLAT)
    coverage = zoo.together
    assert (coverage.share, coverage.flops_share, coverage.complete, coverage.missing) == (
        1.0,
        1.0,
        True,
        (),
    )
    assert coverage.cost_s is not None
    assert coverage.cost_s.value == coverage.cost_s.high == 0.0


def test_without_probes_there_is_no_estimate() -> None:
    known = {key: found for key, found in results({"a": 1e-3}).items() if key == "a"}
    assert not count_coverage([model("one", "a")], BRICKS, known, FLAT).together.complete


def test_what_failed_is_neither_measured_nor_paid_for_again() -> None:
    known = results({"a": 1e-3, "b": "crashed"})
    coverage = count_coverage([model("one", "ab")], BRICKS, known, FLAT).together
    assert (coverage.measured, coverage.failed, coverage.missing, coverage.complete) == (
        1,
        1,
        (),
        False,
    )
    assert coverage.share == 0.5
    assert coverage.cost_s is not None
    assert coverage.cost_s.value == 0.0


def test_work_that_is_not_known_of_one_brick_is_not_known_of_the_model() -> None:
    bricks = {**BRICKS, "b": replace(BRICKS["b"], flops=None)}
    coverage = count_coverage([model("one", "ab")], bricks, results({"a": 1e-3}), FLAT).together
    assert coverage.flops_share is None
    assert coverage.bytes_share == 0.5


def test_a_model_of_no_work_has_no_share_of_it() -> None:
    assert count_coverage([model("one", "d")], BRICKS, {}, FLAT).together.flops_share is None


def marginals(order: list[str], known: Mapping[str, float]) -> tuple[list[float], float]:
    zoo = {"one": "abc", "two": "bcd", "three": "dd"}
    plans = [model(name, zoo[name]) for name in order]
    covered = count_coverage(plans, BRICKS, results(known), FLAT)
    assert covered.together.cost_s is not None
    cost_s = [row.marginal_s.value for row in covered.models if row.marginal_s is not None]
    new = [key for row in covered.models for key in row.new]
    assert sorted(new) == sorted(covered.together.missing)
    assert len(cost_s) == len(order)
    return cost_s, covered.together.cost_s.value


def test_a_brick_that_several_lack_is_paid_for_by_the_first() -> None:
    assert marginals(["one", "two", "three"], {}) == ([3.0, 1.0, 0.0], 4.0)
    assert marginals(["three", "two", "one"], {}) == ([1.0, 2.0, 1.0], 4.0)
    assert marginals(["one", "two", "three"], {"a": 1e-3, "d": 1e-3}) == ([2.0, 0.0, 0.0], 2.0)


def test_where_nothing_is_measured_nothing_is_known_of_costs() -> None:
    zoo = count_coverage([model("one", "ab")], BRICKS, {}, fit([]))
    assert zoo.cost_model is zoo.together.cost_s is zoo.models[0].marginal_s is None


def test_few_measured_bricks_say_nothing_of_others() -> None:
    measured = [(each, seconds(each)) for each in some(MIN)]
    assert fit(measured[1:]) is None
    assert fit(measured) is not None


def test_costs_that_follow_the_work_are_found_exactly() -> None:
    learned = fit([(each, seconds(each)) for each in some(60)])
    assert learned is not None
    assert learned.median_abs_error < 1e-3
    new = some(20, seed=1)
    cost = learned.cost_s(new)
    assert cost.value == pytest.approx(sum(map(seconds, new)), rel=1e-3)
    assert cost.low <= cost.value <= cost.high < 1.01 * cost.low


def test_costs_that_vary_come_with_an_interval_that_says_so() -> None:
    chance = np.random.default_rng(1)
    noisy = [(each, seconds(each) * chance.lognormal(0, 1)) for each in some(200)]
    learned = fit(noisy)
    assert learned is not None
    one, many = learned.cost_s(some(1, seed=2)), learned.cost_s(some(40, seed=2))
    assert one.high / one.low > many.high / many.low > 1.2  # errors of many cancel
    total = sum(map(seconds, some(40, seed=2))) * float(np.exp(0.5))
    assert many.low < total < many.high


def test_bricks_of_unknown_work_are_estimated_from_their_bytes() -> None:
    known, unknown = some(40), some(40, seed=1, known=False)
    learned = fit([(each, seconds(each)) for each in (*known, *unknown)])
    assert learned is not None
    assert learned.brick_s(unknown[0]) > 0
    blind = fit([(each, seconds(each)) for each in unknown])
    assert blind is not None
    assert blind.cost_s(unknown).value == pytest.approx(sum(map(seconds, unknown)), rel=1e-3)


@pytest.mark.parametrize("seed", range(5))
def test_nothing_costs_less_than_nothing(seed: int) -> None:
    chance = np.random.default_rng(seed)
    learned = fit([(each, float(chance.lognormal(-6, 2))) for each in some(30, seed)])
    assert learned is not None
    assert all(learned.brick_s(each) > 0 for each in some(100, seed + 1))
