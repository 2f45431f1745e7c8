"""Words that all answers share: intervals as percentages, sources, places and lists."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from store_examples import make_target

from bricks.compose.estimate import Provenance
from bricks.report.tables import MOST, fewest
from bricks.report.words import listed, place_text, source_text, uncertainty_text, value_text
from bricks.units.interval import Interval


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (96, 104, "±4 %"), (98, 103, "±3 %"), (97, 112, "-3 / +12 %"), (100, 100, "±0 %"),
        (99.6, 100.4, "±0.4 %"), (40, 130, "40.0 s to 130 s"), (90, math.inf, "90.0 s to no end"),
    ],
)  # fmt: skip
def test_an_interval_is_a_percentage_unless_it_is_very_wide(
    low: float, high: float, text: str
) -> None:
    assert uncertainty_text(Interval(100, low, high)) == text


@given(
    value=st.floats(1e-6, 1e3), below=st.floats(0, 0.49), above=st.floats(0, 0.99),
)  # fmt: skip
def test_no_percentage_is_narrower_than_the_interval(
    value: float, below: float, above: float
) -> None:
    text = uncertainty_text(Interval(value, value * (1 - below), value * (1 + above)))
    numbers = [float(word.strip("±+-")) for word in text.replace("%", "").split() if word != "/"]
    assert numbers[-1] >= 100 * above - 0.51
    assert numbers[0] >= 100 * below - 0.51


def test_a_value_has_its_unit() -> None:
    assert value_text(Interval(0.0382, 0.0367, 0.0397)) == "38.2 ms (±4 %)"


@pytest.mark.parametrize(
    ("shares", "text"),
    [
        ((1.0, 0.0, 0.0), "100 % measured"),
        ((0.62, 0.3, 0.08), "62 % measured, 30 % published, 8 % predicted"),
        ((0.0, 0.0, 1.0), "100 % predicted"),
        ((0.0, 1e-9, 1 - 1e-9), "100 % predicted"),
        ((0.999, 0.001, 0.0), ">99 % measured"),
    ],
)
def test_sources_are_shares_of_the_estimate(shares: tuple[float, float, float], text: str) -> None:
    assert source_text(Provenance(*shares)) == text


def test_a_place_is_this_host_or_a_name() -> None:
    here = make_target("lab", threads=2)
    assert place_text(here, here) == "here with 2 threads"
    assert place_text(make_target("farm"), here) == "on farm with 1 thread"


def test_names_are_listed_as_in_a_sentence() -> None:
    assert listed(["a"]) == "a"
    assert listed(["a", "b"]) == "a and b"
    assert listed(["a", "b", "c"], "or") == "a, b or c"


def test_few_remarks_are_shown_each_once() -> None:
    assert fewest(["a", "a", "b"], every=False) == ["a", "b"]
    shown = fewest(["a", "b", "c", "d"], every=False)
    assert len(shown) == MOST and shown[0] == "a" and "--all" in shown[-1] and "3 more" in shown[-1]
    assert fewest(["a", "b", "c", "d"], every=True) == ["a", "b", "c", "d"]
