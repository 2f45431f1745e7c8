"""Laws of the simulated server: it does what SimPy's does, and what queueing theory says."""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import simpy
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refused

from bricks.compose.queueing.batching import batch_sizes
from bricks.compose.queueing.run import RunLatency
from bricks.compose.queueing.simulation import poisson_s
from bricks.errors import UsageError
from bricks.studies.serving.outcome import best_batch, scenario_of, serve, serve_in_turn
from bricks.studies.serving.result import PERCENTILES, ScenarioResult
from bricks.studies.serving.scenario import ScenarioKind, ScenarioLoad, Serving
from bricks.studies.serving.service import BatchLatency, ServiceTimes
from bricks.system import Runtime, System, Target
from bricks.units.draws import VALUE
from bricks.units.interval import Interval

some = settings(max_examples=30, deadline=None)


class SimPyServer:
    """The server as SimPy processes: arrivals, and instances that run batches."""

    def __init__(self, arrivals: list[float], serving: Serving, seconds: list[float]) -> None:
        self.env = simpy.Environment()
        self.serving, self.seconds = serving, seconds
        self.waiting: list[tuple[int, float]] = []
        self.done: dict[int, float] = {}
        self.dropped = self.batches = 0
        self.changed = self.env.event()
        self.collecting = simpy.Resource(self.env, 1)
        self.env.process(self.arrive(arrivals))
        for _ in range(serving.instances):
            self.env.process(self.instance())
        self.env.run()

    def tell(self) -> None:
        self.changed.succeed()
        self.changed = self.env.event()

    def arrive(self, arrivals: list[float]) -> Generator[simpy.Event, Any, None]:
        for number, at in enumerate(arrivals):
            if at > self.env.now:
                yield self.env.timeout(at - self.env.now)
            if self.serving.max_queue is not None and len(self.waiting) >= self.serving.max_queue:
                self.dropped += 1
                continue
            self.waiting.append((number, at))
            self.tell()

    def instance(self) -> Generator[simpy.Event, Any, None]:
        most = self.serving.max_batch
        while True:
            with self.collecting.request() as turn:
                yield turn
                while not self.waiting:
                    yield self.changed
                until = self.waiting[0][1] + self.serving.timeout_s
                while len(self.waiting) < most and self.env.now < until:
                    yield self.changed | self.env.timeout(until - self.env.now)
                taken, self.waiting = self.waiting[:most], self.waiting[most:]
                seconds = self.seconds[self.batches % len(self.seconds)] * len(taken)
                self.batches += 1
            yield self.env.timeout(seconds)
            for number, at in taken:
                self.done[number] = self.env.now - at


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[float], Serving, list[float]]:
    # Times that no sum of others hits: at a tie, both orders would be right.
    gap = st.floats(1e-4, 2.0).map(lambda s: s * 1.000_123_7)
    arrivals = np.cumsum(draw(st.lists(gap, min_size=1, max_size=60))).tolist()
    most = draw(st.integers(1, 5))
    serving = Serving(
        max_batch=most,
        timeout_s=draw(st.sampled_from([0.0, 0.137, 1.73])) if most > 1 else 0.0,
        instances=draw(st.integers(1, 3)),
        max_queue=draw(st.one_of(st.none(), st.integers(most, 8))),
    )
    seconds = draw(st.lists(st.floats(1e-3, 3.0), min_size=1, max_size=10))
    return arrivals, serving, [s * math.pi for s in seconds]


@given(cases())
@some
def test_simpy_answers_each_sample_at_the_same_time(
    case: tuple[list[float], Serving, list[float]],
) -> None:
    arrivals, serving, seconds = case
    found = serve(arrivals, serving, lambda size, n, *_: seconds[n % len(seconds)] * size)
    reference = SimPyServer(arrivals, serving, seconds)
    assert found.dropped == reference.dropped
    assert len(found.batches) == reference.batches
    expected = [reference.done[number] for number in sorted(reference.done)]
    assert found.latencies_s.tolist() == pytest.approx(expected)


