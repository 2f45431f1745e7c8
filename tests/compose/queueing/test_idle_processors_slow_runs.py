"""The fitted idle-state penalty, compared with the model that the runs were made with."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bricks.compose.queueing.idle import (
    NO_IDLE_PENALTY,
    IdleModel,
    ServerRuns,
    ServerState,
    fit_server_state,
)
from bricks.compose.queueing.run import RunLatency
from bricks.studies.serving.outcome import serve
from bricks.studies.serving.scenario import Serving
from bricks.studies.serving.service import BatchLatency, ServiceTimes
from bricks.units.draws import VALUE
from bricks.units.interval import Interval


def runs(idle_model: IdleModel, base_s: float, share: float, count: int = 200) -> ServerRuns:
    """Runs of a server on a processor that follows ``idle_model``, at random arrivals."""
    gaps_s = np.random.default_rng(0).exponential(2 * base_s, count)
    idle_s, run_s, depth, left_s = [], [], 0.0, 0.0
    for gap_s in gaps_s.tolist():
        idle_s.append(max(0.0, gap_s - left_s))
        depth = idle_model.after_idling(depth, idle_s[-1])
        run_s.append(base_s * (1 + share * depth))
        depth = idle_model.after_work(depth, run_s[-1])
        left_s = max(0.0, left_s - gap_s) + run_s[-1]
    return ServerRuns(idle_s, run_s, [base_s] * 9)


@pytest.mark.parametrize("onset_s", [0.005, 0.02])
@pytest.mark.parametrize("recovery_s", [0.005, 0.02])
def test_time_constants_are_recovered(onset_s: float, recovery_s: float) -> None:
    truth = IdleModel(onset_s, recovery_s)
    found = fit_server_state(runs(truth, 0.004, 0.3))
    assert found.idle_model.onset_s == pytest.approx(onset_s, rel=0.05)
    assert found.idle_model.recovery_s == pytest.approx(recovery_s, rel=0.05)
    assert found.idle_penalty == pytest.approx(0.3, rel=0.05)
    known = fit_server_state(runs(truth, 0.050, 0.1), truth)
    assert known.idle_penalty == pytest.approx(0.1, rel=0.1)
    assert known.idle_model == truth


def test_outliers_hardly_change_the_fit_but_are_part_of_the_spread() -> None:
    truth = IdleModel(0.01, 0.01)
    even = runs(truth, 0.004, 0.2)
    run_s = [s * (3 if number % 20 == 7 else 1) for number, s in enumerate(even.run_s)]
    found = fit_server_state(replace(even, run_s=run_s), truth)
    assert found.idle_penalty == pytest.approx(0.2, abs=0.03)
    assert found.factor.value == pytest.approx(1.0, abs=0.02)
    assert np.mean(found.spread > 2) == pytest.approx(0.05)


def test_slower_runs_without_pauses_are_a_factor() -> None:
    busy = ServerRuns([0.0, 0.003, 0.01, 0.03] * 9, [0.0044] * 36, [0.004] * 9)
    assert fit_server_state(busy).factor.value == pytest.approx(1.1, rel=0.01)


def test_a_slowdown_is_as_uncertain_as_turns_differ() -> None:
    """Half the interval, as a logarithm: Student's 3.18 for four turns, times the mean's error."""
    idle_s, run_s = [0.0, 0.003, 0.01, 0.03] * 9, [0.0044] * 36
    steady = ServerRuns(idle_s, run_s, [0.004] * 36, 4)
    found = fit_server_state(steady).factor
    assert (found.low, found.high) == pytest.approx((found.value, found.value), rel=1e-3)
    looped_s = [s for s in (0.0038, 0.0040, 0.0040, 0.0042) for _ in range(9)]
    found = fit_server_state(replace(steady, looped_s=looped_s)).factor
    error = float(np.std(np.log(looped_s[::9]), ddof=1)) / 2
    assert math.log(found.high / found.value) == pytest.approx(3.182 * error, rel=0.01)
    assert found.value == pytest.approx(1.1, rel=0.01)


def test_the_error_of_a_slowdown_is_each_batch_sizes_own() -> None:
    state = ServerState(NO_IDLE_PENALTY, Interval(1.0, 0.85, 1.15), 0.0, np.ones(2))
    run = RunLatency(Interval(0.01, 0.008, 0.012), np.ones(4))
    found = BatchLatency(1, run).in_state(state).run
    assert found.latency_s == Interval(*(pytest.approx(s) for s in (0.01, 0.0075, 0.0125)))
    assert found.own_share == pytest.approx(0.15**2 / 0.25**2)


def test_a_batch_in_a_server_varies_as_runs_there_do() -> None:
    state = ServerState(NO_IDLE_PENALTY, Interval.exact(1.1), 0.2, np.asarray([1.0, 2.0]))
    batch = BatchLatency(1, RunLatency(Interval(0.01, 0.008, 0.012), np.ones(400))).in_state(state)
    assert batch.run.latency_s == Interval(*(pytest.approx(end) for end in (0.011, 0.0088, 0.0132)))
    assert set(batch.run.factors) == {1.0, 2.0}
    assert batch.idle_penalty == 0.2
    assert batch.in_state(None).idle_penalty == 0.0


def test_a_processor_without_idle_states_has_no_penalty() -> None:
    even = ServerRuns([0.0, 0.003, 0.01, 0.03] * 9, [0.004] * 36, [0.004] * 9)
    assert fit_server_state(even).idle_penalty == pytest.approx(0.0, abs=0.005)
    assert NO_IDLE_PENALTY.after_idling(0.0, 1e6) == 0.0


@given(st.floats(0, 1), st.floats(0, 10), st.floats(1e-3, 1), st.floats(1e-3, 1))
def test_depth_stays_between_awake_and_adepth(
    depth: float, seconds: float, onset_s: float, recovery_s: float
) -> None:
    idle_model = IdleModel(onset_s, recovery_s)
    assert depth - 1e-12 <= idle_model.after_idling(depth, seconds) <= 1 + 1e-12
    assert 0 <= idle_model.after_work(depth, seconds) <= depth
    half = idle_model.after_idling(idle_model.after_idling(depth, seconds / 2), seconds / 2)
    assert half == pytest.approx(idle_model.after_idling(depth, seconds))


def test_a_sample_after_a_pause_takes_longer_and_the_next_less() -> None:
    idle_model = IdleModel(0.02, 0.01)
    served = serve(
        [0.0, 1.0, 1.0],
        Serving(),
        lambda size, n, depth, busy: 0.01 * (1 + 0.5 * depth),
        idle_model,
    )
    first, second, third = served.latencies_s
    assert first == pytest.approx(0.010)
    assert second == pytest.approx(0.015)
    assert third - second == pytest.approx(0.01 * (1 + 0.5 * math.exp(-1.5)))


def test_each_query_takes_one_of_the_measured_transport_times() -> None:
    serving = Serving(batch_s=0.002, transport_s=0.001, transports_s=[0.003, 0.005])
    times = ServiceTimes([BatchLatency(1, RunLatency(Interval.exact(0.01), np.ones(9)))])
    sample = times.sampler(serving, VALUE, seed=0)
    found = serve([float(number) for number in range(50)], serving, sample)
    assert {round(s, 6) for s in found.latencies_s} == {0.015, 0.017}
    assert found.occupied_s.tolist() == pytest.approx([0.012] * 50)


def test_each_batch_takes_one_of_the_measured_costs() -> None:
    times = ServiceTimes([BatchLatency(1, RunLatency(Interval.exact(0.01), np.ones(9)))])
    serving = Serving(batch_s=0.002, batches_s=[0.001, 0.004])
    sample = times.sampler(serving, VALUE, seed=0)
    found = serve([float(number) for number in range(50)], serving, sample)
    assert {round(s, 6) for s in found.occupied_s} == {0.011, 0.014}
