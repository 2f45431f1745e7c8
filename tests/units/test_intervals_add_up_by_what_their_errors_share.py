"""Sums, products and maps of intervals: the value stays inside, and no error is lost."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bricks.units.interval import Interval, common_sum, independent_sum

NUMBERS = st.floats(1e-6, 1e6)


@st.composite
def intervals(draw: st.DrawFn) -> Interval:
    """Around a positive value; the low end may be below zero."""
    value, below, above = draw(NUMBERS), draw(st.floats(0, 2)), draw(st.floats(0, 5))
    return Interval(value, value * (1 - below), value * (1 + above))


POSITIVE = intervals().map(lambda each: each.positive())
SEVERAL = st.lists(intervals(), min_size=1, max_size=6)


def same(one: Interval, other: Interval) -> bool:
    return all(
        math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9 * abs(one.value))
        for a, b in zip(
            (one.value, one.low, one.high), (other.value, other.low, other.high), strict=True
        )
    )


@given(SEVERAL)
def test_independent_errors_add_up_to_no_more_than_common_ones(parts: list[Interval]) -> None:
    independent, common = independent_sum(parts), common_sum(parts)
    assert independent.value == pytest.approx(common.value)
    assert independent.half_width <= common.half_width * (1 + 1e-9)
    largest = max(parts, key=lambda each: each.half_width)
    assert independent.half_width >= largest.half_width * (1 - 1e-6) - 1e-9 * independent.value


@given(intervals(), st.integers(1, 9))
def test_equal_parts_with_one_error_are_a_multiple(part: Interval, count: int) -> None:
    assert same(common_sum([part] * count), part.scaled(count))
    independent = independent_sum([part] * count)
    expected = math.sqrt(count) * (part.high - part.value)
    above = independent.high - independent.value
    assert above == pytest.approx(expected, rel=1e-6, abs=1e-6 * independent.value)


@given(SEVERAL, st.floats(-10, 10))
def test_scaling_a_sum_is_scaling_its_parts(parts: list[Interval], factor: float) -> None:
    scaled = [each.scaled(factor) for each in parts]
    total = sum(each.high for each in parts)
    for add in (common_sum, independent_sum):
        one, other = add(scaled), add(parts).scaled(factor)
        assert one.value == pytest.approx(other.value, abs=1e-9 * total)
        assert one.low == pytest.approx(other.low, abs=1e-6 * total)
        assert one.high == pytest.approx(other.high, abs=1e-6 * total)


@given(SEVERAL, intervals(), st.floats(-3, 3), NUMBERS)
def test_the_value_stays_inside(
    parts: list[Interval], one: Interval, factor: float, by: float
) -> None:
    for each in (
        common_sum(parts), independent_sum(parts), one.scaled(factor), one.shifted(by),
        one.widened(by), one.stretched(by), one.at_least(by), one.positive(),
        Interval.deviating(one.value, parts), Interval.within_factor(by, 2.0),
        one.map(lambda x: -x), one.map(lambda x: x**3), one.positive().times(parts[0].positive()),
    ):  # fmt: skip
        assert each.holds(each.value)


@given(intervals(), NUMBERS)
def test_what_is_widened_holds_what_it_was(one: Interval, by: float) -> None:
    slack = 1e-12 * (abs(one.low) + one.high)
    wider = one.widened(by)
    assert wider.low <= one.low + slack and one.high <= wider.high + slack
    assert wider.high - wider.value >= by * (1 - 1e-6) - slack
    stretched = one.positive().stretched(by)
    assert 0 <= stretched.low <= one.positive().low and one.high <= stretched.high


@given(POSITIVE)
def test_a_falling_function_swaps_the_ends(seconds: Interval) -> None:
    rate = seconds.map(lambda each: 1 / each)
    assert rate == Interval(1 / seconds.value, 1 / seconds.high, 1 / seconds.low)
    assert same(rate.map(lambda each: 1 / each), seconds)


@given(POSITIVE, POSITIVE)
def test_a_product_with_its_inverse_holds_the_first_factor(one: Interval, other: Interval) -> None:
    back = one.times(other).times(other.map(lambda each: 1 / each))
    assert back.value == pytest.approx(one.value)
    assert back.low <= one.low * (1 + 1e-9) and one.high * (1 - 1e-9) <= back.high


@given(intervals())
def test_a_positive_quantity_keeps_some_of_its_value(one: Interval) -> None:
    positive = one.positive()
    assert positive.low > 0 and (positive.value, positive.high) == (one.value, one.high)
    if one.low >= one.value / 2:
        assert positive == one


@given(st.floats(0, 5), st.floats(0, 5))
def test_a_wider_interval_leaves_less(one: float, other: float) -> None:
    lows = [Interval(1.0, 1.0 - below, 1.0).positive().low for below in sorted((one, other))]
    assert lows[0] >= lows[1] * (1 - 1e-12)


@given(intervals(), st.floats(-4, 4), st.floats(-4, 4))
def test_an_end_is_deviated_by_two_standard_deviations(
    one: Interval, by: float, other: float
) -> None:
    assert one.deviated(0.0) == one.value
    assert one.deviated(-1.959964) == pytest.approx(max(0.0, one.low), rel=1e-4)
    assert one.deviated(1.959964) == pytest.approx(one.high, rel=1e-4)
    assert one.deviated(min(by, other)) <= one.deviated(max(by, other)) * (1 + 1e-9)


def test_an_error_of_its_own_is_relative_to_the_value() -> None:
    assert Interval.around(2.0, 0.5) == Interval(2.0, 1.5, 2.5)
    assert Interval.around(2.0, 0.5).relative == 0.25
    assert Interval.exact(0.0).relative == math.inf
    assert Interval.exact(3.0).half_width == 0.0
