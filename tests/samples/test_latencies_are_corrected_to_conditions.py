"""A latency that was measured in some conditions of a host is corrected to others."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bricks.samples.correction import Correction, Factor
from bricks.samples.measurement import Measurement, Round
from bricks.samples.sensitivity import BrickWork, Sensitivities
from bricks.samples.usual_conditions import UsualConditions
from bricks.system.host_conditions import KERNELS, HostConditions

LATENCY_S = 1e-3
WORK = {
    "conv": BrickWork(2e8, 1e6, 1e5, 1, convolves=True),
    "add": BrickWork(1e6, 1.2e7, 0.0, 1, convolves=False),
    "tiny": BrickWork(100.0, 800.0, 0.0, 1, convolves=False),
}
SENSITIVITIES = Sensitivities(WORK, 1)
SECONDS = st.floats(1e-5, 1e-2)
HOSTS = st.builds(HostConditions, st.tuples(*[SECONDS] * len(KERNELS)))
USUAL = HostConditions((1e-3,) * len(KERNELS))


def slower(factor: float) -> HostConditions:
    return HostConditions(tuple(factor * s for s in USUAL.kernels_s if s is not None))


def measured(key: str, host: HostConditions | None, latency_s: float = LATENCY_S) -> Measurement:
    return Measurement(key, (Round((latency_s,) * 6, host, 0.0),) * 3, 1.0)


def correction(to: HostConditions, threads: int = 1) -> Correction:
    return Correction(Sensitivities(WORK, threads), UsualConditions.exactly(to))


@given(st.sampled_from([*WORK, "unknown"]), HOSTS, HOSTS)
def test_correcting_to_conditions_and_back_changes_nothing(
    key: str, here: HostConditions, there: HostConditions
) -> None:
    corrected_s = correction(there).mean_s(measured(key, here))
    assert correction(here).mean_s(measured(key, there, corrected_s)) == pytest.approx(LATENCY_S)


@given(st.sampled_from([*WORK, "unknown"]), st.integers(1, 8), HOSTS)
def test_in_its_own_conditions_a_latency_is_not_corrected(
    key: str, threads: int, host: HostConditions
) -> None:
    factor = correction(host, threads).factor(measured(key, host))
    assert (factor.middle, factor.low, factor.high) == pytest.approx((1.0, 1.0, 1.0))


@pytest.mark.parametrize("key", [*WORK, "unknown"])
def test_a_latency_follows_kernels_that_are_all_slower(key: str) -> None:
    found = correction(USUAL).mean_s(measured(key, slower(1.1)))
    assert found == pytest.approx(LATENCY_S / 1.09, rel=1e-3)
    assert correction(slower(1.1)).mean_s(measured(key, USUAL)) == pytest.approx(
        LATENCY_S * 1.09, rel=1e-3
    )


def test_a_latency_follows_the_kernels_of_its_kind() -> None:
    slow_memory = HostConditions.of({**USUAL.by_kernel, "stream": 2e-3})
    to = correction(slow_memory)
    factors = {key: to.factor(measured(key, USUAL)).middle for key in WORK}
    assert factors["add"] > 1.5
    assert factors["conv"] < 1.1
    assert factors["tiny"] == pytest.approx(1.0, abs=1e-3)


def test_kernels_that_are_not_known_have_not_changed() -> None:
    """Such as those of rounds of earlier versions, which know one of them."""
    partly = HostConditions.of_exchange(1e-3)
    only = HostConditions((*USUAL.kernels_s[:-1], 2e-3))  # where that one is slower
    factor = correction(only).factor(measured("tiny", USUAL)).middle
    assert factor > 1.1
    for to, of in ((slower(2.0), partly), (HostConditions.of_exchange(2e-3), USUAL)):
        assert correction(to).factor(measured("tiny", of)).middle == pytest.approx(factor)


@pytest.mark.parametrize("key", [*WORK, "unknown"])
def test_where_conditions_are_not_known_nothing_is_corrected(key: str) -> None:
    sensitivities, usual = SENSITIVITIES, UsualConditions.exactly(slower(2.0))
    of, without = measured(key, USUAL), measured(key, None)
    assert Correction(sensitivities, usual).factor(without) == Factor()
    assert Correction(sensitivities, None).factor(of) == Factor()
    assert Correction(None, usual).factor(of) == Factor()
    assert Correction(None, None).shared_sd([(of, LATENCY_S)]) == 0.0


def test_all_rounds_are_corrected_by_one_factor() -> None:
    rounds = tuple(Round((s,), slower(2.0), 0.0) for s in (1.0, 2.0, 3.0))
    measurement = Measurement("conv", rounds, 1.0)
    factor = correction(USUAL).factor(measurement).middle
    assert factor == pytest.approx(2**-0.9)
    corrected = [r.latency_s for r in correction(USUAL).corrected(measurement).rounds]
    assert corrected == pytest.approx([factor, 2 * factor, 3 * factor])


def flipping(key: str, *, follows: bool) -> Measurement:
    """One run in three took twice as long, and so did the kernels, or only the kernels."""
    speeds = (1.0, 1.0, 2.0) * 8
    rounds = (Round(((f**0.9 if follows else 1.0) * LATENCY_S,), slower(f), 0.0) for f in speeds)
    return Measurement(key, tuple(rounds), 1.0)


@pytest.mark.parametrize("key", [*WORK, "unknown"])
def test_rounds_of_a_host_that_flips_are_brought_to_one_speed(key: str) -> None:
    of = flipping(key, follows=True)
    to = UsualConditions.exactly(slower(2.0))
    found = Correction(SENSITIVITIES, to, [of]).corrected(of)
    latencies_s = [r.latency_s for r in found.rounds]
    assert max(latencies_s) < 1.1 * min(latencies_s)
    assert of.latency_s == LATENCY_S  # most rounds were fast: their median says nothing of the mean
    assert found.latency_s == pytest.approx(2**0.9 * LATENCY_S, rel=0.05)


def test_rounds_that_do_not_follow_their_kernels_stay_nearer_to_what_they_were() -> None:
    follow, ignore = flipping("conv", follows=True), flipping("conv", follows=False)
    to, sensitivities = UsualConditions.exactly(slower(2.0)), SENSITIVITIES

    def spread(seen: Measurement) -> float:
        rounds = Correction(sensitivities, to, [seen]).corrected(ignore).rounds
        latencies_s = [r.latency_s for r in rounds]
        return max(latencies_s) / min(latencies_s)

    assert spread(ignore) < 1.3 < spread(follow)


def test_a_run_follows_as_its_parts_do() -> None:
    run = measured("m1-run", USUAL)
    to = correction(slower(2.0))
    assert to.corrected(run, np.zeros(len(KERNELS))).latency_s == LATENCY_S
    half = np.full(len(KERNELS), 0.1)
    assert to.corrected(run, half).latency_s == pytest.approx(2**0.5 * LATENCY_S)


def test_a_change_within_the_noise_of_the_kernels_corrects_nothing_and_is_an_error() -> None:
    rounds = tuple(Round((1.0,), slower(f), 0.0) for f in (0.7, 1.4, 0.8, 1.3, 1.0))
    measurement = Measurement("conv", rounds, 1.0)
    near = Correction(SENSITIVITIES, UsualConditions.exactly(slower(1.02)), [measurement] * 9)
    assert near.factor(measurement).middle == 1.0
    assert near.shared_sd([(measurement, 1.0)]) > 0.01
    far = correction(slower(4.0)).factor(measurement).middle
    assert 1.0 < far < 4**0.9  # most of a large change is no noise
    assert far > 3**0.9


def test_errors_grow_with_the_change() -> None:
    of = measured("conv", USUAL)
    near, far = correction(slower(1.1)), correction(slower(2.0))
    assert 0 < near.factor(of).independent_sd < far.factor(of).independent_sd
    assert far.factor(of).low < far.factor(of).middle < far.factor(of).high
    assert 0 < near.shared_sd([(of, LATENCY_S)]) < far.shared_sd([(of, LATENCY_S)])
    assert correction(USUAL).shared_sd([(of, LATENCY_S)]) == pytest.approx(0.0, abs=1e-12)


def test_changes_of_opposite_parts_are_not_shared() -> None:
    """Half of a run that was measured faster, and half slower: the mean has not changed."""
    parts = [(measured("conv", slower(f)), LATENCY_S) for f in (2.0, 0.5)]
    assert correction(USUAL).shared_sd(parts) == pytest.approx(0.0, abs=1e-12)
    assert correction(USUAL).shared_sd(parts[:1]) > 0.05


def test_what_is_still_to_change_is_an_error_of_all_latencies() -> None:
    usual = UsualConditions.assumed(USUAL)
    found = Correction(SENSITIVITIES, usual)
    of = measured("conv", USUAL)
    assert found.factor(of).middle == pytest.approx(1.0)
    ahead, unshown = usual.relative_sd(SENSITIVITIES.of(of.key, LATENCY_S)), 0.04
    expected = math.hypot(ahead, unshown)
    assert found.shared_sd([(of, LATENCY_S)]) == pytest.approx(expected, rel=0.05)
    assert math.isclose(found.shared_sd([(of, 1.0)]), found.shared_sd([(of, 1.0), (of, 2.0)]))
