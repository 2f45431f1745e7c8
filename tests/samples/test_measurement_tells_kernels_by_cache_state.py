"""A measurement on a device tells its kernels by the state of the device's cache."""

from __future__ import annotations

import pytest

from bricks.samples.measurement import Measurement, Round
from bricks.units.sample import Kernel, Sample


def sample(device_s: float, displaced_bytes: int | None = None) -> Sample:
    return Sample(1e-5, (Kernel("gemm", device_s),), displaced_bytes)


WALKED = Round.of([sample(3e-6), sample(5e-6)])
HOT = Round.of([sample(2e-6, 0)])
COLD = Round.of([sample(8e-6, 1 << 28)])


def test_kernels_of_each_state_are_told_apart() -> None:
    measured = Measurement("b1-x", (HOT, WALKED, COLD), 1.0)
    known = measured.kernels_by_displaced
    assert known.keys() == {0, None, 1 << 28}
    assert known[0] == (Kernel("gemm", 2e-6),)
    assert known[None] == (Kernel("gemm", pytest.approx(4e-6)),)


def test_the_latency_is_that_of_walks_where_there_are_any() -> None:
    assert Measurement("b1-x", (HOT, WALKED, COLD), 1.0).device_s == pytest.approx(4e-6)
    assert Measurement("b1-x", (HOT, HOT), 1.0).device_s == pytest.approx(2e-6)


def test_a_sample_in_json_keeps_its_state() -> None:
    for each in (sample(1e-6), sample(1e-6, 0), sample(1e-6, 1 << 20), Sample(1e-6)):
        assert Sample.from_json(each.to_json()) == each


def test_samples_of_one_round_share_their_state() -> None:
    with pytest.raises(ValueError, match="displace"):
        Round.of([sample(1e-6), sample(1e-6, 0)])


def test_a_disturbed_host_takes_no_state_away() -> None:
    def taken(displaced_bytes: int | None, host_s: float, waited: float) -> Round:
        sample = Sample(host_s, (Kernel("k", host_s / 2),), displaced_bytes)
        return Round.of([sample], waited_share=waited)

    busy = Measurement("b1-0", (taken(None, 4.0, 0.5), taken(0, 2.0, 0.0), taken(9, 6.0, 0.0)), 1.0)
    assert set(busy.kernels_by_displaced) == {None, 0, 9}
    assert (busy.latency_s, busy.device_s) == (4.0, 2.0)
    quiet = Measurement("b1-0", (*busy.rounds, taken(9, 8.0, 0.5)), 1.0)
    (kernel,) = quiet.kernels_by_displaced[9]
    assert 3.0 < kernel.device_s < 3.1  # a round that waited for half of its time hardly counts
