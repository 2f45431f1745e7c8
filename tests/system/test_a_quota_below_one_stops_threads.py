"""A quota below one processor: one thread runs until the budget is spent, and stops."""

from __future__ import annotations

import numpy as np
import pytest
from estimates import predicted
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

from bricks.compose.queueing.run import RunLatency
from bricks.errors import UsageError
from bricks.measure.worker import passes
from bricks.report.prediction import quota_remarks
from bricks.session.defaults import refuse_crowding
from bricks.studies.serving.outcome import scenario_of
from bricks.studies.serving.scenario import ScenarioKind, ScenarioLoad, Serving
from bricks.studies.serving.service import BatchLatency, ServiceTimes, most_instances
from bricks.studies.serving.service import refuse_crowding as refuse_instances
from bricks.system import Runtime, System, Target
from bricks.system.limits import Quota, ThrottledClock
from bricks.units.interval import Interval
from bricks.units.sample import Sample

HALF = Quota(0.5)


def target(quota: float | None, threads: int = 1, copies: int = 1) -> Target:
    identity = {"physical_cores": 4, "logical_cpus": 8, "cpu_quota": quota}
    runtime = Runtime("onnxruntime", "1", "cpu", threads, "none", copies=copies)
    return Target(System("host", identity, {}), runtime)


def looped(quota: Quota, work_s: float, runs: int) -> np.ndarray:
    """Latencies of runs in a loop, in steps of the kernel: run while there is budget, or stop."""
    steps = 100
    step_s = quota.period_s / steps
    budget, work = round(quota.share * steps), round(work_s / step_s)
    now = begun = done = 0
    latencies = []
    while len(latencies) < runs:
        done += now % steps < budget
        now += 1
        if done == work:
            latencies.append((now - begun) * step_s)
            begun, done = now, 0
    return np.asarray(latencies)


def test_samples_a_second_are_those_of_a_loop() -> None:
    """A run of two samples within 10 ms of half a processor: 100 samples a second, not 200."""
    latency_s = Interval.exact(1e-2)
    found = predicted("m", latency_s, target=target(0.5), batch=2)
    assert found.samples_per_s.value == pytest.approx(100.0)
    assert found.loop == HALF.loop(1e-2)
    whole = predicted("m", latency_s, batch=2)
    assert whole.loop is None
    assert whole.samples_per_s.value == pytest.approx(200.0)


@pytest.mark.parametrize("work", [1, 7, 23, 49, 51, 117])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.93])
def test_a_loop_of_runs_is_that_of_a_simulation_in_steps(share: float, work: int) -> None:
    quota, work_s = Quota(share), work * 1e-3
    latencies = looped(quota, work_s, 3000)
    assert latencies.mean() == pytest.approx(quota.mean_s(work_s), rel=0.01)
    for percent in (50, 99):
        predicted_s = quota.percentile_s(work_s, percent)
        around = np.percentile(latencies, [percent - 3, min(100, percent + 3)])
        assert around[0] - 1e-9 <= predicted_s <= around[1] + 1e-9


@given(st.floats(0.01, 0.99), st.lists(st.floats(1e-4, 0.5), min_size=1, max_size=30))
def test_no_work_is_faster_than_the_quota(share: float, works_s: list[float]) -> None:
    quota = Quota(share)
    clock, now_s = ThrottledClock(quota), 0.0
    for work_s in works_s:
        end_s = clock.end_s(now_s, work_s)
        assert end_s >= now_s + work_s - 1e-9
        now_s = end_s
    work_s = sum(works_s)
    assert now_s >= work_s / share - quota.stop_s - 1e-6
    assert now_s <= work_s / share + 1e-6


def test_work_that_begins_late_in_a_period_runs_on_in_the_next() -> None:
    clock = ThrottledClock(HALF)
    assert clock.end_s(0.08, 0.06) == pytest.approx(0.14)  # 20 ms, then 40 of the next 50 ms
    assert clock.end_s(0.14, 0.06) == pytest.approx(0.25)  # 10 ms, a stop, 50 ms
    assert clock.end_s(0.95, 0.01) == pytest.approx(0.96)


@pytest.mark.parametrize(
    "load", [ScenarioLoad(ScenarioKind.OFFLINE), ScenarioLoad(ScenarioKind.SINGLE_STREAM)]
)
def test_a_server_serves_what_the_quota_pays_for(load: ScenarioLoad) -> None:
    run = RunLatency(Interval.exact(1e-3), np.ones(64))
    times = ServiceTimes([BatchLatency(1, run)], quota=HALF)
    result = scenario_of("model", target(0.5), times, load, Serving())
    assert result.throughput.value == pytest.approx(500, rel=0.01)
    assert result.capacity_qps.value == pytest.approx(500)


def test_a_server_stops_at_rates_it_keeps_in_the_mean() -> None:
    run = RunLatency(Interval.exact(1e-3), np.ones(64))
    of = [BatchLatency(1, run)]
    load = ScenarioLoad(ScenarioKind.SERVER, qps=490)
    free = scenario_of("model", target(None), ServiceTimes(of), load, Serving())
    stopped = scenario_of("model", target(0.5), ServiceTimes(of, quota=HALF), load, Serving())
    assert stopped.latencies["p99_s"].value > 5 * free.latencies["p99_s"].value


@pytest.mark.parametrize(("quota", "threads"), [(0.5, 1), (1.0, 1), (2.5, 2), (None, 8)])
def test_threads_that_do_not_take_turns_are_measured(quota: float | None, threads: int) -> None:
    refuse_crowding(target(quota, threads))


@pytest.mark.parametrize(("quota", "threads", "most"), [(0.5, 2, 1), (1.5, 2, 1), (2.5, 3, 2)])
def test_more_threads_than_the_quota_pays_for_are_refused(
    quota: float, threads: int, most: int
) -> None:
    with refused(UsageError, f"--threads {threads}", quota, f"--threads {most}"):
        refuse_crowding(target(quota, threads))


def test_instances_share_no_quota() -> None:
    assert [most_instances(target(quota)) for quota in (None, 2.5, 0.5)] == [4, 2, 1]
    with refused(UsageError, "host", "--instances 1"):
        refuse_instances(target(0.5), Serving(instances=2))


@pytest.mark.parametrize(
    ("wall_s", "worked_s", "latency_s"),
    [
        (0.25, 0.13, 0.13),  # two stops
        (2e-3, 2e-3, 2e-3),
        (1e-6, 3e-6, 1e-6),  # what prepares a short run takes longer than the run
    ],
)
def test_a_sample_has_no_stops(
    wall_s: float, worked_s: float, latency_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A brick that takes longer than a period's budget would contain the stops of each run."""
    clock = iter((5.0, 5.0 + worked_s))
    monkeypatch.setattr(passes.time, "process_time", lambda: next(clock))
    assert passes.between_stops(lambda: Sample(wall_s))().host_s == pytest.approx(latency_s)


def test_a_remark_has_what_the_quota_makes_of_a_loop() -> None:
    latency_s = Interval.exact(1e-3)
    (line,) = quota_remarks("model", latency_s, target(0.5))
    assert "51.0 ms" in line  # one of fifty runs stops for 50 ms
    assert "500 are done a second" in line
    assert not quota_remarks("model", latency_s, target(2.0))
