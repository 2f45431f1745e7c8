from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bricks.estimate.planner import EFFORTS, Belief, Planner

KEYS = "abcdefgh"


def beliefs(**latency_s: float) -> dict[str, Belief]:
    return {key: Belief(value, 0.3) for key, value in latency_s.items()}


def left(counts: dict[str, dict[str, int]], known: dict[str, Belief], chosen: list[str]) -> float:
    """The deviation of the model that is known least, once ``chosen`` are measured."""
    after = {
        key: Belief(b.latency_s, 0.0, measured=True) if key in chosen else b
        for key, b in known.items()
    }
    return max(Planner(counts, after, 0.1).outlook().deviations.values())


MODELS = st.dictionaries(
    st.sampled_from(["one", "two", "three"]),
    st.dictionaries(st.sampled_from(KEYS), st.integers(1, 9), min_size=1),
    min_size=1,
)
LATENCIES = st.lists(st.floats(1e-6, 1e-2), min_size=len(KEYS), max_size=len(KEYS))


@given(counts=MODELS, latencies=LATENCIES, goal=st.sampled_from([0.0, 0.02, 0.1]))
def test_what_is_chosen_meets_the_goal_and_nothing_is_chosen_twice(
    counts: dict[str, dict[str, int]], latencies: list[float], goal: float
) -> None:
    known = beliefs(**dict(zip(KEYS, latencies, strict=True)))
    chosen = Planner(counts, known, 0.1).choose(goal)
    assert len(set(chosen)) == len(chosen)
    assert set(chosen) <= {key for count in counts.values() for key in count}
    assert left(counts, known, chosen) <= goal + 1e-4
    if chosen and goal:
        assert left(counts, known, chosen[:-1]) > goal


def test_without_a_goal_all_is_chosen_the_worthiest_first() -> None:
    known = beliefs(a=1e-6, b=1e-3, c=1e-3)
    counts = {"net": {"a": 1, "b": 1, "c": 4}}
    assert Planner(counts, known, 0.0).choose(0.0) == ["c", "b", "a"]


def test_what_is_measured_is_not_chosen() -> None:
    known = beliefs(a=1.0) | {"b": Belief(1.0, 0.0, measured=True)}
    assert Planner({"net": {"a": 1, "b": 1}}, known, 0.1).choose(0.0) == ["a"]


def test_what_several_models_need_comes_first() -> None:
    known = beliefs(a=1e-3, b=1e-3, c=1e-3)
    counts = {"one": {"a": 1, "c": 1}, "two": {"b": 1, "c": 1}}
    assert Planner(counts, known, 0.0).choose(0.0)[0] == "c"


def test_time_and_number_are_limits() -> None:
    known = beliefs(**dict.fromkeys(KEYS, 1e-3))
    counts = {"net": dict.fromkeys(KEYS, 1)}
    planner = Planner(counts, known, 0.0)
    each_s = planner.cost_s("a")
    assert len(Planner(counts, known, 0.0).choose(0.0, most=3)) == 3
    assert len(Planner(counts, known, 0.0).choose(0.0, most_s=2.5 * each_s)) == 2
    assert len(Planner(counts, known, 0.0).choose(0.0, most_s=0.1 * each_s)) == 1  # some progress


def test_of_equal_ones_each_kind_has_its_turn() -> None:
    known = beliefs(**dict.fromkeys(KEYS, 1e-3))
    counts = {"net": dict.fromkeys(KEYS, 1)}
    chosen = Planner(counts, known, 0.0).choose(0.0, most=2, kind=lambda key: key < "e")
    assert {key < "e" for key in chosen} == {True, False}


def test_the_outlook_adds_squares_of_bricks_and_what_they_have_in_common() -> None:
    known = beliefs(a=3.0, b=4.0) | {"c": Belief(3.0, 0.0, measured=True)}
    (deviation,) = (
        Planner({"net": {"a": 1, "b": 1, "c": 1}}, known, 0.1).outlook().deviations.values()
    )
    assert deviation == pytest.approx(math.hypot(0.9, 1.2, 0.7) / 10)


def test_more_effort_allows_less_to_be_predicted() -> None:
    assert EFFORTS["full"].complete
    assert 0 < EFFORTS["balanced"].deviation < EFFORTS["quick"].deviation
