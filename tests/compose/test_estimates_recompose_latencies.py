from __future__ import annotations

import math
import random
from dataclasses import replace

import networkx as nx
import pytest
from plans import CHAIN, DIAMOND, estimate_of, measurement, plan, results

from bricks.compose.basis import Basis
from bricks.compose.estimate import Estimate, IncompleteEstimate
from bricks.compose.interval_width import Remedy, critical_path, wide_interval
from bricks.compose.recompose import recompose
from bricks.compose.recomposition_error import composition_s
from bricks.decompose.occurrence import Occurrence
from bricks.predict.prediction import BrickPredictions, Prediction


def estimate(*args: object, in_walk_call_factor: float = 1.0) -> Estimate:
    return estimate_of(Basis(*args, in_walk_call_factor=in_walk_call_factor))


def test_latencies_add_up_by_occurrence() -> None:
    found = estimate(CHAIN, results({"a": 2e-3, "b": 5e-3}))
    assert found.estimate_s == pytest.approx(9e-3)
    assert [(s.brick, s.occurrences) for s in found.shares] == [("b", 1), ("a", 2)]
    assert [s.share for s in found.shares] == pytest.approx([5 / 9, 4 / 9])


def test_the_overhead_of_a_call_counts_once_for_a_model() -> None:
    found = estimate(CHAIN, results({"a": 12e-6, "b": 15e-6}, overhead_s=2e-6))
    assert found.call_overhead_s == pytest.approx(2e-6)
    assert found.estimate_s == pytest.approx(2 * 10e-6 + 13e-6 + 2e-6)


def test_a_call_costs_more_in_a_walk_than_in_a_probe() -> None:
    found = estimate(
        CHAIN, results({"a": 12e-6, "b": 15e-6}, overhead_s=2e-6), in_walk_call_factor=1.5
    )
    assert found.call_overhead_s == pytest.approx(2e-6)
    assert found.estimate_s == pytest.approx(2 * 9e-6 + 12e-6 + 2e-6)


def test_a_brick_faster_than_the_overhead_counts_as_free_never_as_negative() -> None:
    found = estimate(CHAIN, results({"a": 1e-6, "b": 15e-6}, overhead_s=2e-6))
    assert found.estimate_s == pytest.approx(15e-6)


def test_the_critical_path_excludes_parallel_branches() -> None:
    found = estimate(DIAMOND, results({"a": 1e-3, "b": 5e-3, "c": 2e-3, "d": 1e-3}))
    assert found.estimate_s == pytest.approx(9e-3)
    assert found.critical_path_s == pytest.approx(7e-3)


def test_in_a_chain_the_critical_path_is_the_whole() -> None:
    found = estimate(CHAIN, results({"a": 2e-3, "b": 5e-3}, overhead_s=1e-6))
    assert found.critical_path_s == pytest.approx(found.estimate_s)


def test_the_interval_follows_from_the_samples() -> None:
    measured = results({"b": 5e-3})
    measured["a"] = measurement("a", *[1e-3, 2e-3, 2e-3, 2e-3, 2e-3, 2e-3, 2e-3, 4e-3])
    wide = estimate(CHAIN, measured)
    assert wide.estimate_s == pytest.approx(2 * 2e-3 + 5e-3)
    assert wide.low_s < wide.estimate_s - 2 * 1e-3
    assert wide.high_s > wide.estimate_s + 2 * 2e-3
    steady = estimate(CHAIN, results({"a": 2e-3, "b": 5e-3}))
    assert steady.high_s - steady.low_s < wide.high_s - wide.low_s


def test_the_interval_holds_what_recomposing_may_be_wrong_by() -> None:
    known = results({"a": 2e-3, "b": 5e-3}, overhead_s=1e-5)
    found = estimate(CHAIN, known)
    half = composition_s(9e-3 - 3e-5, 3, 1e-5)
    assert found.high_s - found.estimate_s == pytest.approx(half, rel=1e-3)
    assert found.estimate_s - found.low_s == pytest.approx(half, rel=1e-3)
    assert composition_s(1.0, 100, 1e-5) > composition_s(1.0, 10, 1e-5) > 0


