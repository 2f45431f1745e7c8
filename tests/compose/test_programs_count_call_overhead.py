from __future__ import annotations

from dataclasses import replace

import pytest
from plans import measurement, plan, results

from bricks.compose.basis import Basis, Results
from bricks.compose.estimate import Estimate, IncompleteEstimate
from bricks.compose.recompose import recompose
from bricks.decompose.allocated import Allocated
from bricks.decompose.memory import Phase
from bricks.decompose.plan import Plan
from bricks.graph.call import EVICTION, PER_CALL, PER_PHASE
from bricks.samples.call_overhead import PHASE_PROBES, call_counts, probes_of


def step(kind: str = "training step") -> Plan:
    phases = (Phase("forward", 2, 2), Phase("backward", 1, 1), Phase("optimizer", 1, 4, 2.5))
    if kind == "inference":
        phases = (Phase("forward", 4, 4),)
    made = plan([("a", [0], [1]), ("b", [1], [2]), ("a", [2], [3]), ("c", [3], [4])])
    return replace(made, memory=Allocated(kind, phases, (None,) * 5, (-1,) * 5, (), {}))


def probed(overhead_s: dict[str, float], part: str = PER_CALL) -> Results:
    found = dict(results({"a": 1e-3, "b": 2e-3, "c": 4e-3}))
    for phase, cost_s in overhead_s.items():
        for each, (real, without) in PHASE_PROBES[phase].items():
            found[real] = measurement(real, *[5e-6 + (cost_s if each == part else 0.0)] * 8)
            found[without] = measurement(without, *[5e-6] * 8)
    return found


AROUND = {"forward": 1e-4, "backward": -1e-6, "optimizer": 2e-4}


def test_each_phase_adds_what_is_around_its_calls() -> None:
    estimate = recompose(Basis(step(), probed(AROUND)))
    assert isinstance(estimate, Estimate)
    forward, backward, optimizer = estimate.phases
    assert forward.estimate_s == pytest.approx(3e-3 + 2e-4)
    assert backward.estimate_s == pytest.approx(1e-3 - 1e-6)
    assert optimizer.estimate_s == pytest.approx(4e-3 + 8e-4)  # four calls in one brick
    assert estimate.estimate_s == pytest.approx(sum(p.estimate_s for p in estimate.phases))
    assert [phase.calls for phase in estimate.phases] == [2, 1, 4]


def test_what_is_done_once_in_a_phase_counts_once() -> None:
    estimate = recompose(Basis(step(), probed(AROUND, PER_PHASE)))
    assert isinstance(estimate, Estimate)
    assert [p.overhead_s for p in estimate.phases] == pytest.approx([1e-4, -1e-6, 2e-4])


def test_code_takes_longer_where_calls_displaced_it() -> None:
    estimate = recompose(Basis(step(), probed(AROUND, EVICTION)))
    assert isinstance(estimate, Estimate)
    assert [p.overhead_s for p in estimate.phases] == pytest.approx([0.0, 0.0, 2.5 * 2e-4])


def test_the_interval_moves_with_it_and_knows_that_programs_differ() -> None:
    exact = recompose(Basis(step(), probed(dict.fromkeys(AROUND, 0.0))))
    estimate = recompose(Basis(step(), probed(AROUND)))
    assert isinstance(exact, Estimate)
    assert isinstance(estimate, Estimate)
    assert estimate.low_s < estimate.estimate_s < estimate.high_s
    more_s = estimate.uncertainty.calls_s - exact.uncertainty.calls_s
    assert more_s == pytest.approx(0.5 * (2e-4 + 1e-6 + 8e-4), rel=0.01)


def test_inference_has_a_cost_of_its_own() -> None:
    (around,) = call_counts(step("inference")).values()
    assert around.calls == 4
    estimate = recompose(Basis(step("inference"), probed({"inference": 1e-5})))
    assert isinstance(estimate, Estimate)
    (phase,) = estimate.phases
    assert phase.phase == "forward"
    assert phase.overhead_s == pytest.approx(4e-5)


def test_without_the_probes_there_is_no_estimate() -> None:
    found = recompose(Basis(step(), probed({"forward": 1e-4})))
    assert isinstance(found, IncompleteEstimate)
    missing = {gap.brick for gap in found.gaps}
    lacking = (PHASE_PROBES[phase].values() for phase in ("backward", "optimizer"))
    assert missing == {key for pairs in lacking for pair in pairs for key in pair}


def test_a_plan_that_does_not_tell_what_is_displaced_has_a_gap() -> None:
    complete = step()
    data = complete.to_json()
    data["program"]["phases"] = [phase[:3] for phase in data["program"]["phases"]]
    old = Plan.from_json(data)
    found = recompose(Basis(old, probed(AROUND)))
    assert isinstance(found, IncompleteEstimate)
    (gap,) = found.gaps
    assert "of an earlier version" in gap.reason


def test_other_models_need_no_such_probes() -> None:
    other = plan([("a", [0], [1])])
    assert call_counts(other) == {}
    assert len(probes_of(other)) == 2
    estimate = recompose(Basis(other, results({"a": 1e-3})))
    assert isinstance(estimate, Estimate)
    assert estimate.phases == ()
