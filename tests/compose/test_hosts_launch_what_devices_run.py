"""A run on host and device ends with the later of both, and is the host's sum without kernels."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plans import CHAIN, estimate_of, measurement, plan, results

from bricks.compose.basis import Basis
from bricks.compose.composer import compose
from bricks.compose.estimate import Estimate
from bricks.compose.occurrences import DEVICE, HOST, launching_tasks, occurrence_tasks
from bricks.compose.parts import Results
from bricks.compose.timeline import timeline
from bricks.samples.measurement import Measurement, Round
from bricks.units.sample import Kernel, Sample

seconds = st.one_of(st.just(0.0), st.floats(1e-6, 1e-2))
kernels = st.lists(st.builds(Kernel, st.sampled_from("pqr"), seconds), max_size=3)
CALLED = ("a", "b", "c")


@given(
    st.lists(st.sampled_from(CALLED), min_size=1, max_size=8),
    st.fixed_dictionaries(dict.fromkeys(CALLED, seconds)),
    st.fixed_dictionaries(dict.fromkeys(CALLED, kernels)),
)
def test_a_kernel_begins_when_launched_and_the_one_before_has_ended(
    keys: list[str], host_s: dict[str, float], of: dict[str, list[Kernel]]
) -> None:
    called = plan([(key, [i], [i + 1]) for i, key in enumerate(keys)])
    run = compose(launching_tasks(called, host_s, of).tasks)
    at_s = device_s = 0.0
    expected = []
    for key in keys:
        at_s += host_s[key]
        for kernel in of[key]:
            begin_s = max(at_s, device_s)
            device_s = begin_s + kernel.device_s
            expected.append((kernel.name, begin_s, device_s))
    kernels_run = [(span.kind, span.begin_s, span.end_s) for span in run.of(DEVICE)]
    assert [name for name, *_ in kernels_run] == [name for name, *_ in expected]
    for (_, *times), (_, *known) in zip(kernels_run, expected, strict=True):
        assert times == pytest.approx(known)
    assert run.end_s == pytest.approx(max(at_s, device_s))
    assert run.busy_s(HOST) == pytest.approx(sum(host_s[key] for key in keys))
    assert run.busy_s(DEVICE) == pytest.approx(sum(k.device_s for key in keys for k in of[key]))


@given(
    st.lists(st.sampled_from(CALLED), min_size=1, max_size=8),
    st.fixed_dictionaries(dict.fromkeys(CALLED, seconds)),
)
def test_without_kernels_it_is_the_sum_of_the_host(
    keys: list[str], host_s: dict[str, float]
) -> None:
    called = plan([(key, [i], [i + 1]) for i, key in enumerate(keys)])
    run = compose(launching_tasks(called, host_s, {}).tasks)
    assert run.end_s == compose(occurrence_tasks(called, host_s).tasks).end_s
    assert run.end_s == pytest.approx(sum(host_s[key] for key in keys))


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