def test_what_mostly_reads_weights_is_less_certain() -> None:
    known = results({"a": 2e-3, "b": 5e-3}, overhead_s=1e-5)
    found = estimate(replace(CHAIN, weight_bound=("b",)), known)
    half = composition_s(9e-3 - 3e-5, 3, 1e-5, 5e-3 - 1e-5)
    assert found.high_s - found.estimate_s == pytest.approx(half, rel=1e-3)
    assert half > composition_s(9e-3 - 3e-5, 3, 1e-5)


OVERLAPPING = plan(
    [
        Occurrence("ab", (0,), (1,)),
        Occurrence("b", (2,), (3,), repeats=0),
        Occurrence("bc", (2,), (4,)),
    ]
)


def test_what_bricks_share_is_taken_away_once() -> None:
    found = estimate(OVERLAPPING, results({"ab": 5e-3, "b": 2e-3, "bc": 6e-3}, overhead_s=1e-6))
    assert found.estimate_s == pytest.approx(9e-3)
    assert found.critical_path_s == pytest.approx(found.estimate_s)
    assert [(s.brick, s.occurrences) for s in found.shares] == [("bc", 1), ("ab", 1), ("b", -1)]
    assert sum(s.share for s in found.shares) == pytest.approx(1)


def test_what_is_taken_away_makes_the_interval_wider() -> None:
    known = results({"ab": 5e-3, "b": 2e-3, "bc": 6e-3})
    steady = estimate(OVERLAPPING, known)
    known["b"] = measurement("b", *[1e-3, 2e-3, 4e-3] * 3)
    wide = estimate(OVERLAPPING, known)
    assert wide.low_s < steady.low_s - 1e-3
    assert wide.high_s > steady.high_s + 0.5e-3


def test_a_lacking_brick_makes_the_estimate_incomplete_by_name() -> None:
    found = recompose(Basis(CHAIN, results({"a": 2e-3})))
    assert isinstance(found, IncompleteEstimate)
    assert [(g.brick, g.occurrences, g.reason) for g in found.gaps] == [
        ("b", 1, "not measured on this target")
    ]
    assert found.coverage == pytest.approx(2 / 3)
    assert found.measured_s == pytest.approx(4e-3)


def test_a_failed_brick_is_a_gap_with_its_reason() -> None:
    found = recompose(Basis(CHAIN, results({"a": 2e-3, "b": "it crashed the process (SIGSEGV)"})))
    assert isinstance(found, IncompleteEstimate)
    assert found.gaps[0].reason == "it crashed the process (SIGSEGV)"


def test_without_the_overhead_there_is_no_estimate() -> None:
    measured = results({"a": 2e-3, "b": 5e-3})
    del measured["p1-chain33"]
    found = recompose(Basis(CHAIN, measured))
    assert isinstance(found, IncompleteEstimate)
    assert [g.brick for g in found.gaps] == ["p1-chain33"]


@pytest.mark.parametrize("seed", range(20))
def test_the_critical_path_is_the_longest_way_through_the_plan(seed: int) -> None:
    draw = random.Random(seed)
    times = {f"b{i}": draw.choice([0.0, draw.random()]) for i in range(12)}
    reads = [draw.sample(range(i + 1), min(i + 1, draw.randint(1, 3))) for i in range(12)]
    of = plan([(f"b{i}", read, [i + 1]) for i, read in enumerate(reads)])
    ways: nx.DiGraph[int] = nx.DiGraph()
    # Value i is made by occurrence i - 1; the time of a brick lies on the way to what it makes.
    ways.add_weighted_edges_from(
        (value, i + 1, times[f"b{i}"]) for i, read in enumerate(reads) for value in read
    )
    longest = nx.dag_longest_path_length(ways, weight="weight")
    assert critical_path(of, times) == pytest.approx(longest)


