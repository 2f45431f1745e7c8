"""Draws of quantities, and the intervals of results that are computed from them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bricks.units.draws import IN_COMMON, VALUE, Draw, Drawn, interval_of, outermost, stratified
from bricks.units.interval import Interval

NUMBERS = st.floats(0.01, 100.0)


@st.composite
def quantities(draw: st.DrawFn) -> Interval:
    low, value, high = sorted(draw(st.tuples(NUMBERS, NUMBERS, NUMBERS)))
    return Interval(value, low, high)


def drawn_of(sizes: Sequence[Interval], own_share: float) -> Callable[[Draw], list[float]]:
    return lambda draw: [draw.of(size, n, own_share) for n, size in enumerate(sizes)]


@given(quantities())
def test_the_outermost_draws_of_one_quantity_are_its_ends(quantity: Interval) -> None:
    found = interval_of(IN_COMMON.map(lambda draw: draw.of(quantity)))
    assert found.value == quantity.value == VALUE.of(quantity)
    assert (found.low, found.high) == pytest.approx((quantity.low, quantity.high))


@given(st.lists(quantities(), min_size=1, max_size=4), st.floats(0.0, 1.0))
def test_draws_that_are_left_out_are_never_extreme(sizes: list[Interval], own_share: float) -> None:
    every, of = stratified(len(sizes)), drawn_of(sizes, own_share)
    kept = outermost(every, of)
    assert 1 <= len(kept.draws) <= len(every)
    for rising in (sum, max, min, math.prod):
        results = [rising(of(draw)) for draw in every]
        found = [rising(of(draw)) for draw in kept.draws]
        assert (min(found), max(found)) == (min(results), max(results))


def test_errors_in_common_add_up_and_independent_ones_partly_cancel() -> None:
    sizes = [Interval.within_factor(1.0, 1.2)] * 4
    widths = [
        interval_of(outermost(stratified(4), of).map(lambda draw, of=of: sum(of(draw)))).half_width
        for of in (drawn_of(sizes, own_share) for own_share in (0.0, 0.5, 1.0))
    ]
    assert widths[0] == pytest.approx(4 * sizes[0].half_width)
    assert widths == sorted(widths, reverse=True)
    assert widths[2] < 0.7 * widths[0]


def test_own_deviations_are_distributed_as_common_ones() -> None:
    draws = stratified(3)
    common = [draw.common for draw in draws]
    assert common == sorted(common)
    for own in np.array([draw.own for draw in draws]).T:
        assert sorted(own) == common
        assert abs(np.corrcoef(own, common)[0, 1]) < 0.6


def test_an_exact_quantity_takes_one_draw() -> None:
    assert len(outermost(stratified(2), drawn_of([Interval.exact(2.0)] * 2, 0.5)).draws) == 1


@given(st.lists(st.floats(-10.0, 10.0), min_size=1, max_size=5))
def test_results_in_any_order_are_an_interval(results: list[float]) -> None:
    found = interval_of(Drawn(results[0], tuple(results[1:])))
    assert found.value == results[0]
    assert all(found.holds(each) for each in results)
