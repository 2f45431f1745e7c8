"""A brick follows the reference kernels that are limited by what limits it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bricks.samples.sensitivity import BrickWork, Sensitivities, changes, mean_sensitivity
from bricks.system.host_conditions import KERNELS, HostConditions

CONVOLUTION = BrickWork(2e8, 1e6, 1e5, 1, convolves=True)
PRODUCT = BrickWork(2e8, 1e5, 1e5, 1, convolves=False)
ADD = BrickWork(1e6, 1.2e7, 0.0, 1, convolves=False)
TABLE = BrickWork(1e6, 1e5, 1.2e7, 1, convolves=False)
TINY = BrickWork(100.0, 800.0, 0.0, 1, convolves=False)
WORK = {"conv": CONVOLUTION, "product": PRODUCT, "add": ADD, "table": TABLE, "tiny": TINY}

SIZES = st.floats(0.0, 1e12)
ANY_WORK = st.builds(BrickWork, SIZES, SIZES, SIZES, st.integers(1, 1000), st.booleans())


def followed(key: str, threads: int = 1, usual: HostConditions | None = None) -> dict[str, float]:
    """How a brick that takes a millisecond follows each kernel, by name."""
    of = Sensitivities(WORK, threads, usual).of(key, 1e-3)
    return dict(zip(KERNELS, of.tolist(), strict=True))


@pytest.mark.parametrize(
    ("key", "kernel"),
    [("conv", "convolution"), ("product", "product"), ("add", "stream"), ("table", "stream")],
)
def test_a_brick_follows_mostly_the_kernel_of_its_kind(key: str, kernel: str) -> None:
    of = followed(key)
    assert of[kernel] > sum(of.values()) / 2


def test_a_tiny_node_follows_the_calls_more_than_any_other_kernel() -> None:
    of = followed("tiny")
    assert max(of, key=of.__getitem__) == "calls"
    assert of["stream"] == pytest.approx(0.0, abs=1e-3)


@given(ANY_WORK, st.integers(1, 64), st.floats(1e-6, 10.0), st.booleans())
def test_kernels_that_are_all_slower_by_a_tenth_lengthen_any_brick_by_9_per_cent(
    work: BrickWork, threads: int, latency_s: float, known: bool
) -> None:
    of = Sensitivities({"brick": work} if known else {}, threads).of("brick", latency_s)
    slower = HostConditions((1.1e-3,) * len(KERNELS))
    change = changes(HostConditions((1e-3,) * len(KERNELS)), slower)
    assert (of >= 0.0).all()
    assert math.exp(of @ change) == pytest.approx(1.09, abs=1e-3)


def test_several_threads_exchange_values_and_wait_for_each_other() -> None:
    for key in WORK:
        assert followed(key, threads=2)["exchange"] > followed(key)["exchange"]
    longer = Sensitivities(WORK, 2).of("conv", 1.0)[-1]
    assert longer < followed("conv", threads=2)["exchange"]  # it is a smaller part of more time


def test_where_memory_is_slow_bricks_follow_it_more() -> None:
    usual = HostConditions.of({"convolution": 7e-4, "stream": 1.5e-2})
    assert followed("conv", usual=usual)["stream"] > 3 * followed("conv")["stream"]


def test_the_sensitivity_of_a_sum_is_that_of_its_longer_parts() -> None:
    one, other = np.eye(len(KERNELS))[:2]
    assert mean_sensitivity([(one, 3e-3), (other, 1e-3)]) == pytest.approx(
        0.75 * one + 0.25 * other
    )
    assert mean_sensitivity([]).sum() == pytest.approx(0.9)


def test_a_kernel_that_one_side_does_not_know_has_not_changed() -> None:
    whole, exchange = HostConditions((1e-3,) * len(KERNELS)), HostConditions.of_exchange(2e-3)
    assert changes(whole, exchange).tolist() == pytest.approx([0.0] * 4 + [math.log(2)])
    assert not changes(None, whole).any() and not changes(whole, None).any()
