"""The recomposed timeline: the estimate's own latencies, in the plan's order, and nothing lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plans import CHAIN, DIAMOND, decomposed, plan, results

from bricks.compose.basis import IN_WALK_CALL_FACTOR, Basis
from bricks.compose.estimate import Estimate, IncompleteEstimate
from bricks.compose.recompose import recompose
from bricks.compose.schedule import Construction
from bricks.compose.timeline import (
    MissingLatency,
    ModelTimeline,
    OccurrenceRun,
    Subtraction,
    timeline,
)
from bricks.decompose.occurrence import Occurrence
from bricks.decompose.plan import Plan, streams_of
from bricks.predict.prediction import BrickPredictions, Prediction

TIMES = {"a": 1e-3, "b": 5e-3, "c": 2e-3, "d": 1e-3}


def complete(basis: Basis) -> tuple[Estimate, ModelTimeline]:
    estimate = recompose(basis)
    assert isinstance(estimate, Estimate)
    return estimate, timeline(basis)


def steps(found: ModelTimeline) -> list[OccurrenceRun]:
    return [entry for entry in found.entries if isinstance(entry, OccurrenceRun)]


def test_occurrences_follow_one_another_from_the_end_of_the_call() -> None:
    estimate, found = complete(Basis(CHAIN, results(TIMES, overhead_s=1e-4)))
    laid = steps(found)
    assert [step.position for step in laid] == [0, 1, 2]
    assert laid[0].span.begin_s == found.call_s == estimate.call_overhead_s
    assert [step.span.end_s for step in laid[:-1]] == [step.span.begin_s for step in laid[1:]]
    assert laid[-1].span.end_s == found.run.end_s
    took = [step.span.length_s for step in laid]
    assert took == pytest.approx([TIMES[key] - IN_WALK_CALL_FACTOR * 1e-4 for key in "aba"])


def test_the_timeline_is_as_long_as_the_estimate() -> None:
    """With the call; without it, the steps are as long as all shares together."""
    estimate, found = complete(Basis(CHAIN, results(TIMES, overhead_s=1e-4)))
    assert found.run.end_s == pytest.approx(estimate.estimate_s, rel=1e-12)
    shares_s = sum(share.latency_s for share in estimate.shares)
    took_s = sum(step.span.length_s for step in steps(found))
    assert took_s == pytest.approx(shares_s, rel=1e-12)
    assert (found.excess_s, found.missing, len(found.lanes)) == (0.0, {}, 1)


def test_a_step_has_the_interval_of_its_brick() -> None:
    _, found = complete(Basis(CHAIN, results(TIMES)))
    for step in steps(found):
        assert step.latency_s.low <= step.span.length_s <= step.latency_s.high * (1 + 1e-9)


def test_predicted_occurrences_are_marked() -> None:
    known = results({"a": 1e-3})
    predictions = BrickPredictions({"b": Prediction(5e-3, 0.1)})
    estimate, found = complete(Basis(CHAIN, known, predictions=predictions))
    assert [step.predicted for step in steps(found)] == [False, True, False]
    assert found.run.end_s == pytest.approx(estimate.estimate_s)
    assert steps(found)[1].latency_s.low < 5e-3 < steps(found)[1].latency_s.high


def test_what_has_no_measurement_has_a_place_and_a_reason_and_no_duration() -> None:
    basis = Basis(CHAIN, results({"a": 1e-3, "b": "it crashed the process"}))
    assert isinstance(recompose(basis), IncompleteEstimate)
    found = timeline(basis)
    first, hole, last = found.entries
    assert isinstance(hole, MissingLatency) and hole.reason == "it crashed the process"
    assert hole.span.begin_s == hole.span.end_s == first.span.end_s == last.span.begin_s
    assert found.missing == {"b": "it crashed the process"}


def test_without_probes_no_call_is_subtracted_and_they_are_gaps() -> None:
    known = {key: of for key, of in results(TIMES).items() if key in TIMES}
    found = timeline(Basis(CHAIN, known))
    assert found.call_s == 0
    assert found.run.end_s == pytest.approx(7e-3)
    assert set(found.missing.values()) == {"not measured on this target"}
    assert len(found.missing) == 2


def overlapping() -> Plan:
    """Two bricks that share the layer ``b``."""
    shared = Occurrence("b", (1,), (4,), repeats=0)
    return plan([("a", [0], [1]), shared, ("c", [1], [2])])


def test_of_overlapping_bricks_only_what_is_new_takes_time() -> None:
    basis = Basis(overlapping(), results({"a": 3e-3, "b": 1e-3, "c": 4e-3}))
    estimate, found = complete(basis)
    first, taken, second = found.entries
    assert isinstance(taken, Subtraction) and taken.latency_s.value == pytest.approx(1e-3)
    assert taken.span.begin_s == second.span.begin_s == first.span.end_s
    assert second.span.length_s == pytest.approx(3e-3)
    assert second.latency_s.value == pytest.approx(4e-3)
    assert found.run.end_s == pytest.approx(estimate.estimate_s)


def test_overlaps_that_cannot_be_subtracted_are_reported() -> None:
    """No step ends before it begins, so the timeline is longer than the estimate; it says so."""
    basis = Basis(overlapping(), results({"a": 3e-3, "b": 2e-3, "c": 1.5e-3}))
    estimate, found = complete(basis)
    assert found.excess_s == pytest.approx(0.5e-3)
    assert found.run.end_s - found.excess_s == pytest.approx(estimate.estimate_s)
    assert all(step.span.begin_s <= step.span.end_s for step in steps(found))


def parallel(of: Plan, workers: int, times: dict[str, float], **changes: int) -> Basis:
    bricks = decomposed(of, heavy="bc").bricks
    streams = tuple(i % workers for i in range(len(of.occurrences)))
    construction = Construction(workers, streams, bricks, **changes)
    return Basis(of, results(times), construction=construction)


def test_workers_have_a_lane_each() -> None:
    estimate, found = complete(parallel(DIAMOND, 2, TIMES))
    assert found.lanes == ("worker 1", "worker 2")
    assert [step.span.lane for step in steps(found)] == [*found.lanes, *found.lanes]
    assert found.run.end_s == pytest.approx(estimate.estimate_s, rel=1e-12)


def test_workers_that_share_processors_take_longer_than_their_bricks_do_alone() -> None:
    estimate, found = complete(parallel(DIAMOND, 2, TIMES, processors=2))
    first = steps(found)[0]
    assert first.span.length_s == pytest.approx(1.5 * first.latency_s.value)
    assert found.run.end_s == pytest.approx(estimate.estimate_s, rel=1e-12)


@st.composite
def graphs(draw: st.DrawFn) -> tuple[Plan, dict[str, float]]:
    """Plans of up to ten occurrences, each of which reads some results of those before it."""
    count = draw(st.integers(1, 10))
    places = []
    for i in range(count):
        reads = draw(st.lists(st.integers(0, i), min_size=1, max_size=3, unique=True))
        places.append((draw(st.sampled_from("abcd")), reads, [i + 1]))
    found = plan(places, outputs=[count])
    return found, {key: draw(st.floats(1e-6, 8e-3)) for key in found.keys}


@given(graphs(), st.integers(1, 4))
def test_laws_of_timelines(drawn: tuple[Plan, dict[str, float]], workers: int) -> None:
    of, times = drawn
    bricks = decomposed(of).bricks
    streams = streams_of(of, bricks, workers)
    construction = Construction(workers, streams, bricks) if workers > 1 else None
    estimate, found = complete(Basis(of, results(times), construction=construction))
    laid = steps(found)
    assert [step.position for step in laid] == list(range(len(of.occurrences)))
    assert found.run.end_s == pytest.approx(estimate.estimate_s, rel=1e-9)
    for i, needed in enumerate(of.producers()):
        assert all(laid[i].span.begin_s >= laid[p].span.end_s - 1e-12 for p in needed)
        after = [later for later in laid[i + 1 :] if later.span.lane == laid[i].span.lane]
        assert all(later.span.begin_s >= laid[i].span.end_s - 1e-12 for later in after)
