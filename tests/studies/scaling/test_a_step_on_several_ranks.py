"""Laws of a step on several ranks, whatever the step and the network."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bricks.network.times import MEASURED, NetworkEstimate, StatedNetwork
from bricks.samples.measurement import Failure, Measurement, Round
from bricks.studies.scaling.options import StepOptions
from bricks.studies.scaling.scaling import DataParallelTraining, RankTimes, Scaling
from bricks.studies.scaling.simulation import (
    NETWORK,
    Await,
    Compute,
    HandOver,
    NetworkTransfer,
    simulate,
)
from bricks.studies.scaling.steps import PROGRAMS, SIZES, CopyTimes, by_size, ddp_times
from bricks.studies.scaling.strategies import (
    DistributedDataParallel,
    Horovod,
    ParameterServer,
    Strategy,
)
from bricks.studies.scaling.training_step import (
    Gradient,
    TrainingStep,
    Unevenness,
    assign,
    bucket_limits,
    unevenness,
)
from bricks.units.curve import Curve
from bricks.units.interval import Interval

ALL: list[Strategy] = [DistributedDataParallel(), Horovod(), ParameterServer()]


def linear(ns_per_byte: float) -> Curve:
    per_byte = [ratio * 1e-9 * ns_per_byte for ratio in (1, 0.8, 1.3)]
    return by_size((size, Interval(*(s * size for s in per_byte))) for size in SIZES)


RELATIVE = Interval(1.0, 0.9, 1.2)
COPIES = CopyTimes(linear(0.1), Interval(0.0, 0.0, 1e-3), linear(0.2))
BATCH = 8

# A point is simulated for both ends of each source of error.
few = settings(max_examples=10, deadline=None)

sizes = st.integers(4, 1 << 22)
gradients = st.lists(
    st.builds(Gradient, st.text(max_size=3), sizes, st.sampled_from(["float32", "bfloat16"])),
    min_size=1,
    max_size=12,
)


@st.composite
def steps(draw: st.DrawFn) -> TrainingStep:
    seconds = st.floats(1e-4, 0.5)
    found, backward_s = tuple(draw(gradients)), draw(seconds)
    places = st.lists(st.floats(0, 1), min_size=len(found), max_size=len(found))
    ready_s = tuple(backward_s * at for at in sorted(draw(places)))
    buffers = draw(st.sampled_from([{}, {"float32": 4096, "int64": 64}]))
    return TrainingStep(draw(seconds), backward_s, draw(seconds), found, ready_s, buffers, RELATIVE)


class SlowingNetwork(StatedNetwork):
    """Collectives take half as long again while ranks compute, and slow these down."""

    def time(
        self, operation: str, num_bytes: int, ranks: int, *, computing: bool
    ) -> NetworkEstimate:
        found = StatedNetwork.time(self, operation, num_bytes, ranks, computing=computing)
        s = found.interval.value * (1.5 if computing else 1.0)
        return NetworkEstimate(Interval(s, 0.8 * s, 1.5 * s), MEASURED)

    def slowdown(self, ranks: int) -> NetworkEstimate:
        return NetworkEstimate(Interval(1.4, 1.2, 1.7), MEASURED)


networks = st.builds(SlowingNetwork, st.floats(1e6, 1e11), st.floats(1e-7, 1e-2))
counts = st.integers(2, 64)


def scaling(
    step: TrainingStep,
    network: StatedNetwork,
    strategy: Strategy,
    price_per_hour: float | None = None,
    **how: Any,
) -> Scaling:
    training = DataParallelTraining(strategy, network, BATCH, StepOptions(**how), price_per_hour)
    return Scaling(training, {BATCH: step}, COPIES)


@pytest.mark.parametrize("strategy", ALL, ids=lambda each: each.name)
@few
@given(step=steps(), network=networks, ranks=counts, accumulate=st.integers(1, 3))
def test_communication_costs_between_nothing_and_all_of_it(
    strategy: Strategy, step: TrainingStep, network: StatedNetwork, ranks: int, accumulate: int
) -> None:
    of = scaling(step, network, strategy, accumulate=accumulate)
    alone, point = of.point(1), of.point(ranks)
    slack = 1e-9 + 1e-9 * point.step_s.value
    exposed = point.exposed_communication_s
    assert alone.step_s.value >= accumulate * (step.forward_s + step.backward_s) - slack
    assert point.step_s.value >= alone.step_s.value - slack
    assert exposed.value == pytest.approx(point.step_s.value - alone.step_s.value, abs=slack)
    cycle_s = strategy.cycle_s if isinstance(strategy, Horovod) else 0.0
    assert -slack <= exposed.value <= point.communication_s + cycle_s + slack
    assert point.speedup.value <= ranks + slack
    for figure in (point.step_s, point.speedup, point.samples_per_s, exposed):
        assert figure.low <= figure.value <= figure.high


@few
@given(step=steps(), network=networks, slower=st.floats(1.0, 2.0))
def test_ranks_of_one_host_take_what_they_take_at_once(
    step: TrainingStep, network: StatedNetwork, slower: float
) -> None:
    alone = scaling(step, network, DistributedDataParallel())
    together = replace(alone, at_once={2: RankTimes(step.times(slower), COPIES)})
    assert together.point(1) == alone.point(1)
    assert together.point(4) == alone.point(4)
    assert together.point(2).solo_s == pytest.approx(slower * step.seconds)
    assert together.point(2).step_s.value >= alone.point(2).step_s.value - 1e-9
    assert together.point(2).efficiency.value <= alone.point(2).efficiency.value + 1e-9
    assert together.computing_s(2) == pytest.approx(slower * alone.computing_s(2))


@few
@given(step=steps(), network=networks)
def test_one_rank_takes_what_the_step_takes(step: TrainingStep, network: StatedNetwork) -> None:
    for strategy in ALL:
        point = scaling(step, network, strategy).point(1)
        assert point.step_s.value == pytest.approx(step.seconds)
        assert point.step_s.low == pytest.approx(0.9 * step.seconds)
        assert point.step_s.high == pytest.approx(1.2 * step.seconds)
        assert (point.speedup.value, point.bytes_sent, point.communication_s) == (1, 0, 0)


@pytest.mark.parametrize("strategy", [ALL[0], ALL[2]], ids=lambda each: each.name)
@few
@given(step=steps(), network=networks, ranks=counts, faster=st.floats(1, 100))
def test_more_bandwidth_is_never_slower(
    strategy: Strategy, step: TrainingStep, network: StatedNetwork, ranks: int, faster: float
) -> None:
    slow = scaling(step, network, strategy).point(ranks).step_s.value
    better = replace(network, bandwidth=faster * network.bandwidth)
    assert scaling(step, better, strategy).point(ranks).step_s.value <= slow * (1 + 1e-9)


@few
@given(step=steps(), network=networks, ranks=counts)
def test_a_ring_sends_nearly_twice_the_gradients(
    step: TrainingStep, network: StatedNetwork, ranks: int
) -> None:
    without = replace(step, buffers_bytes={})
    for strategy in ALL[:2]:
        sent = scaling(without, network, strategy).point(ranks).bytes_sent
        assert sent == pytest.approx(2 * (ranks - 1) / ranks * step.gradient_bytes)


@settings(deadline=None)
@given(found=gradients, cap=st.one_of(st.none(), sizes))
def test_buckets_hold_each_gradient_once_and_one_type(
    found: list[Gradient], cap: int | None
) -> None:
    buckets = assign(found, bucket_limits(cap))
    assert sorted(i for each in buckets for i in each.members) == list(range(len(found)))
    for each in buckets:
        assert {found[i].dtype for i in each.members} == {each.dtype}
        assert each.size_bytes == sum(found[i].size_bytes for i in each.members)


def a_step(**changes: object) -> TrainingStep:
    found = tuple(Gradient(f"p{i}", 1 << 21, "float32") for i in range(4))
    step = TrainingStep(0.1, 0.2, 0.05, found, (0.05, 0.1, 0.15, 0.2), {})
    return replace(step, **changes)


def test_all_but_the_last_bucket_hides_behind_the_backward_pass() -> None:
    """Four buckets that each take 20 ms of network, while the pass takes 50 ms for each."""
    network = StatedNetwork(bandwidth=(1 << 21) / 0.02, latency_s=1e-9)
    point = scaling(a_step(), network, DistributedDataParallel(cap_bytes=1)).point(2)
    # Copying back what has arrived hides behind the last transfer.
    copied_s = (4 + 1) * COPIES.copies_s.at(1 << 21).value
    assert [span.kind for span in point.simulated.of(NETWORK)] == [
        f"all-reduce of bucket {number}" for number in (1, 2, 3, 4)
    ]
    assert point.exposed_communication_s.value == pytest.approx(0.02 + copied_s, rel=1e-3)


def test_horovod_waits_for_its_cycle_and_joins_what_is_ready() -> None:
    network = StatedNetwork(bandwidth=1e12, latency_s=1e-9)
    strategy = Horovod(cycle_s=0.08)
    point = scaling(a_step(), network, strategy).point(2)
    moved = point.simulated.of(NETWORK)
    begins = [span.begin_s for span in moved]
    assert begins == [pytest.approx(at) for at in (0.16, 0.24, 0.32)]
    assert [len(span.members) for span in moved] == [1, 1, 2]


def test_a_server_is_outgrown_where_a_ring_is_not() -> None:
    network = StatedNetwork(bandwidth=1e9, latency_s=1e-6)
    ring, server = (scaling(a_step(), network, ALL[i]).point(32) for i in (0, 2))
    # Each way, the gradients of 32 ranks pass through the server's link.
    assert server.step_s.value > 2 * 32 * a_step().gradient_bytes / 1e9
    assert ring.efficiency.value > 0.9 > 0.5 > server.efficiency.value


def test_a_straggler_is_waited_for() -> None:
    network = StatedNetwork(bandwidth=1e12, latency_s=1e-9)
    point = scaling(a_step(), network, ALL[0], straggler=1.5).point(4)
    assert point.step_s.value == pytest.approx(1.5 * a_step().seconds, rel=0.02)
    slow, others = map(point.spans_of, (0, 1))
    assert "waiting" not in {span.kind for span in slow if span.length_s > 1e-3}
    assert "waiting" in {span.kind for span in others if span.length_s > 1e-3}


def test_ranks_wait_for_the_slowest_of_them() -> None:
    network = StatedNetwork(bandwidth=1e12, latency_s=1e-9)
    uneven = replace(a_step(), unevenness=Unevenness(1e-3, 8e-3))
    for ranks, deviations in ((2, 0.5642), (4, 1.0294), (16, 1.7660)):  # of order statistics
        even, waiting = (
            scaling(step, network, ALL[0]).point(ranks).step_s for step in (a_step(), uneven)
        )
        assert waiting.value - even.value == pytest.approx(deviations * 1e-3, rel=0.05)
        assert waiting.high - even.value > 6 * (waiting.value - even.value)
        assert waiting.low == pytest.approx(even.low + waiting.value - even.value)
    alone = scaling(uneven, network, ALL[0]).point(1).step_s
    assert alone.value == pytest.approx(a_step().seconds)
    slow = [scaling(s, network, ALL[0], straggler=1.5).point(4) for s in (a_step(), uneven)]
    assert slow[0].step_s == slow[1].step_s


def test_a_step_is_as_uneven_as_its_bricks() -> None:
    """Two occurrences of one brick that varies by 3 µs, and one of another that varies by 4 µs."""

    def varying(key: str, by_s: float) -> Measurement:
        half_s = by_s / math.sqrt(2)
        rounds = tuple(Round((drift - half_s, drift + half_s)) for drift in (1e-3, 2e-3))
        return Measurement(key, rounds, 1.0)

    results = {"a": varying("a", 3e-6), "b": varying("b", 4e-6), "c": Failure("c", "why")}
    found = unevenness({"a": 2, "b": 1, "c": 5, "unknown": 1}, results)
    assert found.independent_s == pytest.approx(math.sqrt(2 * 9 + 16) * 1e-6)
    assert found.correlated_s == pytest.approx(10e-6)


def test_accumulating_spares_communication() -> None:
    network = StatedNetwork(bandwidth=1e8, latency_s=1e-6)
    once, often = (scaling(a_step(), network, ALL[0], accumulate=k).point(8) for k in (1, 8))
    assert often.exposed_communication_s.value == pytest.approx(once.exposed_communication_s.value)
    assert often.efficiency.value > once.efficiency.value
    assert often.bytes_sent == once.bytes_sent


def test_further_ranks_pay_until_each_adds_too_little() -> None:
    cheap = scaling(a_step(), StatedNetwork(1e12, 1e-9), ALL[0])
    dear = scaling(a_step(), StatedNetwork(1e9, 1e-6), ALL[2])
    assert cheap.last_that_pays(range(1, 33)) is None
    slow = scaling(a_step(), StatedNetwork(1e12, 1e-9), ALL[0], straggler=1.9)
    assert slow.last_that_pays(range(1, 33)) is None
    last = dear.last_that_pays(range(1, 33))
    assert last is not None
    assert 1 < last < 32


def test_an_epoch_costs_more_the_less_efficient_ranks_are() -> None:
    network = StatedNetwork(bandwidth=1e8, latency_s=1e-6)
    of = scaling(a_step(), network, ALL[0], samples_per_epoch=3600 * 80, price_per_hour=2.0)
    one, many = of.point(1), of.point(8)
    assert one.cost_per_epoch is not None and many.cost_per_epoch is not None
    assert one.cost_per_epoch.value == pytest.approx(2.0 * 80 * 0.35 / BATCH)
    ratio = many.cost_per_epoch.value / one.cost_per_epoch.value
    assert ratio == pytest.approx(1 / many.efficiency.value)


@pytest.mark.parametrize("slow", [0, 1])
def test_a_message_is_moved_once_every_rank_has_it(slow: int) -> None:
    transfer = NetworkTransfer("all-reduce", 1, alone_s=1.0, computing_s=1.0)
    ranks = [(Compute("backward", s), HandOver(0), Await(0)) for s in (1.0, 1.0)]
    ranks[slow] = (Compute("backward", 3.0), *ranks[slow][1:])
    step = simulate(ranks, [transfer], 1.0)
    assert [(span.begin_s, span.end_s) for span in step.of(NETWORK)] == [(3.0, 4.0)]


def test_work_and_a_transfer_slow_each_other_down() -> None:
    """One second of work during a transfer of one second, computed by hand."""
    transfer = NetworkTransfer("all-reduce", 1, alone_s=1.0, computing_s=2.0)
    ranks = [(HandOver(0), Compute("backward", 1.0), Await(0))]
    # Work takes 1.5 s, in which the transfer does three quarters; the rest goes at full speed.
    assert simulate(ranks, [transfer], 1.5).end_s == pytest.approx(1.5 + 0.25)


def test_copies_grow_with_their_size() -> None:
    of = by_size([(100, Interval.exact(1.0)), (200, Interval.exact(3.0))])
    assert [of.at(size).value for size in (1, 100, 150, 200, 400)] == [1.0, 1.0, 2.0, 3.0, 6.0]
    assert math.isfinite(of.at(1 << 40).value)


def test_the_cost_of_ddp_follows_from_steps_with_and_without_it() -> None:
    """300 µs once, 20 µs for each gradient, and 1 ns for each of its bytes."""
    added = [3e-4 + count * (2e-5 + 1e-9 * size) for count, size in PROGRAMS]
    once, gradients = ddp_times([Interval.exact(s) for s in added])
    assert once.value == pytest.approx(3e-4)
    for size in (1 << 8, 1 << 16, 1 << 18, 1 << 22):
        assert gradients.at(size).value == pytest.approx(2e-5 + 1e-9 * size)


@few
@given(step=steps(), network=networks)
def test_a_rank_with_half_a_core_takes_twice_as_long(
    step: TrainingStep, network: StatedNetwork
) -> None:
    halved = replace(network, cores_per_rank=0.5)
    whole, half = (scaling(step, each, ALL[0]).point(1) for each in (network, halved))
    assert half.step_s.value == pytest.approx(2 * whole.step_s.value)
