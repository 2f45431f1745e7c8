"""A measurement's latency is that of its undisturbed rounds, in the conditions of these rounds."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from bricks.samples.measurement import Measurement, Round
from bricks.system.host_conditions import KERNELS, HostConditions


def host(latency_s: float, taken_s: int | None = None) -> HostConditions:
    return HostConditions((latency_s,) * len(KERNELS), taken_s)


def measurement(*rounds: Round) -> Measurement:
    return Measurement("b1-0", rounds, 1.0)


def kernels_s(of: Measurement) -> Sequence[float | None]:
    assert of.host is not None
    return of.host.kernels_s


def test_a_sample_that_was_interrupted_does_not_count() -> None:
    assert Round((1.0, 1.2)).latency_s == pytest.approx(1.1)
    assert Round((1.0, 1.3)).latency_s == Round((1.3, 1.0)).latency_s == 1.0
    assert Round((3.0, 1.0, 1.1)).latency_s == pytest.approx(1.05)
    assert Round((2.0,)).latency_s == 2.0


def test_disturbed_rounds_count_only_where_there_are_too_few_others() -> None:
    quiet, busy = Round((1.0,), host(1e-3), 0.0), Round((9.0,), host(9e-3), 0.5)
    assert measurement(quiet, busy, quiet).quiet_rounds == (quiet, quiet)
    assert measurement(quiet, busy, quiet).latency_s == 1.0
    assert kernels_s(measurement(quiet, busy, quiet)) == pytest.approx([1e-3] * len(KERNELS))
    assert measurement(quiet, busy).quiet_rounds == (quiet, busy)
    assert kernels_s(measurement(quiet, busy)) == pytest.approx([3e-3] * len(KERNELS))


def test_conditions_are_the_mean_of_each_kernel_where_it_is_known() -> None:
    exchange = HostConditions.of_exchange(1.6e-2)
    rounds = [Round((1.0,), of) for of in (host(1e-3, 7), host(4e-3, 9), exchange, None)]
    found = measurement(*rounds)
    assert found.host is not None and found.host.taken_s == 9
    *others, last = kernels_s(found)
    assert others == pytest.approx([2e-3] * (len(KERNELS) - 1))
    assert last == pytest.approx(4e-3)
    assert measurement(Round((1.0,)), Round((1.0,))).host is None
