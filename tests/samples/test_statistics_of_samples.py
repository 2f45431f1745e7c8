from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from bricks.samples.statistics import median, spread

latencies = st.lists(st.floats(1e-6, 10.0), min_size=1, max_size=60)


@given(latencies)
def test_the_interval_holds_the_median_and_lies_within_the_samples(values: list[float]) -> None:
    found = spread(values)
    assert min(values) <= found.low <= found.value <= found.high <= max(values)


@given(st.integers(6, 200))
def test_the_interval_covers_at_least_as_surely_as_it_says(count: int) -> None:
    found = spread([float(value) for value in range(count)])
    rank = int(found.low)
    assert found.high == count - 1 - rank
    outside = 2 * sum(math.comb(count, r) for r in range(rank + 1)) / 2**count
    assert outside <= 0.05
    one_tighter = outside + 2 * math.comb(count, rank + 1) / 2**count
    assert one_tighter > 0.05, "a narrower interval would do"


def test_few_samples_give_their_range() -> None:
    assert spread([3.0, 1.0, 2.0]).low == 1.0
    assert spread([3.0, 1.0, 2.0]).high == 3.0


def test_the_median_of_an_even_count_is_the_mean_of_the_middle() -> None:
    assert median([4.0, 1.0, 3.0, 2.0]) == 2.5
