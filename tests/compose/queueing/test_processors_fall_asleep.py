"""The model of a processor that sleeps, held against runs that were made with it."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bricks.compose.queueing.idle import AWAKE, ServedRuns, ServerState, Waking, fitted_state
from bricks.compose.queueing.run import RunLatency
from bricks.studies.serving.queueing import serve
from bricks.studies.serving.scenario import Serving
from bricks.studies.serving.service import BatchLatency, ServiceTimes
from bricks.units.cases import value_of
from bricks.units.interval import Interval


def runs(waking: Waking, base_s: float, share: float, count: int = 200) -> ServedRuns:
    """Runs of a server on a processor that sleeps just so, asked at random times."""
    gaps_s = np.random.default_rng(0).exponential(2 * base_s, count)
    idle_s, taken_s, sleep, left_s = [], [], 0.0, 0.0
    for gap_s in gaps_s.tolist():
        idle_s.append(max(0.0, gap_s - left_s))
        sleep = waking.after_idling(sleep, idle_s[-1])
        taken_s.append(base_s * (1 + share * sleep))
        sleep = waking.after_work(sleep, taken_s[-1])
        left_s = max(0.0, left_s - gap_s) + taken_s[-1]
    return ServedRuns(idle_s, taken_s, [base_s] * 9)


@pytest.mark.parametrize("falls_asleep_s", [0.005, 0.02])
@pytest.mark.parametrize("wakes_s", [0.005, 0.02])
def test_time_constants_are_found_again(falls_asleep_s: float, wakes_s: float) -> None:
    truth = Waking(falls_asleep_s, wakes_s)
    found = fitted_state(runs(truth, 0.004, 0.3))
    assert found.waking.falls_asleep_s == pytest.approx(falls_asleep_s, rel=0.05)
    assert found.waking.wakes_s == pytest.approx(wakes_s, rel=0.05)
    assert found.asleep_share == pytest.approx(0.3, rel=0.05)
    known = fitted_state(runs(truth, 0.050, 0.1), truth)
    assert known.asleep_share == pytest.approx(0.1, rel=0.1)
    assert known.waking == truth


def test_runs_that_others_lengthened_hardly_count_but_are_part_of_the_spread() -> None:
    truth = Waking(0.01, 0.01)
    even = runs(truth, 0.004, 0.2)
    taken_s = [s * (3 if number % 20 == 7 else 1) for number, s in enumerate(even.taken_s)]
    found = fitted_state(replace(even, taken_s=taken_s), truth)
    assert found.asleep_share == pytest.approx(0.2, abs=0.03)
    assert found.factor == pytest.approx(1.0, abs=0.02)
    assert np.mean(found.spread > 2) == pytest.approx(0.05)


def test_what_a_server_takes_longer_without_pauses_is_a_factor() -> None:
    busy = ServedRuns([0.0, 0.003, 0.01, 0.03] * 9, [0.0044] * 36, [0.004] * 9)
    assert fitted_state(busy).factor == pytest.approx(1.1, rel=0.01)


def test_a_batch_in_a_server_varies_as_runs_there_do() -> None:
    state = ServerState(AWAKE, 1.1, 0.2, np.asarray([1.0, 2.0]))
    batch = BatchLatency(1, RunLatency(Interval(0.01, 0.008, 0.012), np.ones(400))).in_state(state)
    assert batch.run.latency_s == Interval(*(pytest.approx(end) for end in (0.011, 0.0088, 0.0132)))
    assert set(batch.run.factors) == {1.0, 2.0}
    assert batch.asleep_share == 0.2
    assert batch.in_state(None).asleep_share == 0.0


def test_a_processor_that_never_sleeps_costs_nothing() -> None:
    even = ServedRuns([0.0, 0.003, 0.01, 0.03] * 9, [0.004] * 36, [0.004] * 9)
    assert fitted_state(even).asleep_share == pytest.approx(0.0, abs=0.005)
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


def test_each_query_is_on_the_way_for_one_of_the_times_that_were_measured() -> None:
    serving = Serving(batch_s=0.002, transport_s=0.001, transports_s=[0.003, 0.005])
    times = ServiceTimes([BatchLatency(1, RunLatency(Interval.exact(0.01), np.ones(9)))])
    sample = times.sampler(serving, value_of, seed=0)
    found = serve([float(number) for number in range(50)], serving, sample)
    assert {round(s, 6) for s in found.latencies_s} == {0.015, 0.017}
    assert found.occupied_s.tolist() == pytest.approx([0.012] * 50)


def test_each_batch_costs_one_of_the_times_that_were_measured() -> None:
    times = ServiceTimes([BatchLatency(1, RunLatency(Interval.exact(0.01), np.ones(9)))])
    serving = Serving(batch_s=0.002, batches_s=[0.001, 0.004])
    sample = times.sampler(serving, value_of, seed=0)
    found = serve([float(number) for number in range(50)], serving, sample)
    assert {round(s, 6) for s in found.occupied_s} == {0.011, 0.014}
