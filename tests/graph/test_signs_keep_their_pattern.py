import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

from bricks.graph.signs import SignPattern


@given(
    negative=st.floats(0.1, 0.9),
    share=st.floats(0.05, 1.0),
    seed=st.integers(0, 2**32 - 1),
)
def test_signs_that_are_made_have_the_pattern_they_are_made_for(
    negative: float, share: float, seed: int
) -> None:
    changes = share * 2 * min(negative, 1 - negative)  # more changes cannot be had
    made = SignPattern(negative, changes).signs(40_000, seed)
    assert set(np.unique(made)) <= {-1.0, 1.0}
    assert np.mean(made < 0) == pytest.approx(negative, abs=0.1)
    assert np.mean(made[1:] != made[:-1]) == pytest.approx(changes, abs=0.05)


@given(st.lists(st.floats(-5, 5), max_size=50))
def test_any_values_have_a_pattern_that_can_be_made(values: list[float]) -> None:
    pattern = SignPattern.of(np.array(values))
    assert 0 <= pattern.negative <= 1
    assert 0 <= pattern.changes <= 1
    assert len(pattern.signs(33, 0)) == 33


def test_zeros_count_as_positive_and_constant_signs_stay_constant() -> None:
    assert SignPattern.of(np.array([0.0, 1, 2, 3])) == SignPattern(0.0, 0.0)
    assert SignPattern.of(np.full(9, -1.0)) == SignPattern(1.0, 0.0)
    assert (SignPattern(1.0, 0.0).signs(9, 0) == -1).all()
    assert (SignPattern(0.0, 0.0).signs(9, 0) == 1).all()


def test_patterns_are_told_apart_in_steps() -> None:
    random = np.random.default_rng(0)
    patterns = {SignPattern.of(random.standard_normal(20_000)) for _ in range(20)}
    assert patterns == {SignPattern(0.5, 0.5)}


@given(log_size=st.floats(-7, 3), seed=st.integers(0, 2**32 - 1))
def test_numbers_that_are_made_have_the_size_they_are_made_for(log_size: float, seed: int) -> None:
    made = SignPattern(0.5, 0.5, log_size).numbers(40_000, seed)
    assert made.dtype == np.float32
    found = SignPattern.of(made, sized=True)
    assert (found.negative, found.changes) == (0.5, 0.5)
    assert found.log_size == pytest.approx(log_size, abs=0.15)  # half a step, and some noise
    assert SignPattern(*found.to_json()) == found


def test_sizes_beyond_those_that_matter_are_alike() -> None:
    extremes = ([0.0], [], [1e-9], [np.inf], [1e30, -3.0])
    sizes = [SignPattern.of(np.array(values), sized=True).log_size for values in extremes]
    assert sizes == [-8, -8, -8, 4, 4]


def test_a_pattern_of_signs_alone_has_no_numbers() -> None:
    assert SignPattern.of(np.ones(3)).log_size is None
    assert SignPattern(0.5, 0.5).to_json() == [0.5, 0.5]
    with refused(ValueError):
        SignPattern(0.5, 0.5).numbers(3, 0)
