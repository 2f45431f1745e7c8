"""A run on host and device ends with the later of both, and is the host's sum without kernels."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plans import CHAIN, estimate_of, measurement, plan, results

from bricks.compose.basis import Basis, Results
from bricks.compose.composer import compose
from bricks.compose.device.launching import (
    FREE,
    SYNCHRONIZE,
    DeviceRun,
    LaunchCosts,
    RunMode,
    device_run,
)
from bricks.compose.estimate import Estimate
from bricks.compose.lanes import DEVICE, HOST, occurrence_tasks
from bricks.compose.timeline import timeline
from bricks.decompose.plan import Plan
from bricks.samples.measurement import Measurement, Round
from bricks.units.interval import Interval
from bricks.units.sample import Kernel, Sample

seconds = st.one_of(st.just(0.0), st.floats(1e-6, 1e-2))
kernels = st.lists(st.builds(Kernel, st.sampled_from("pqr"), seconds), max_size=3)
CALLED = ("a", "b", "c")
calls = st.lists(st.tuples(st.sampled_from(CALLED), seconds, kernels), min_size=1, max_size=8)
exact = seconds.map(Interval.exact)
costs = st.builds(LaunchCosts, exact, exact, exact, exact, exact, st.integers(3, 6))
Calls = list[tuple[str, float, list[Kernel]]]
MODES = st.sampled_from(RunMode)
TO_HOST = "Memcpy DtoH (Device -> Pageable)"


def called(of: Calls) -> Plan:
    return plan([(key, [i], [i + 1]) for i, (key, *_) in enumerate(of)])


def run_of(of: Calls, at: LaunchCosts = FREE, mode: RunMode = RunMode.EAGER) -> DeviceRun:
    host_s, started = [s for _, s, _ in of], [kernels for *_, kernels in of]
    return device_run(called(of), host_s, started, at, mode)


@given(calls, costs)
def test_a_kernel_begins_when_launched_and_the_one_before_has_ended(
    of: Calls, at: LaunchCosts
) -> None:
    found = run_of(of, at)
    host_s, ends_s, expected = 0.0, list[float](), []
    for _, own_s, started in of:
        if started and (ended := len(ends_s) + len(started) - at.queue_depth) > 0:
            host_s = max(host_s, ends_s[ended - 1])
        host_s += own_s
        for kernel in started:
            free_s = ends_s[-1] + at.gap_s.value if ends_s else 0.0
            begin_s = max(host_s + at.launch_s.value, free_s)
            ends_s.append(begin_s + kernel.device_s)
            expected.append((kernel.name, begin_s, ends_s[-1]))
    ran = found.timeline.of(DEVICE)
    assert [span.kind for span in ran] == [name for name, *_ in expected]
    for span, (_, *times) in zip(ran, expected, strict=True):
        assert [span.begin_s, span.end_s] == pytest.approx(times)
    end_s = max(host_s, ends_s[-1] if ends_s else 0.0) + at.synchronize_s.value
    assert found.step_s == found.timeline.end_s == pytest.approx(end_s)
    assert found.host_s == pytest.approx(sum(s for _, s, _ in of))
    assert found.timeline.busy_s(DEVICE) == pytest.approx(
        sum(k.device_s for *_, ks in of for k in ks)
    )


@given(calls, costs, MODES)
def test_each_occurrence_has_its_span_in_any_mode(
    of: Calls, at: LaunchCosts, mode: RunMode
) -> None:
    found = run_of(of, at, mode)
    spans, n = found.timeline.by_task, len(of)
    assert [spans[i].kind for i in range(n)] == [key for key, *_ in of]
    assert sorted(spans) == list(range(n + 1 + sum(len(started) for *_, started in of)))
    assert spans[n].kind == SYNCHRONIZE
    launching = [next(iter(span.work.after)) for span in found.timeline.of(DEVICE)]
    assert launching == [i for i, (*_, started) in enumerate(of) for _ in started]
    assert min(span.begin_s for span in spans.values()) == 0.0


@given(calls, costs)
def test_pipelined_steps_take_as_long_as_the_lane_that_limits(of: Calls, at: LaunchCosts) -> None:
    found = run_of(of, replace(at, queue_depth=1000), RunMode.PIPELINED)
    assert found.step_s <= max(found.host_s, found.device_s) * (1 + 1e-9) + 1e-12
    assert run_of(of, at, RunMode.PIPELINED).step_s >= found.step_s - 1e-12
    if not found.device_s:
        assert found.step_s == pytest.approx(found.host_s)


def test_pipelined_steps_overlap_with_the_next() -> None:
    of = [("a", 1e-3, [Kernel("p", 1e-5)]), ("b", 1e-5, [Kernel("q", 3e-3)])]
    at = LaunchCosts(Interval.exact(1e-6), launch_s=Interval.exact(1e-5))
    found = run_of(of, at, RunMode.PIPELINED)
    assert found.limited_by == DEVICE
    assert [found.step_s, found.device_s] == pytest.approx([3e-3 + 1e-5 + 2e-6] * 2)
    assert run_of(of, at).step_s == pytest.approx(1e-3 + 2e-5 + 1e-6 + 3e-3)
    bound = run_of([(key, 10 * s, ks) for key, s, ks in of], at, RunMode.PIPELINED)
    assert bound.limited_by == HOST
    assert [bound.step_s, bound.host_s] == pytest.approx([1e-2 + 1e-4] * 2)


def test_a_host_does_not_issue_more_than_the_queue_holds() -> None:
    of = [("a", 0.0, [Kernel("p", 1e-3)])] * 5 + [("b", 1e-4, [])]
    begins_s = [span.begin_s for span in run_of(of, LaunchCosts(queue_depth=2)).timeline.of(HOST)]
    assert begins_s == pytest.approx([0, 0, 1e-3, 2e-3, 3e-3, 3e-3, 5e-3])


def test_a_call_may_start_more_kernels_than_the_queue_holds() -> None:
    of = [("a", 0.0, [Kernel("p", 1e-3)]), ("b", 0.0, [Kernel("q", 1e-3)] * 5)]
    found = run_of(of, LaunchCosts(queue_depth=2)).timeline
    assert [span.begin_s for span in found.of(HOST)] == pytest.approx([0, 1e-3, 6e-3])
    assert found.end_s == pytest.approx(6e-3)


def test_a_graph_is_launched_once() -> None:
    of = [("a", 1.0, [Kernel("p", 1e-3), Kernel("q", 2e-3)]), ("b", 1.0, [Kernel("p", 1e-3)])]
    spent = (1e-5, 2e-5, 1e-6, 4e-5, 5e-6)
    found = run_of(of, LaunchCosts(*map(Interval.exact, spent)), RunMode.GRAPH)
    assert found.step_s == pytest.approx(4e-5 + 4e-3 + 2 * 1e-6 + 5e-6)
    assert found.limited_by == DEVICE and found.host_s == 0.0


@given(calls, costs)
def test_a_copy_to_the_host_is_waited_for(of: Calls, at: LaunchCosts) -> None:
    at = replace(at, queue_depth=1000)
    copying = [*of, ("a", 1.0, [Kernel(TO_HOST, 1e-6)])]
    spans = run_of([*copying, ("b", 1.0, [])], at).timeline.by_task
    copied = max(span.end_s for span in spans.values() if span.kind == TO_HOST)
    assert spans[len(of) + 1].begin_s == pytest.approx(copied)
    idle = run_of([("a", 0.5, [Kernel(TO_HOST, 0.1)]), ("b", 1.0, [])], at).timeline.by_task
    assert idle[1].begin_s == pytest.approx(0.5)


@given(calls)
def test_without_kernels_it_is_the_sum_of_the_host(of: Calls) -> None:
    of = [(key, own_s, []) for key, own_s, _ in of]
    latency_s = {key: own_s for key, own_s, _ in of}
    of = [(key, latency_s[key], []) for key, *_ in of]
    found = run_of(of)
    assert found.step_s == compose(occurrence_tasks(called(of), latency_s).tasks).end_s
    assert found.step_s == pytest.approx(sum(s for _, s, _ in of))
    assert found.limited_by == HOST if found.host_s else DEVICE


def on_device(key: str, host_s: float, *device_s: float) -> Measurement:
    """A measurement of 8 rounds, each a run that starts kernels on a device."""
    sample = Sample(host_s, tuple(Kernel(f"{key}{i}", s) for i, s in enumerate(device_s)))
    return replace(measurement(key, *[host_s] * 8), rounds=(Round.of([sample]),) * 8)


def estimated(known: Results) -> Estimate:
    return estimate_of(Basis(CHAIN, known))


def test_an_estimate_ends_with_the_later_of_host_and_device() -> None:
    probes = results({})
    quick = {"a": on_device("a", 1e-3, 1e-5), "b": on_device("b", 2e-3, 1e-5)}
    slow = {"a": on_device("a", 1e-3, 3e-3, 2e-3), "b": on_device("b", 2e-3, 1e-3)}
    host = {"a": measurement("a", *[1e-3] * 8), "b": measurement("b", *[2e-3] * 8)}
    assert estimated(probes | host).estimate_s == pytest.approx(4e-3)
    assert estimated(probes | quick).estimate_s == pytest.approx(4e-3 + 1e-5)
    bound = estimated(probes | slow)
    assert bound.estimate_s == pytest.approx(1e-3 + 2 * 5e-3 + 1e-3)
    assert bound.low_s < bound.estimate_s < bound.high_s


def test_a_timeline_has_the_device_as_a_lane() -> None:
    known = results({}) | {"a": on_device("a", 1e-3, 3e-3), "b": measurement("b", *[2e-3] * 8)}
    found = timeline(Basis(CHAIN, known))
    assert found.lanes == (HOST, DEVICE)
    assert found.run.end_s == pytest.approx(estimated(known).estimate_s)
    assert [entry.span.lane for entry in found.entries] == [HOST] * 3
    assert [span.kind for span in found.run.of(DEVICE)] == ["a0", "a0"]
