from __future__ import annotations

import random

import pytest

from bricks.studies.training.validation import AGREES, DEVIATES, UNKNOWN, judge_sampling

ITEMS, EPOCHS = 1000, 10


def shuffled(seed: int = 0) -> list[list[int]]:
    generator = random.Random(seed)
    return [generator.sample(range(ITEMS), ITEMS) for _ in range(EPOCHS)]


def test_random_orders_are_uniform() -> None:
    found = judge_sampling(shuffled(), range(ITEMS))
    assert found.verdict == AGREES
    assert found.even
    assert found.shuffled
    assert (found.never, found.repeated) == (0, 0)
    assert found.order_p is not None
    assert found.order_p > 0.01


def test_p_values_of_random_orders_are_spread_evenly() -> None:
    values = [judge_sampling(shuffled(seed)).order_p or 0.0 for seed in range(40)]
    assert 12 <= sum(p < 0.5 for p in values) <= 28
    assert min(values) > 1e-4


def test_data_in_the_same_order_are_named_and_not_refused() -> None:
    found = judge_sampling([list(range(ITEMS))] * EPOCHS)
    assert (found.verdict, found.even, found.shuffled) == (AGREES, True, False)
    assert found.order_p is None


@pytest.mark.parametrize("window", [100, 500])
def test_shuffling_within_a_window_is_biased(window: int) -> None:
    generator = random.Random(0)
    orders = [
        [
            item
            for start in range(0, ITEMS, window)
            for item in generator.sample(range(start, start + window), window)
        ]
        for _ in range(EPOCHS)
    ]
    found = judge_sampling(orders)
    assert found.verdict == DEVIATES
    assert found.order_p is not None
    assert found.order_p < 1e-6


def test_drawing_with_replacement_is_even_by_chance() -> None:
    generator = random.Random(0)
    orders = [generator.choices(range(ITEMS), k=ITEMS) for _ in range(EPOCHS)]
    found = judge_sampling(orders, range(ITEMS))
    assert (found.verdict, found.even) == (AGREES, False)
    assert found.even_p is not None
    assert found.even_p > 0.01


def test_drawing_some_items_more_often_is_biased() -> None:
    generator = random.Random(0)
    weights = [1.5 if item < 200 else 1.0 for item in range(ITEMS)]
    orders = [generator.choices(range(ITEMS), weights, k=ITEMS) for _ in range(EPOCHS)]
    found = judge_sampling(orders)
    assert found.verdict == DEVIATES
    assert found.even_p is not None
    assert found.even_p < 1e-3


def test_leaving_out_other_items_each_epoch_is_not_biased() -> None:
    found = judge_sampling([order[:-37] for order in shuffled()], range(ITEMS))
    assert (found.verdict, found.even) == (AGREES, False)
    assert found.order_p is not None


def test_items_that_are_always_repeated_are_biased() -> None:
    orders = [[item if item != 7 else 8 for item in order] for order in shuffled()]
    found = judge_sampling(orders, range(ITEMS))
    assert (found.verdict, found.even) == (DEVIATES, True)
    assert (found.never, found.repeated) == (1, 1)


def test_equal_items_of_the_data_set_may_appear_as_often_as_they_are_there() -> None:
    orders = [[item // 2 for item in order] for order in shuffled()]
    found = judge_sampling(orders, [item // 2 for item in range(ITEMS)])
    assert (found.verdict, found.even, found.repeated) == (AGREES, True, 0)


def test_items_that_are_drawn_anew_are_not_judged() -> None:
    orders = [list(range(start, start + 100)) for start in range(0, 1000, 100)]
    found = judge_sampling(orders)
    assert found.verdict == UNKNOWN
    assert found.reason is not None
    assert "drawn or changed anew" in found.reason


def test_without_orders_the_reason_is_passed_on() -> None:
    assert judge_sampling([], None, "too many").reason == "too many"
    assert judge_sampling([]).verdict == UNKNOWN
