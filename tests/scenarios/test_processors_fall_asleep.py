"""The model of a processor that sleeps, held against runs that were made with it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bricks.estimate.figure import Figure
from bricks.scenarios.idle import (
    AWAKE,
    LONG_S,
    PausedRuns,
    Waking,
    fitted_share,
    fitted_waking,
)
from bricks.scenarios.queueing import serve
from bricks.scenarios.scenario import Serving
from bricks.scenarios.service import BatchLatency, ServiceTimes


def runs(waking: Waking, base_s: float, share: float) -> PausedRuns:
    """Runs on a processor that sleeps just so."""
    taken, sleep = [], waking.after_idling(0.0, LONG_S)
    for _ in range(6):
        taken.append(base_s * (1 + share * sleep))
        sleep = waking.after_work(sleep, taken[-1])
    pauses = {s: base_s * (1 + share * waking.after_idling(0.0, s)) for s in (0.003, 0.01, 0.03)}
    return PausedRuns(taken, pauses)


@pytest.mark.parametrize("falls_asleep_s", [0.01, 0.04])
@pytest.mark.parametrize("wakes_s", [0.005, 0.02])
def test_time_constants_are_found_again(falls_asleep_s: float, wakes_s: float) -> None:
    truth = Waking(falls_asleep_s, wakes_s)
    found, share = fitted_waking(runs(truth, 0.004, 0.3))
    assert found.falls_asleep_s == pytest.approx(falls_asleep_s, rel=0.05)
    assert found.wakes_s == pytest.approx(wakes_s, rel=0.05)
    assert share == pytest.approx(0.3, rel=0.05)
    assert fitted_share(runs(truth, 0.050, 0.1), truth) == pytest.approx(0.1, rel=0.1)


def test_a_processor_that_never_sleeps_costs_nothing() -> None:
    even = PausedRuns([0.004] * 6, dict.fromkeys((0.003, 0.01, 0.03), 0.004))
    _, share = fitted_waking(even)
    assert share == pytest.approx(0.0, abs=0.005)
    assert AWAKE.after_idling(0.0, 1e6) == 0.0


@given(st.floats(0, 1), st.floats(0, 10), st.floats(1e-3, 1), st.floats(1e-3, 1))
def test_sleep_stays_between_awake_and_asleep(
    sleep: float, seconds: float, falls_asleep_s: float, wakes_s: float
) -> None:
    waking = Waking(falls_asleep_s, wakes_s)
    assert sleep - 1e-12 <= waking.after_idling(sleep, seconds) <= 1 + 1e-12
    assert 0 <= waking.after_work(sleep, seconds) <= sleep
    half = waking.after_idling(waking.after_idling(sleep, seconds / 2), seconds / 2)
    assert half == pytest.approx(waking.after_idling(sleep, seconds))


def test_a_sample_after_a_pause_takes_longer_and_the_next_less() -> None:
    waking = Waking(0.02, 0.01)
    served = serve(
        [0.0, 1.0, 1.0], Serving(), lambda size, n, sleep: 0.01 * (1 + 0.5 * sleep), waking
    )
    first, second, third = served.latencies_s
    assert first == pytest.approx(0.010)
    assert second == pytest.approx(0.015)
    assert third - second == pytest.approx(0.01 * (1 + 0.5 * math.exp(-1.5)))


def test_a_server_that_sleeps_takes_longer_itself() -> None:
    serving = Serving(
        batch_s=0.002, transport_s=0.001, asleep_batch_s=0.003, asleep_transport_s=0.004
    )
    times = ServiceTimes(
        [BatchLatency(1, Figure(0.01, 0.01, 0.01), np.ones(9))], Waking(0.02, 0.01)
    )
    sample = times.sampler(serving, "value", seed=0)
    found = serve([0.0, 1.0], serving, sample, times.waking)
    assert found.latencies_s.tolist() == pytest.approx([0.013, 0.020])