def test_a_lone_server_waits_as_pollaczek_and_khinchine_say() -> None:
    """Mean wait of M/G/1: rate · E[S²] / (2 (1 - load))."""
    rng = np.random.default_rng(3)
    seconds = rng.lognormal(-5, 0.6, 4096).tolist()
    mean, square = np.mean(seconds), np.mean(np.square(seconds))
    drawn = rng.integers(0, len(seconds), 60_000).tolist()
    for load in (0.3, 0.7):
        qps = load / mean
        found = serve(poisson_s(qps, 60_000, 5), Serving(), lambda _, n, *_idle: seconds[drawn[n]])
        wait = qps * square / (2 * (1 - load))
        assert found.latencies_s.mean() - mean == pytest.approx(wait, rel=0.06)
        assert found.busy_s / found.span_s == pytest.approx(load, rel=0.02)


@given(cases(), st.floats(1.0, 3.0))
@some
def test_work_is_conserved_and_slower_batches_are_answered_later(
    case: tuple[list[float], Serving, list[float]], factor: float
) -> None:
    arrivals, serving, seconds = case
    found = serve(arrivals, serving, lambda size, n, *_: seconds[n % len(seconds)])
    assert found.samples == found.batches.sum() == len(found.latencies_s)
    assert found.samples + found.dropped == len(arrivals)
    assert found.batches.max() <= serving.max_batch
    assert found.busy_s <= serving.instances * found.span_s * (1 + 1e-9)
    assert found.latencies_s.min() >= min(seconds) * (1 - 1e-9)
    lone = replace(serving, max_queue=None, max_batch=1, timeout_s=0.0)
    fast = serve(arrivals, lone, lambda _, n, *_idle: seconds[n % len(seconds)])
    slow = serve(arrivals, lone, lambda _, n, *_idle: factor * seconds[n % len(seconds)])
    assert (slow.latencies_s >= fast.latencies_s - 1e-9).all()


def test_queries_of_several_samples_end_with_the_last_of_them() -> None:
    served = serve_in_turn(3, 8, Serving(max_batch=4), lambda size, *_: 0.1 * size)
    assert served.latencies_s.tolist() == pytest.approx([0.8] * 3)
    two = serve_in_turn(3, 8, Serving(max_batch=4, instances=2), lambda size, *_: 0.1 * size)
    assert two.latencies_s.tolist() == pytest.approx([0.4] * 3)
    assert (two.samples, two.batches.tolist()) == (24, [4] * 6)


TARGET = Target(
    System("host", {"physical_cores": 4, "logical_cpus": 4, "cpu_quota": None}, {}),
    Runtime("fake", "1", "cpu", 1, "none"),
)


def times(*latencies: tuple[int, float], width: float = 0.1, spread: float = 0.0) -> ServiceTimes:
    """Batches by size, in seconds; single runs differ by ``spread``."""
    rng = np.random.default_rng(1)
    factors = np.exp(spread * rng.standard_normal(4096))
    return ServiceTimes(
        [
            BatchLatency(size, RunLatency(Interval(s, s * (1 - width), s * (1 + width)), factors))
            for size, s in latencies
        ]
    )


ONE = times((1, 0.010))
MANY = times((1, 0.010), (2, 0.012), (4, 0.016))


