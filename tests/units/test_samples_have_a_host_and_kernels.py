"""Laws of samples: their means, and what they are in JSON."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bricks.units.sample import Kernel, Sample, weighted_mean

SECONDS = st.floats(1e-9, 10.0)
KERNELS = st.lists(st.builds(Kernel, st.sampled_from("abc"), SECONDS), max_size=5).map(tuple)
SAMPLES = st.builds(Sample, SECONDS, KERNELS)
WEIGHTED = st.lists(st.tuples(SAMPLES, st.floats(0.1, 10.0)), min_size=1, max_size=5)


@given(SAMPLES)
def test_a_sample_is_the_same_after_json(sample: Sample) -> None:
    assert Sample.from_json(json.loads(json.dumps(sample.to_json()))) == sample


def test_on_a_cpu_a_sample_is_a_number_and_takes_no_time_of_a_device() -> None:
    assert Sample(0.5).to_json() == 0.5
    assert Sample(0.5).device_s == 0.0


@given(WEIGHTED)
def test_a_mean_takes_the_mean_of_both_times(weighted: list[tuple[Sample, float]]) -> None:
    samples, weights = zip(*weighted, strict=True)
    mean, total = weighted_mean(samples, weights), sum(weights)
    for time in ("host_s", "device_s"):
        expected = sum(w * getattr(s, time) for s, w in weighted) / total
        assert getattr(mean, time) == pytest.approx(expected)


@given(SAMPLES, st.lists(st.floats(0.1, 10.0), min_size=1, max_size=5))
def test_equal_runs_are_their_mean(sample: Sample, weights: list[float]) -> None:
    mean = weighted_mean([sample] * len(weights), weights)
    assert sorted(k.name for k in mean.kernels) == sorted(k.name for k in sample.kernels)
    assert mean.host_s == pytest.approx(sample.host_s)


def test_kernels_of_one_name_are_told_apart_by_their_order() -> None:
    first = Sample(1.0, (Kernel("a", 0.2), Kernel("b", 0.1), Kernel("a", 0.4)))
    second = Sample(1.0, (Kernel("a", 0.4), Kernel("b", 0.1), Kernel("a", 0.4), Kernel("c", 0.2)))
    mean = weighted_mean([first, second], [1.0, 1.0])
    assert [kernel.name for kernel in mean.kernels] == ["a", "b", "a", "c"]
    assert [kernel.device_s for kernel in mean.kernels] == pytest.approx([0.3, 0.1, 0.4, 0.1])
