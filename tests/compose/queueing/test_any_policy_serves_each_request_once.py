"""Laws of the simulated server, whichever policy its instances have."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from bricks.compose.queueing.batching import BatchPolicy, ContinuousPolicy, TextLengths
from bricks.compose.queueing.simulation import InstancePolicy, simulate

arrivals = st.lists(st.floats(0, 20), min_size=1, max_size=30).map(sorted)


def batches(most: int, instances: int) -> Sequence[InstancePolicy]:
    return [BatchPolicy(most, 0.3, lambda size, n, *_: 0.4 + 0.1 * size) for _ in range(instances)]


def texts(most: int, instances: int) -> Sequence[InstancePolicy]:
    return [
        ContinuousPolicy(TextLengths(4, 3), most, lambda n: 0.5, lambda size, past, n: 0.2)
        for _ in range(instances)
    ]


policies = st.sampled_from([batches, texts])


@settings(deadline=None)
@given(arrivals, st.integers(1, 5), st.integers(1, 3), policies)
def test_each_request_is_answered_after_it_came_and_no_instance_does_two_things(
    times_s: list[float],
    most: int,
    instances: int,
    policy: Callable[[int, int], Sequence[InstancePolicy]],
) -> None:
    found = simulate(times_s, policy(most, instances))
    assert (found.samples, found.dropped) == (len(times_s), 0)
    assert found.arrived_s.tolist() == times_s
    assert (found.first_latencies_s >= 0.5 - 1e-9).all()
    assert (found.done_s >= found.first_s).all()
    assert found.busy_s <= instances * found.span_s + 1e-9
    assert found.batches.max(initial=0) <= most


@settings(deadline=None)
@given(arrivals, st.integers(1, 3), policies)
def test_an_answer_on_the_way_keeps_no_instance_busy(
    times_s: list[float],
    most: int,
    policy: Callable[[int, int], Sequence[InstancePolicy]],
) -> None:
    here = simulate(times_s, policy(most, 1))
    away = simulate(times_s, policy(most, 1), transport_s=lambda count: np.full(count, 2.0))
    assert np.allclose(away.latencies_s, here.latencies_s + 2.0)
    assert (away.occupied_s == here.occupied_s).all() and away.span_s == here.span_s