@pytest.fixture(autouse=True)
def _few_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenth of what is simulated otherwise: enough for these bounds."""
    monkeypatch.setattr("bricks.studies.serving.outcome.QUERIES", 10_000)
    monkeypatch.setattr("bricks.studies.serving.outcome.SEARCH_QUERIES", 2_000)


def outcome(of: ServiceTimes, load: ScenarioLoad, serving: Serving | None = None) -> ScenarioResult:
    return scenario_of("model", TARGET, of, load, serving or Serving())


def server(qps: float | None = None, **more: Any) -> ScenarioLoad:
    return ScenarioLoad(ScenarioKind.SERVER, qps, **more)


def test_one_stream_is_as_fast_as_the_model() -> None:
    found = outcome(ONE, ScenarioLoad(ScenarioKind.SINGLE_STREAM))
    p90 = found.latencies["p90_s"]
    assert (p90.value, p90.low, p90.high) == pytest.approx((0.010, 0.009, 0.011))
    assert found.throughput.value == pytest.approx(100)
    assert found.utilisation.value == pytest.approx(1)
    assert found.max_qps is None
    cost = outcome(
        ONE, ScenarioLoad(ScenarioKind.SINGLE_STREAM), Serving(request_s=0.002, batch_s=0.003)
    )
    assert cost.latencies["p50_s"].value == pytest.approx(0.015)


def test_offline_all_batches_are_full() -> None:
    found = outcome(MANY, ScenarioLoad(ScenarioKind.OFFLINE), Serving(max_batch=4, instances=2))
    assert found.throughput.value == pytest.approx(2 * 4 / 0.016, rel=1e-3)
    assert (found.latencies, found.mean_batch) == ({}, pytest.approx(4))
    assert found.best_batch == 4


def test_instances_that_are_busy_at_once_slow_each_other_down() -> None:
    two, slower = Serving(instances=2), times((1, 0.015))
    busy = ONE.with_busy(2, slower)
    offline = outcome(busy, ScenarioLoad(ScenarioKind.OFFLINE), two)
    assert offline.throughput.value == pytest.approx(2 / 0.015, rel=1e-3)
    stream = outcome(busy, ScenarioLoad(ScenarioKind.SINGLE_STREAM), two)
    assert stream.throughput.value == pytest.approx(100)
    assert outcome(busy, server(1000), two).throughput.value == pytest.approx(2 / 0.015)
    seldom, often = (outcome(busy, server(qps), two).latencies for qps in (1.0, 100.0))
    assert seldom["p50_s"].value == pytest.approx(0.010)
    assert often["p50_s"].value > 0.0125


def test_between_one_busy_instance_and_all_the_slow_down_is_interpolated() -> None:
    busy = ONE.with_busy(3, times((1, 0.016))).busy
    assert busy is not None
    factors = [busy.slowdown(1, count, VALUE) for count in (1, 2, 3)]
    assert factors == pytest.approx([1.0, 1.3, 1.6])


def test_where_that_is_unknown_a_warning_says_so() -> None:
    offline, two = ScenarioLoad(ScenarioKind.OFFLINE), Serving(instances=2)
    assert any("slow each other down" in line for line in outcome(ONE, offline, two).warnings)
    known = ONE.with_busy(2, ONE)
    assert not any("slow each other" in line for line in outcome(known, offline, two).warnings)


def test_a_rate_above_saturation_is_called_that_and_given_no_number() -> None:
    found = outcome(ONE, server(120))
    assert found.saturated
    assert found.latencies == {}
    assert found.throughput.value == pytest.approx(100)
    assert found.warnings[0].startswith("120 queries/s are above saturation")


def test_a_rate_above_what_is_likely_served_is_saturated_though_more_may_be() -> None:
    found = outcome(ONE, server(105))
    assert found.capacity_qps.high > 105
    assert found.saturated
    assert found.latencies == {}


def test_a_rate_that_may_saturate_has_no_upper_end() -> None:
    found = outcome(ONE, server(95))
    assert not found.saturated
    assert math.isinf(found.latencies["p99_s"].high)
    assert math.isfinite(found.latencies["p99_s"].value)
    assert "may be above saturation" in found.warnings[0]
    near = outcome(times((1, 0.010), width=0.01), server(95))
    assert math.isfinite(near.latencies["p99_s"].high)
    assert "95 % of what the server can answer" in near.warnings[0]


def test_a_queue_with_a_bound_drops_what_it_cannot_hold() -> None:
    found = outcome(ONE, server(200), Serving(max_queue=3))
    assert found.saturated
    assert found.dropped_share.value == pytest.approx(0.5, abs=0.02)
    assert found.latencies["p99_s"].value <= 0.010 * 4 + 1e-9
    assert outcome(ONE, server(20), Serving(max_queue=3)).dropped_share.value < 0.01


def test_the_highest_rate_keeps_the_bound_and_a_higher_one_does_not() -> None:
    found = outcome(ONE, server(slo_s=0.050))
    assert found.max_qps is not None
    assert found.load.qps == found.max_qps.value
    assert found.max_qps.low < found.max_qps.value < found.max_qps.high < 112
    assert found.latencies["counted_s"].value == pytest.approx(0.050, rel=0.15)
    above = outcome(ONE, server(found.max_qps.value * 1.05))
    assert above.latencies["p99_s"].value > 0.050
    easier = outcome(ONE, server(slo_s=0.050, percentile=50))
    assert easier.max_qps is not None
    assert easier.max_qps.value > found.max_qps.value


def test_what_is_dropped_counts_as_late_for_the_highest_rate() -> None:
    """What such a queue holds is always answered in time."""
    found = outcome(ONE, server(slo_s=0.050), Serving(max_queue=3))
    assert found.max_qps is not None
    assert found.max_qps.value < 0.9 * found.capacity_qps.value
    assert 0 < found.dropped_share.value < 0.015


def test_a_bound_that_no_rate_keeps_is_met_at_none() -> None:
    found = outcome(ONE, server(slo_s=0.001))
    assert found.max_qps is not None
    assert (found.max_qps.value, found.latencies) == (0.0, {})


def test_batches_raise_the_rate_and_waiting_for_them_the_latency() -> None:
    alone = outcome(MANY, server(80))
    joined = outcome(MANY, server(80), Serving(max_batch=4))
    filled = outcome(MANY, server(80), Serving(max_batch=4, timeout_s=0.02))
    assert joined.capacity_qps.value == pytest.approx(250)
    assert joined.latencies["p99_s"].value < alone.latencies["p99_s"].value
    assert filled.latencies["p50_s"].value > joined.latencies["p50_s"].value
    assert filled.mean_batch > joined.mean_batch > alone.mean_batch == 1


@pytest.mark.parametrize("percent", ["p50_s", "p99_s"])
def test_intervals_of_percentiles_are_those_of_queueing_theory(
    monkeypatch: pytest.MonkeyPatch, percent: str
) -> None:
    """M/M/1: a share q of latencies is below ln(1 / (1 - q)) · mean / (1 - load)."""
    monkeypatch.setattr("bricks.studies.serving.outcome.QUERIES", 100_000)
    ranks = np.random.default_rng(0).permutation((np.arange(4096) + 0.5) / 4096)
    exponential = -np.log1p(-ranks) / math.log(2)  # relative to the median
    median_s, mean = 0.010 * math.log(2), exponential.mean() * math.log(2)
    run = RunLatency(Interval(median_s, 0.9 * median_s, 1.1 * median_s), exponential)
    found = outcome(ServiceTimes([BatchLatency(1, run)]), server(70.0)).latencies[percent]
    slower = -math.log1p(-PERCENTILES[percent] / 100)
    for simulated_s, factor in ((found.value, 1.0), (found.low, 0.9), (found.high, 1.1)):
        mean_s = 0.010 * mean * factor
        assert simulated_s == pytest.approx(slower * mean_s / (1 - 70.0 * mean_s), rel=0.08)
    assert found.high / found.value > 1.3  # by 10 % of the latency
    assert found.value / found.low > 1.25


def test_independent_errors_of_sizes_widen_percentiles_less_than_common_ones() -> None:
    widths = []
    for own_share in (0.0, 1.0):
        batches = [
            replace(batch, run=replace(batch.run, own_share=own_share)) for batch in MANY.batches
        ]
        found = outcome(ServiceTimes(batches), server(150), Serving(max_batch=4))
        widths.append(found.latencies["p50_s"].half_width)
    assert 0 < widths[1] < widths[0]


def test_draws_leave_the_value_as_it_is() -> None:
    load, serving = server(150, slo_s=0.1), Serving(max_batch=4)
    exact = times((1, 0.010), (2, 0.012), (4, 0.016), width=0.0)
    found, sure = outcome(MANY, load, serving), outcome(exact, load, serving)
    for name, latency_s in sure.latencies.items():
        assert latency_s.low == latency_s.high == found.latencies[name].value
        assert found.latencies[name].low < latency_s.value < found.latencies[name].high
    assert found.max_qps is not None and sure.max_qps is not None
    assert found.max_qps.value == sure.max_qps.value


def test_uneven_runs_lengthen_the_queue() -> None:
    even, uneven = outcome(ONE, server(80)), outcome(times((1, 0.010), spread=0.4), server(80))
    assert uneven.latencies["p99_s"].value > 1.2 * even.latencies["p99_s"].value


def test_slow_runs_in_a_row_lengthen_the_queue_more_than_single_ones() -> None:
    slow = np.where(np.arange(4096) // 40 % 3 == 0, 1.6, 0.7)  # for 40 runs in a row
    alone = np.random.default_rng(0).permutation(slow)
    p99_s = [
        outcome(
            ServiceTimes([BatchLatency(1, replace(ONE.batches[0].run, factors=of))]), server(80)
        )
        .latencies["p99_s"]
        .value
        for of in (slow, alone)
    ]
    assert p99_s[0] > 1.5 * p99_s[1]


def test_a_trace_is_served_as_it_is() -> None:
    found = outcome(ONE, server(arrivals_s=[0.0, 0.0, 0.0, 1.0]))
    assert found.latencies["p50_s"].value == pytest.approx(0.015)
    assert found.latencies["p999_s"].value == pytest.approx(0.030, rel=0.01)


def test_latencies_between_two_sizes_are_interpolated_with_what_that_errs() -> None:
    assert MANY.latency(3).value == pytest.approx(0.014)
    assert MANY.interpolation_error == pytest.approx(0.0)
    bent = times((1, 0.010), (2, 0.020), (4, 0.024))
    assert bent.interpolation_error == pytest.approx(1 - 0.0146667 / 0.020, rel=1e-3)
    assert bent.latency(3).low < 0.9 * 0.022 * 0.75
    assert bent.latency(3).high > 1.1 * 0.022 * 1.25
    assert batch_sizes(6) == [1, 2, 4, 6]
    assert batch_sizes(1) == [1]


def test_the_best_batch_is_the_last_that_raises_throughput() -> None:
    assert best_batch(MANY.batches) == 4
    assert best_batch(times((1, 0.010), (2, 0.020), (4, 0.040)).batches) == 1
    assert best_batch(times((1, 0.010), (2, 0.015), (4, 0.0299)).batches) == 2


@pytest.mark.parametrize(
    ("load", "named"),
    [
        ({"kind": ScenarioKind.SERVER}, ("server", "--qps", "--arrivals", "--slo")),
        ({"kind": ScenarioKind.OFFLINE, "qps": 3.0}, ("offline", "--qps", "--arrivals")),
        ({"kind": ScenarioKind.OFFLINE, "slo_s": 3.0}, ("offline", "--slo")),
        ({"kind": ScenarioKind.SERVER, "qps": 0.0}, ("--qps 0",)),
        ({"kind": ScenarioKind.SERVER, "qps": 1.0, "arrivals_s": [0, 1]}, ("--arrivals", "--qps")),
        ({"kind": ScenarioKind.SERVER, "arrivals_s": [0, 2, 1]}, ("1 s", "2 s")),
        ({"kind": ScenarioKind.SERVER, "arrivals_s": [1]}, ("arrivals",)),
        ({"kind": ScenarioKind.SERVER, "qps": 1.0, "percentile": 100.0}, ("--percentile 100",)),
    ],
)
def test_loads_that_make_no_sense_are_refused(load: dict[str, Any], named: tuple[str, ...]) -> None:
    with refused(UsageError, *named):
        ScenarioLoad(**load)


@pytest.mark.parametrize(
    ("serving", "named"),
    [
        ({"max_batch": 0}, ("--batching 0",)),
        ({"timeout_s": 0.1}, ("--batch-timeout", "--batching N")),
        ({"max_batch": 8, "max_queue": 4}, (4, "--max-queue 8")),
    ],
)
def test_servers_that_make_no_sense_are_refused(
    serving: dict[str, Any], named: tuple[object, ...]
) -> None:
    with refused(UsageError, *named):
        Serving(**serving)
