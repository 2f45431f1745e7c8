"""Curves hold what is known, and say how far off they may be between."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from bricks.units.curve import Curve, Extrapolation
from bricks.units.interval import Interval

SIZES = st.lists(st.integers(1, 1 << 20), min_size=1, max_size=7, unique=True)


@st.composite
def curves(draw: st.DrawFn, least: int = 1) -> Curve:
    sizes = draw(SIZES.filter(lambda each: len(each) >= least))
    values = draw(st.lists(st.floats(1e-6, 1e3), min_size=len(sizes), max_size=len(sizes)))
    quantities = [Interval(value, 0.9 * value, 1.2 * value) for value in values]
    return Curve.through(zip(sizes, quantities, strict=True))


@st.composite
def sizes_within(draw: st.DrawFn, curve: Curve) -> float:
    return draw(st.floats(curve.sizes[0], curve.sizes[-1]))


@given(curves())
def test_a_point_is_what_is_known_of_it(curve: Curve) -> None:
    for size, known in curve.points:
        assert curve.at(size) == known


@given(curves(least=2), st.data())
def test_between_points_the_value_is_between_theirs(curve: Curve, data: st.DataObject) -> None:
    size = data.draw(sizes_within(curve))
    found = curve.at(size)
    at = next(n for n, known in enumerate(curve.sizes) if known >= size)
    beside = [known.value for _, known in curve.points[max(0, at - 1) : at + 1]]
    assert min(beside) * (1 - 1e-9) <= found.value <= max(beside) * (1 + 1e-9)
    assert found.holds(found.value)


@given(curves(least=2), st.data())
def test_what_rises_at_its_points_rises_between_them(curve: Curve, data: st.DataObject) -> None:
    values = sorted(known.value for _, known in curve.points)
    rising = Curve.through(zip(curve.sizes, map(Interval.exact, values), strict=True))
    sizes = sorted(data.draw(sizes_within(rising)) for _ in range(4))
    found = [rising.at(size).value for size in sizes]
    assert all(one <= other * (1 + 1e-9) for one, other in pairwise(found))


@given(curves(least=3), st.data())
def test_the_worst_point_left_out_widens_what_is_between(curve: Curve, data: st.DataObject) -> None:
    worst = 0.0
    for n in range(1, len(curve.points) - 1):
        size, known = curve.points[n]
        rest = Curve.through((*curve.points[:n], *curve.points[n + 1 :]))
        worst = max(worst, abs(rest.at(size).value / known.value - 1))
    assert curve.error == pytest.approx(worst)
    size = data.draw(sizes_within(curve))
    assume(size not in curve.sizes)
    exact = Curve(curve.points, widens=False).at(size)
    assert curve.at(size) == exact.stretched(curve.error)


@given(SIZES, st.floats(-2.0, 2.0), st.data())
def test_what_is_straight_has_no_error(sizes: list[int], slope: float, data: st.DataObject) -> None:
    def line(size: float) -> float:
        return (1 << 22) + slope * size

    curve = Curve.through((size, Interval.exact(line(size))) for size in sizes)
    assert curve.error == pytest.approx(0.0, abs=1e-9)
    size = data.draw(sizes_within(curve))
    assert curve.at(size).value == pytest.approx(line(size), rel=1e-6)


@given(curves(), st.floats(1.5, 100.0))
def test_nothing_is_said_beyond_the_points_unless_it_is_named(curve: Curve, far: float) -> None:
    first, last = curve.points[0], curve.points[-1]
    assert curve.covers(first[0]) and not curve.covers(far * last[0])
    for size in (first[0] / far, far * last[0]):
        with pytest.raises(ValueError, match="is not between"):
            curve.at(size)
    going_on = Curve(
        curve.points, below=Extrapolation.CONSTANT, above=Extrapolation.PROPORTIONAL, widens=False
    )
    assert going_on.at(first[0] / far) == first[1]
    assert going_on.at(far * last[0]).value == pytest.approx(far * last[1].value)


def test_a_line_goes_on_where_it_rises() -> None:
    def at_four(*values: float) -> float:
        points = [(size + 1, Interval.exact(value)) for size, value in enumerate(values)]
        return Curve.through(points, above=Extrapolation.RISING, widens=False).at(4).value

    assert at_four(1.0, 2.0) == pytest.approx(4.0)
    assert at_four(2.0, 1.0) == 1.0
    assert at_four(2.0) == 2.0


@given(curves(), st.floats(0.1, 10))
def test_a_curve_of_scaled_points_is_scaled(curve: Curve, factor: float) -> None:
    scaled = curve.map(lambda known: known.scaled(factor))
    middle = (curve.sizes[0] + curve.sizes[-1]) / 2
    assert scaled.error == pytest.approx(curve.error, rel=1e-6, abs=1e-9)
    assert scaled.at(middle).value == pytest.approx(factor * curve.at(middle).value)


def test_a_curve_without_points_is_none() -> None:
    for make in (
        lambda: Curve(()),
        lambda: Curve(((1, Interval.exact(1.0)),), below=Extrapolation.RISING),
    ):
        with pytest.raises(ValueError, match="a curve has points"):
            make()
