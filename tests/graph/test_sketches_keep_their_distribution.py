"""Values drawn from a sketch have its zeros, distinct values, rises and quantiles."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bricks.graph.distributions import sign_pattern
from bricks.graph.sketch import (
    COLUMNS,
    DENSITY,
    DISTINCT,
    ORDER,
    QUANTILES,
    SELECTED,
    SIGNS,
    SIZE,
    ZEROS,
    Sketch,
)

ELEMENTS = 40_000
seeds = st.integers(0, 2**32 - 1)


def random(like: np.ndarray) -> np.ndarray:
    rng = np.random.default_rng(7)
    if like.dtype == bool:
        return np.ones(like.shape, bool)
    if like.dtype.kind == "i":
        return rng.integers(0, 2, like.shape).astype(like.dtype)
    return rng.uniform(-1, 1, like.shape).astype(like.dtype)


@given(negative=st.floats(0.1, 0.9), share=st.floats(0.05, 1.0), seed=seeds)
def test_signs_that_are_made_have_the_pattern_they_are_made_for(
    negative: float, share: float, seed: int
) -> None:
    changes = share * 2 * min(negative, 1 - negative)  # more changes cannot be had
    made = sign_pattern(ELEMENTS, negative, changes, seed)
    assert set(np.unique(made)) <= {-1.0, 1.0}
    assert np.mean(made < 0) == pytest.approx(negative, abs=0.1)
    assert np.mean(made[1:] != made[:-1]) == pytest.approx(changes, abs=0.05)


def test_zeros_count_as_positive_and_constant_signs_stay_constant() -> None:
    assert Sketch.of(np.array([0.0, 1, 2, 3]), (SIGNS,)) == Sketch(0.0, 0.0)
    assert Sketch.of(np.full(9, -1.0), (SIGNS,)) == Sketch(1.0, 0.0)
    assert (sign_pattern(9, 1.0, 0.0, 0) == -1).all()
    assert (sign_pattern(9, 0.0, 0.0, 0) == 1).all()


@given(zeros=st.integers(0, 1000), sixteenths=st.integers(0, 16), seed=seeds)
def test_as_many_are_zero_as_the_sketch_says(zeros: int, sixteenths: int, seed: int) -> None:
    made = Sketch(zeros=zeros / 1000, changes=sixteenths / 16).drawn(np.ones(1000, bool), seed)
    assert np.count_nonzero(~made) == zeros


def test_of_rare_zeros_the_order_of_magnitude_counts() -> None:
    rare = np.ones(3200, np.float32)
    rare[::33] = 0
    sketch = Sketch.of(rare, (DENSITY,))
    assert (sketch.zeros, sketch.changes) == (0.03, 0.06)
    drawn = sketch.drawn(np.ones(3200, np.float32), 0)
    assert np.mean(drawn[1:] != drawn[:-1]) == pytest.approx(0.06, abs=0.01)
    assert Sketch.of(np.ones(1600), (DENSITY,)).differing_from(np.ones(1600)) is None


def test_what_is_selected_counts_exactly() -> None:
    mask = np.arange(3_000_017) % 1009 == 0  # of more elements than a sketch examines
    sketch = Sketch.of(mask, (SELECTED,))
    assert np.count_nonzero(sketch.drawn(np.ones_like(mask), 3)) == np.count_nonzero(mask)


@given(log_size=st.floats(-7, 3), seed=seeds)
def test_numbers_that_are_made_have_the_size_they_are_made_for(log_size: float, seed: int) -> None:
    made = Sketch(0.5, 0.5, log_size).drawn(np.ones(ELEMENTS, np.float32), seed)
    assert made.dtype == np.float32
    sketch = Sketch.of(made, (SIGNS, SIZE))
    assert (sketch.negative, sketch.changes) == (0.5, 0.5)
    assert sketch.log_size == pytest.approx(log_size, abs=0.15)  # half a step, and some noise


def test_sizes_beyond_the_bounds_are_equal() -> None:
    extremes = ([0.0], [], [1e-9], [np.inf], [1e30, -3.0])
    sizes = [Sketch.of(np.array(values), (SIZE,)).log_size for values in extremes]
    assert sizes == [-8, -8, -8, 4, 4]


@given(share=st.floats(0.001, 0.999), changes=st.floats(0.1, 1.0), seed=seeds)
def test_as_many_are_selected_as_in_the_model(share: float, changes: float, seed: int) -> None:
    changes *= 2 * min(share, 1 - share)
    mask = sign_pattern(ELEMENTS, share, changes, seed) > 0
    drawn = Sketch.of(mask, (ZEROS,)).drawn(random(mask), seed + 1)
    assert drawn.dtype == bool
    rare = min(mask.sum(), ELEMENTS - mask.sum())
    # Runs have random lengths: fewer runs are a rougher share.
    assert abs(int(drawn.sum()) - int(mask.sum())) <= 0.3 * rare + 2000 * (changes < 0.1) + 400


@given(distinct=st.integers(1, ELEMENTS), seed=seeds)
def test_as_many_are_distinct_as_in_the_model(distinct: int, seed: int) -> None:
    values = np.random.default_rng(seed).permutation(np.arange(ELEMENTS) % distinct)
    sketch = Sketch.of(values, (DISTINCT, ORDER, QUANTILES))
    drawn = sketch.drawn(random(values), seed)
    assert drawn.dtype == values.dtype
    assert drawn.min() == 0 and drawn.max() == distinct - 1
    assert np.unique(drawn).size == pytest.approx(distinct, rel=0.1, abs=1)


@pytest.mark.parametrize(
    "ordered",
    [
        lambda values: values,
        np.sort,
        lambda values: np.sort(values)[::-1],
        lambda values: np.sort(values.reshape(-1, 4)).reshape(-1),
        lambda values: np.sort(values.reshape(-1, 100))[:, ::-1].reshape(-1),
    ],
    ids=["random", "rising", "falling", "short runs", "long falling runs"],
)
def test_the_order_is_kept(ordered: Callable[[np.ndarray], np.ndarray]) -> None:
    values = ordered(np.random.default_rng(0).standard_normal(ELEMENTS).astype(np.float32))
    traits = (DISTINCT, ORDER, QUANTILES)
    sketch = Sketch.of(values, traits)
    again = Sketch.of(sketch.drawn(random(values), 3), traits)
    assert sketch.rises is not None and again.rises == pytest.approx(sketch.rises, abs=1 / 8)


@given(st.lists(st.floats(-100, 100), min_size=2, max_size=50), seeds)
def test_the_distribution_is_kept(few: list[float], seed: int) -> None:
    values = np.resize(np.array(few), ELEMENTS)
    sketch = Sketch.of(values, (QUANTILES,))
    drawn = sketch.drawn(random(values), seed)
    step = 1e-3 * max(1e-9, float(np.abs(values).max()))
    assert drawn.min() == pytest.approx(values.min(), abs=6 * step)
    assert drawn.max() == pytest.approx(values.max(), abs=6 * step)


def test_columns_keep_their_own_distributions() -> None:
    rng = np.random.default_rng(0)
    rows = np.stack([rng.uniform(0, 1, 500), rng.uniform(100, 200, 500)], axis=1)
    drawn = Sketch.of(rows, (COLUMNS,)).drawn(random(rows), 0)
    assert drawn[:, 0].max() <= 1 and drawn[:, 1].min() >= 99
    assert np.median(drawn[:, 1]) == pytest.approx(150, abs=10)


def test_numbers_that_are_none_stay_as_frequent() -> None:
    values = np.where(np.arange(ELEMENTS) % 4, 1.0, np.nan)
    drawn = Sketch.of(values, (QUANTILES,)).drawn(random(values), 0)
    assert np.mean(np.isnan(drawn)) == pytest.approx(0.25, abs=0.02)


@given(seeds)
def test_another_seed_gives_other_values_of_the_same_sketch(seed: int) -> None:
    values = np.random.default_rng(0).standard_normal(1000)
    sketch = Sketch.of(values, (QUANTILES,))
    first, same, other = (sketch.drawn(random(values), s) for s in (seed, seed, seed + 1))
    assert np.array_equal(first, same) and not np.array_equal(first, other)
    assert np.array_equal(np.sort(first), np.sort(other))


@pytest.mark.parametrize(
    "sketch",
    [
        Sketch(0.5, 0.25),
        Sketch(zeros=0.125, changes=0.25, nan=0.5),
        Sketch(distinct=7, rises=0.5, quantiles=(1.0, 2.0)),
        Sketch(columns=((0.0, 1.0), (2.0, 3.0)), ties=(0.5,), places=9, centred=True),
    ],
)
def test_a_sketch_is_read_as_it_was_written(sketch: Sketch) -> None:
    assert Sketch.from_json(sketch.to_json()) == sketch


def test_what_bricks_read_anyway_is_no_news() -> None:
    rng = np.random.default_rng(1)
    usual = rng.uniform(-1, 1, ELEMENTS)
    traits = (DISTINCT, ORDER, QUANTILES)
    assert Sketch.of(usual, traits).differing_from(random(usual)) is None
    everything = np.ones(100, bool)
    assert Sketch.of(everything, (ZEROS,)).differing_from(random(everything)) is None
    squeezed = Sketch.of(usual**3, traits).differing_from(random(usual))
    assert squeezed is not None and squeezed.quantiles and squeezed.rises is None
    sorted_ones = Sketch.of(np.sort(usual), traits).differing_from(random(usual))
    assert sorted_ones == Sketch(rises=1.0)


@given(st.integers(1, 300), seeds)
def test_few_distinct_numbers_stay_few(distinct: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = np.resize(rng.standard_normal(distinct), 5000)
    drawn = Sketch.of(values, (DISTINCT, QUANTILES)).drawn(random(values), seed)
    assert np.unique(drawn).size == pytest.approx(distinct, rel=0.1, abs=1)
