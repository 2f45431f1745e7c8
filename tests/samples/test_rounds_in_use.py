"""A measurement's latency is the weighed median of its rounds, in their weighed mean conditions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from bricks.samples.measurement import DISTURBED_SHARE, Measurement, Round, round_spread
from bricks.samples.statistics import half_width
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


def test_disturbed_rounds_count_less_the_longer_threads_waited() -> None:
    quiet, busy = Round((1.0,), host(1e-3), 0.0), Round((9.0,), host(9e-3), 0.5)
    assert quiet.weight == Round((1.0,)).weight == Round((1.0,), None, DISTURBED_SHARE).weight == 1
    assert busy.weight == pytest.approx(DISTURBED_SHARE / 0.5)
    assert measurement(quiet, busy, busy, busy).latency_s == 1.0  # as it would not be without it
    assert measurement(busy, busy).latency_s == 9.0
    assert measurement(quiet, busy).latency_s == 1.0
    middle = kernels_s(measurement(quiet, busy))
    assert middle == pytest.approx([1e-3 * 9 ** (0.04 / 1.04)] * len(KERNELS))


def test_disturbed_rounds_say_little_of_how_sure_a_latency_is() -> None:
    sure = [Round((1.0 + 0.01 * i,), None, 0.0) for i in range(8)]
    unsure = [replace(r, waited_share=0.2) for r in sure[1:]]
    values = [r.latency_s for r in sure]
    of_all = half_width(values, 0.1, measurement(*sure).weights)
    of_one = half_width(values, 0.1, measurement(sure[0], *unsure).weights)
    assert of_one > 3 * of_all
    assert round_spread(measurement(*sure)).low == 1.0


@pytest.mark.parametrize("noisy", [20, 32])
def test_the_interval_widens_with_the_rounds_that_are_noisy(noisy: int) -> None:
    """The same latencies, of which many rounds say little: half of them, or most."""
    latencies = [1.0 + 0.01 * (17 * i % 40) for i in range(40)]
    quiet = measurement(*(Round((latency_s,), None, 0.0) for latency_s in latencies))
    waited = [0.2 if 7 * i % 40 < noisy else 0.0 for i in range(40)]
    busy = replace(
        quiet,
        rounds=tuple(replace(r, waited_share=w) for r, w in zip(quiet.rounds, waited, strict=True)),
    )
    assert sum(r.disturbed for r in busy.rounds) == noisy
    of_quiet, of_busy = round_spread(quiet), round_spread(busy)
    assert of_busy.half_width > 1.1 * of_quiet.half_width
    assert of_busy.value == pytest.approx(of_quiet.value, rel=0.05)
    widths = [half_width([r.latency_s for r in m.rounds], 0.01, m.weights) for m in (quiet, busy)]
    assert widths[1] > 1.1 * widths[0]


def test_conditions_are_the_mean_of_each_kernel_where_it_is_known() -> None:
    exchange = HostConditions.of_exchange(1.6e-2)
    rounds = [Round((1.0,), of) for of in (host(1e-3, 7), host(4e-3, 9), exchange, None)]
    found = measurement(*rounds)
    assert found.host is not None and found.host.taken_s == 9
    *others, last = kernels_s(found)
    assert others == pytest.approx([2e-3] * (len(KERNELS) - 1))
    assert last == pytest.approx(4e-3)
    assert measurement(Round((1.0,)), Round((1.0,))).host is None
