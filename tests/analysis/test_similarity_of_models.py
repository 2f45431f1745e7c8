from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plans import plan

from bricks import Similarity, similarity
from bricks.analysis.similarity import jaccard
from bricks.decompose.plan import Plan

KEYS = st.sets(st.sampled_from("abcdefgh"))
ZOOS = st.lists(st.lists(st.sampled_from("abcdefgh"), min_size=1), min_size=1, max_size=6)


def model(name: str, bricks: str | list[str]) -> Plan:
    places = [(key, [i], [i + 1]) for i, key in enumerate(bricks)]
    return replace(plan(places), model=name)


def of(zoo: list[list[str]]) -> Similarity:
    return similarity([model(str(i), bricks) for i, bricks in enumerate(zoo)])


def test_it_is_what_two_models_share_of_what_either_has() -> None:
    similar = similarity([model("one", "abc"), model("two", "bcd"), model("three", "xy")])
    assert similar.grid == ((1.0, 0.5, 0.0), (0.5, 1.0, 0.0), (0.0, 0.0, 1.0))
    assert (similar.models, similar.bricks, similar.shared) == (
        ("one", "two", "three"), (3, 3, 2), (2, 2, 0),
    )  # fmt: skip


def test_how_often_a_brick_occurs_does_not_count() -> None:
    assert similarity([model("one", "aaab"), model("two", "ab")]).grid[0][1] == 1.0


@given(KEYS, KEYS)
def test_the_index_is_symmetric_and_a_share(a: set[str], b: set[str]) -> None:
    (same, one), (other, again) = jaccard([a, b])
    assert same == again == 1
    assert one == other
    assert one == (len(a & b) / len(a | b) if a | b else 1)


@given(ZOOS, st.randoms())
def test_the_order_of_models_changes_nothing_but_the_order(zoo: list[list[str]], chance) -> None:
    order = list(range(len(zoo)))
    chance.shuffle(order)
    found, shuffled = of(zoo), of([zoo[i] for i in order])
    assert shuffled.grid == tuple(tuple(found.grid[i][j] for j in order) for i in order)
    assert shuffled.shared == tuple(found.shared[i] for i in order)
    assert [found.grid[i][i] for i in order] == [1.0] * len(zoo)


@given(ZOOS)
def test_putting_similar_models_together_forgets_none(zoo: list[list[str]]) -> None:
    assert sorted(of(zoo).ordered()) == list(range(len(zoo)))


def test_families_stand_together() -> None:
    similar = of([list("abcd"), list("wxyz"), list("abce"), list("wxyv"), list("abfg"), list("q")])
    order = similar.ordered()
    places = {i: order.index(i) for i in order}
    assert abs(places[0] - places[2]) == 1
    assert abs(places[1] - places[3]) == 1
    assert max(places[i] for i in (0, 2, 4)) - min(places[i] for i in (0, 2, 4)) == 2


def test_the_nearest_are_those_that_share_most_and_nobody_who_shares_nothing() -> None:
    similar = of([list("abcd"), list("abxy"), list("abcz"), list("q")])
    assert [i for i, _ in similar.nearest(0)] == [2, 1]
    assert similar.nearest(3) == []


def test_no_models_have_no_grid() -> None:
    assert similarity([]) == Similarity((), (), (), ())
    assert similarity([]).ordered() == []


@pytest.mark.parametrize("empty", [[], [("a", [0], [1])]])
def test_models_without_bricks_are_equal_only_to_each_other(empty: list) -> None:
    nothing = replace(model("nothing", "a"), occurrences=())
    other = replace(model("other", "a"), occurrences=model("x", "a").occurrences[: len(empty)])
    assert similarity([nothing, other]).grid[0][1] == (0.0 if empty else 1.0)
