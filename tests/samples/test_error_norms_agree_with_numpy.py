from __future__ import annotations

import numpy as np
import pytest

from bricks.samples.evaluation import ErrorNorms, block_maxima, error_norms, heat_map
from bricks.units.facts import Missing

EXPECTED = np.array([[1.0, -2.0], [3.0, 4.0]])
ACTUAL = np.array([[1.5, -2.0], [3.0, 2.0]], np.float32)


def norms(expected: np.ndarray, actual: np.ndarray) -> ErrorNorms:
    found = error_norms(expected, actual)
    assert isinstance(found, ErrorNorms)
    return found


def test_a_case_made_by_hand() -> None:
    found = norms(EXPECTED, ACTUAL)
    assert found.l1 == 2.5
    assert found.l2 == pytest.approx(np.sqrt(0.25 + 4))
    assert found.linf == 2.0
    assert found.l1_relative == pytest.approx(2.5 / 10)
    assert found.l2_relative == pytest.approx(np.sqrt(4.25) / np.sqrt(30))
    assert found.linf_relative == pytest.approx(2 / 4)


def test_random_tensors_have_the_norms_of_numpy() -> None:
    rng = np.random.default_rng(3)
    expected, actual = rng.normal(size=(3, 5, 7)), rng.normal(size=(3, 5, 7))
    found, flat = norms(expected, actual), (actual - expected).ravel()
    for order, value, relative in (
        (1, found.l1, found.l1_relative),
        (2, found.l2, found.l2_relative),
        (np.inf, found.linf, found.linf_relative),
    ):
        assert value == pytest.approx(np.linalg.norm(flat, order))
        assert relative == pytest.approx(value / np.linalg.norm(expected.ravel(), order))


def test_equal_tensors_differ_by_nothing_and_a_reference_of_zeros_has_no_relative_error() -> None:
    same = norms(EXPECTED, EXPECTED)
    assert (same.l1, same.l2, same.linf, same.l2_relative) == (0, 0, 0, 0)
    of_zero = norms(np.zeros(2), np.ones(2))
    assert of_zero.l1 == 2
    assert of_zero.l1_relative is of_zero.l2_relative is of_zero.linf_relative is None


def test_differences_whose_squares_vanish_or_overflow_still_have_a_norm() -> None:
    assert norms(np.zeros(4), np.full(4, 1e-200)).l2 == pytest.approx(2e-200)
    assert norms(np.zeros(4), np.full(4, 1e200)).l2 == pytest.approx(2e200)


def test_whole_numbers_and_truth_values_count_as_numbers() -> None:
    assert norms(np.array([3, 5]), np.array([4, 5])).l1 == 1
    assert norms(np.array([True, False]), np.array([False, False])).linf == 1


def test_infinities_at_the_same_places_differ_by_nothing() -> None:
    expected = np.array([np.inf, np.nan, -np.inf, 1.0])
    assert norms(expected, np.array([np.inf, np.nan, -np.inf, 2.0])).l1 == 1


@pytest.mark.parametrize(
    ("expected", "actual", "reason"),
    [
        (np.zeros(3), np.zeros((3, 1)), "its shape is (3, 1), and the reference's (3,)"),
        (np.array([1.0, np.inf]), np.array([1.0, 2.0]), "1 of 2 elements are not finite"),
        (np.array([1.0, 2.0]), np.array([np.nan, 2.0]), "1 of 2 elements are not finite"),
        (np.array(["a"]), np.array(["a"]), "have no difference in figures"),
    ],
)
def test_what_cannot_be_compared_says_why(
    expected: np.ndarray, actual: np.ndarray, reason: str
) -> None:
    found = error_norms(expected, actual)
    assert isinstance(found, Missing)
    assert reason in found.reason
    assert heat_map(expected, actual) == []


@pytest.mark.parametrize(
    ("shape", "cells"),
    [
        ((), (1, 1)),
        ((5,), (1, 5)),
        ((100,), (1, 32)),
        ((3, 4), (3, 4)),
        ((2, 3, 33, 200), (32, 32)),
        ((7, 1, 64), (1, 32)),
    ],
)
def test_a_heat_map_has_at_most_32_rows_and_columns(
    shape: tuple[int, ...], cells: tuple[int, int]
) -> None:
    found = heat_map(np.zeros(shape), np.ones(shape))
    assert (len(found), len(found[0])) == cells
    assert all(cell == 1 for row in found for cell in row)


def test_a_single_error_shows_in_its_block_whatever_the_other_axes() -> None:
    actual = np.zeros((2, 3, 100, 70))
    actual[1, 2, 99, 0] = -5
    found = np.array(heat_map(np.zeros(actual.shape), actual))
    assert found[31, 0] == 5
    assert found.sum() == 5


def test_an_empty_tensor_has_no_cells() -> None:
    assert block_maxima(np.zeros((0, 3))) == []
    assert norms(np.zeros((0, 3)), np.zeros((0, 3))).l1 == 0
