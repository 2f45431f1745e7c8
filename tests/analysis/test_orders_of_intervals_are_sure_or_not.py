"""The order of intervals: the first is the least, and how sure that is."""

from hypothesis import given
from hypothesis import strategies as st

from bricks.analysis.ranking import DECIDED, longer, ranked
from bricks.units.interval import Interval

INTERVALS = st.tuples(st.floats(1e-6, 10), st.floats(1, 3)).map(
    lambda pair: Interval.within_factor(*pair)
)


@given(st.lists(INTERVALS, min_size=1, max_size=12))
def test_a_ranking_orders_all_and_counts_decided_pairs(quantities: list[Interval]) -> None:
    ranking = ranked(quantities)
    assert sorted(ranking.order) == list(range(len(quantities)))
    values = [quantities[n].value for n in ranking.order]
    assert values == sorted(values)
    pairs = [
        longer(quantities[greater], quantities[less]) >= DECIDED
        for n, less in enumerate(ranking.order)
        for greater in ranking.order[n + 1 :]
    ]
    assert ranking.decided_share == (sum(pairs) / len(pairs) if pairs else 1.0)
    assert 0 <= ranking.sure <= 1
    assert not (ranking.decided and ranking.rivals)


@given(INTERVALS, INTERVALS)
def test_one_of_two_is_longer(one: Interval, other: Interval) -> None:
    assert abs(longer(one, other) + longer(other, one) - 1) < 1e-9
    assert longer(one, one.scaled(2)) <= 0.5 <= longer(one.scaled(2), one)


def test_equal_quantities_are_undecided() -> None:
    ranking = ranked([Interval.exact(1.0)] * 3)
    assert (ranking.sure, ranking.decided_share, ranking.rivals) == (0.25, 0.0, (1, 2))
