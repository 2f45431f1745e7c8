"""Rounds of several walks go into the store at once, and none of a key is lost or out of order."""

from hypothesis import given
from hypothesis import strategies as st

from bricks.measure.loop import coalesced
from bricks.samples.measurement import Round

WALKS = st.lists(st.sets(st.sampled_from("abcdef"), min_size=1), max_size=12)


@given(WALKS)
def test_no_round_is_lost_and_those_of_a_key_stay_in_order(keys: list[set[str]]) -> None:
    walks = [{key: (Round((n + 1.0,)), 0.0) for key in sorted(of)} for n, of in enumerate(keys)]
    kept = list(coalesced(walks))
    for key in "abcdef":
        assert [of[key] for of in kept if key in of] == [of[key] for of in walks if key in of]
    assert all(kept)


def test_walks_without_a_key_in_common_are_one() -> None:
    once, twice = (Round((1.0,)), 0.0), (Round((2.0,)), 0.0)
    walks = [{"a": once}, {"b": once, "c": once}, {"a": twice}, {"c": twice}]
    assert list(coalesced(walks)) == [
        {"a": once, "b": once, "c": once},
        {"a": twice, "c": twice},
    ]


def test_a_full_disk_loses_few_rounds() -> None:
    walks = [{f"{n}": (Round((1.0,)), 0.0)} for n in range(25)]
    assert [len(kept) for kept in coalesced(walks)] == [10, 10, 5]
