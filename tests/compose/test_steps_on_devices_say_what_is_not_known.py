"""What launching costs, and calls that nobody measured, are in the interval of a step."""

from __future__ import annotations

from dataclasses import replace

import pytest
from plans import CHAIN, estimate_of

from bricks.compose.basis import Basis, DeviceBasis, PredictedKernels, launch_costs
from bricks.compose.device.launching import LaunchCosts
from bricks.compose.estimate import LAUNCHING_ASSUMED, LAUNCHING_MEASURED, Estimate
from bricks.report.tables import assumed_launching
from bricks.samples.call_overhead import DEVICE_PROBES
from bricks.samples.measurement import Measurement, Round
from bricks.system.cards import card_named
from bricks.units.interval import Interval
from bricks.units.sample import COPY_TO_HOST, Kernel, Sample

PROBES = {key: Measurement(key, (Round((1e-6,)),) * 8, 0.0) for key in DEVICE_PROBES.values()}
EXACT = LaunchCosts()
VAGUE = replace(EXACT, gap_s=Interval(2e-6, 0.0, 4e-6), graph_gap_s=Interval(2e-6, 0.0, 4e-6))


def called(key: str, host_s: float, *device_s: float, name: str = "k") -> Measurement:
    sample = Sample(host_s, tuple(Kernel(name, own_s) for own_s in device_s))
    return Measurement(key, (Round.of([sample]),) * 8, 0.0)


BUSY = {"a": called("a", 1e-6, 1e-5, 1e-5), "b": called("b", 1e-6, 1e-5)}
HOST_BOUND = {"a": called("a", 1e-4, 1e-6), "b": called("b", 2e-4, 1e-6)}


def estimated(
    known: dict[str, Measurement],
    costs: LaunchCosts = EXACT,
    predicted: dict[str, PredictedKernels] | None = None,
) -> Estimate:
    card = card_named("h100").accelerator
    return estimate_of(Basis(CHAIN, known, device=DeviceBasis(card, costs, {}, predicted or {})))


def predicted(host_s: Interval, *, carried: bool = False) -> dict[str, PredictedKernels]:
    kernels = called("b", host_s.value, 1e-6)
    return {"b": PredictedKernels("mm", kernels, Interval.exact(1e-6), host_s, carried)}


def test_vague_costs_of_launching_widen_a_step_and_are_a_source() -> None:
    exact, vague = estimated(BUSY), estimated(BUSY, VAGUE)
    assert vague.latency_s.half_width > exact.latency_s.half_width
    assert exact.uncertainty.launching_s == 0
    assert vague.uncertainty.launching_s > 0
    assert vague.uncertainty.half_width_s == pytest.approx(vague.latency_s.half_width)


def test_vague_gaps_widen_a_graph_by_one_for_each_kernel() -> None:
    exact, vague = estimated(BUSY).device, estimated(BUSY, VAGUE).device
    assert exact is not None and vague is not None
    assert exact.graph_s is not None and vague.graph_s is not None
    gaps_s = vague.graph_s.value - exact.graph_s.value
    assert gaps_s == pytest.approx(4 * 2e-6)
    assert vague.graph_s.half_width > gaps_s


def test_costs_that_were_not_measured_are_assumed_and_said_so() -> None:
    measured, assumed = launch_costs(PROBES), launch_costs({})
    lacking = launch_costs({k: of for k, of in PROBES.items() if k != DEVICE_PROBES["launch"]})
    assert not measured.assumed and assumed.assumed and lacking.assumed
    assert assumed.launch_s.low < assumed.launch_s.value < assumed.launch_s.high
    for costs, origin in ((measured, LAUNCHING_MEASURED), (assumed, LAUNCHING_ASSUMED)):
        device = estimated(BUSY, costs).device
        assert device is not None and device.launching == origin
        assert len(assumed_launching("net", device)) == costs.assumed


def test_calls_that_nobody_measured_are_less_certain_on_the_host() -> None:
    vague = Interval(2e-4, 1e-5, 6e-4)
    measured = estimated(HOST_BOUND)
    known = {"a": HOST_BOUND["a"]}
    sure = estimated(known, predicted=predicted(Interval.exact(2e-4)))
    unsure = estimated(known, predicted=predicted(vague))
    assert sure.estimate_s == pytest.approx(measured.estimate_s)
    assert sure.latency_s.half_width == pytest.approx(measured.latency_s.half_width, rel=0.01)
    assert unsure.latency_s.half_width > 1.5 * sure.latency_s.half_width
    assert unsure.uncertainty.predicted_s > unsure.uncertainty.calls_s
    assert sure.uncertainty.predicted_s == 0


def test_calls_that_another_host_issued_are_less_certain() -> None:
    known, exact = {"a": HOST_BOUND["a"]}, Interval.exact(2e-4)
    own, other = (
        estimated(known, predicted=predicted(exact, carried=carried)) for carried in (False, True)
    )
    assert other.latency_s.half_width > 1.2 * own.latency_s.half_width


def test_a_step_that_copies_to_the_host_is_no_graph() -> None:
    copying = HOST_BOUND | {"b": called("b", 1e-4, 1e-6, name=f"{COPY_TO_HOST} (Device)")}
    device, other = estimated(copying).device, estimated(HOST_BOUND).device
    assert device is not None and device.graph_s is None
    assert other is not None and other.graph_s is not None
