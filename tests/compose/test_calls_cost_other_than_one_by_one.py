"""The host's time for calls in a step follows from that of calls one by one, by phase."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bricks.compose.device.host_lane import PUBLISHED_HOSTS, HostCosts, PhaseCost, PhaseTimes
from bricks.graph.call import BACKWARD, FORWARD, INFERENCE, OPTIMIZER

COSTS = {"forward": PhaseCost(0.9, 2e-6), "backward": PhaseCost(1.1, -1e-6)}
PROGRAMS = [
    (10, 1e-4, 1.0), (200, 4e-3, 1.2), (900, 9e-3, 0.8), (50, 3e-3, 1.5), (400, 5e-3, 1.0),
    (120, 1e-3, 0.9),
]  # fmt: skip


def times(phase: str, calls: int, called_s: float, slowness: float) -> PhaseTimes:
    step_s = COSTS[phase].step_s(calls, called_s, slowness)
    return PhaseTimes(phase, calls, called_s, step_s, slowness)


def test_costs_are_learned_from_real_steps() -> None:
    found = HostCosts.learned([[times(phase, *of) for phase in COSTS] for of in PROGRAMS])
    assert found.error == pytest.approx(0.0, abs=1e-6)
    for phase, cost in COSTS.items():
        known = found.of(phase)
        assert known.share == pytest.approx(cost.share)
        assert known.call_s == pytest.approx(cost.call_s, abs=1e-12)


def test_an_unusual_program_is_part_of_the_error_and_hardly_of_the_costs() -> None:
    usual = [[times("forward", *of)] for of in PROGRAMS]
    slow = PhaseTimes("forward", 300, 4e-3, 2 * COSTS["forward"].step_s(300, 4e-3))
    found = HostCosts.learned([*usual, [slow]])
    assert found.of("forward").share == pytest.approx(0.9, rel=0.1)
    assert 0.3 < found.error <= 1.0


@given(st.lists(st.tuples(st.sampled_from([*COSTS, "other"]), st.floats(1e-6, 1e-3)), min_size=1))
def test_the_calls_of_a_phase_share_its_time(calls: list[tuple[str, float]]) -> None:
    phases, called_s = [phase for phase, _ in calls], [own_s for _, own_s in calls]
    found = HostCosts(COSTS).in_step(phases, called_s, 1.3)
    for phase in set(phases):
        own = [i for i, of in enumerate(phases) if of == phase]
        sum_s = sum(called_s[i] for i in own)
        step_s = COSTS.get(phase, PhaseCost()).step_s(len(own), sum_s, 1.3)
        assert sum(found[i] for i in own) == pytest.approx(step_s)
        assert all(found[i] == pytest.approx(step_s * called_s[i] / sum_s) for i in own)


def test_published_hosts_have_costs_of_all_phases_of_a_step() -> None:
    for phase in (INFERENCE, FORWARD, BACKWARD, OPTIMIZER):
        cost = PUBLISHED_HOSTS.of(phase)
        assert cost != PhaseCost()
        assert 0.5 < cost.step_s(100, 100 * 2e-5) / (100 * 2e-5) < 2.0