def test_what_was_never_measured_counts_as_it_is_predicted() -> None:
    predictions = BrickPredictions(
        {"b": Prediction(5e-3, 0.1), "x": Prediction(1.0, 0.1)}, bias=0.05
    )
    found = recompose(
        Basis(CHAIN, results({"a": 2e-3}), predictions=predictions, in_walk_call_factor=1.0)
    )
    assert isinstance(found, Estimate)
    assert found.estimate_s == pytest.approx(9e-3)
    assert found.predicted_share == pytest.approx(5 / 9, rel=0.01)  # its mean counts
    assert found.measured_share == pytest.approx(4 / 9)
    assert found.coverage == pytest.approx(2 / 3)
    assert {s.brick: s.predicted for s in found.shares} == {"a": False, "b": True}
    assert found.high_s - found.estimate_s > 5e-3 * (math.expm1(1.96 * 0.1) + 1.96 * 0.05)


def test_a_measurement_or_a_failure_counts_more_than_a_prediction() -> None:
    predictions = BrickPredictions({"b": Prediction(1.0, 0.1)}, bias=0.1)
    measured = recompose(Basis(CHAIN, results({"a": 2e-3, "b": 5e-3}), predictions=predictions))
    assert isinstance(measured, Estimate)
    assert (measured.predicted_share, measured.coverage) == (0.0, 1.0)
    assert measured.estimate_s == pytest.approx(9e-3)
    failed = recompose(
        Basis(CHAIN, results({"a": 2e-3, "b": "it crashed"}), predictions=predictions)
    )
    assert isinstance(failed, IncompleteEstimate)
    assert [gap.reason for gap in failed.gaps] == ["it crashed"]


def test_what_no_runtime_can_measure_counts_as_it_is_predicted() -> None:
    failing = results({"a": 2e-3, "b": "other kernels"})
    predictions = BrickPredictions({"b": Prediction(5e-3, 0.4)}, unmeasurable=frozenset("b"))
    found = recompose(Basis(CHAIN, failing, predictions=predictions))
    assert isinstance(found, Estimate)
    assert found.predicted_share == pytest.approx(5 / 9)
    assert found.high_s > 4e-3 + 5e-3 * math.exp(1.9 * 0.4)
    wide = wide_interval(found)
    assert wide is not None and wide.remedy is Remedy.NOTHING
    alone = recompose(
        Basis(CHAIN, failing, predictions=BrickPredictions(unmeasurable=frozenset("b")))
    )
    assert isinstance(alone, IncompleteEstimate)
    assert [gap.reason for gap in alone.gaps] == ["other kernels"]


def test_what_samples_leave_open_of_many_bricks_adds_up_as_squares_do() -> None:
    keys = "abcdefghijklmnop"
    many = plan([(key, [i], [i + 1]) for i, key in enumerate(keys)])
    noisy = results({}) | {k: measurement(k, *([0.9e-3] * 5 + [1e-3] + [1.1e-3] * 5)) for k in keys}
    found = estimate(many, noisy)
    composed_s = composition_s(16e-3, 16, found.call_overhead_s)
    half_s = math.hypot(math.sqrt(16) * 0.1e-3, composed_s)
    assert (found.high_s - found.low_s) / 2 == pytest.approx(half_s, rel=0.01)


def test_few_rounds_are_as_uncertain_as_others_show() -> None:
    wild = measurement("b", *[1e-3 * (1 + 0.1 * (-1) ** i) for i in range(9)])
    single = results({"a": 2e-3}) | {"a": measurement("a", 2e-3), "b": wild}
    found = estimate(CHAIN, single)
    alone = estimate(plan([("a", [0], [1])]), results({}) | {"a": measurement("a", 2e-3)})
    assert found.high_s - found.low_s > 2 * (alone.high_s - alone.low_s)


@pytest.mark.parametrize("deviation", [0.1, 1.0, 3.0])
def test_an_interval_of_a_latency_is_positive_however_wide(deviation: float) -> None:
    predictions = BrickPredictions({"b": Prediction(5e-3, deviation)}, bias=deviation)
    found = recompose(Basis(CHAIN, results({"a": 2e-3}), predictions=predictions))
    assert isinstance(found, Estimate)
    assert 0 < found.low_s < found.estimate_s < found.high_s
