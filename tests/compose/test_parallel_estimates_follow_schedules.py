from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plans import CHAIN, DIAMOND, estimate_of, plan, results
from refusals import refused

from bricks import UsageError
from bricks.compose.basis import Basis
from bricks.compose.estimate import Estimate
from bricks.compose.interval_width import critical_path
from bricks.compose.lanes import LaneSpan, Timeline
from bricks.compose.recomposition_error import composition_s
from bricks.compose.schedule import (
    TICK_S,
    Construction,
    Place,
    Rule,
    anything,
    not_two_of,
    schedule,
)
from bricks.decompose.plan import Brick, Plan, streams_of, whole_key

LATENCIES = {"a": 1.0, "b": 5.0, "c": 2.0, "d": 1.0}

# Much more than handing over to another worker costs.
UNIT = 10**9


def brick(key: str, work: float = 1.0) -> Brick:
    """A brick of one operator, called as its key in capitals."""
    return Brick(key, b"", {}, {}, {}, (key.upper(),), flops=int(work * 20 * UNIT))


def bricks_of(of: Plan, work: Mapping[str, float] | None = None) -> dict[str, Brick]:
    return {key: brick(key, (work or {}).get(key, 1.0)) for key in of.keys}


def construction(
    of: Plan,
    workers: int,
    work: Mapping[str, float],
    rule: Rule = anything,
    streams: Sequence[int] | None = None,
    **changes: int | None,
) -> Construction:
    bricks = bricks_of(of, work)
    along = streams_of(of, bricks, workers) if streams is None else tuple(streams)
    return Construction(workers, along, bricks, rule, **changes)


def spans(run: Timeline) -> list[LaneSpan]:
    """The span of each occurrence."""
    return [run.by_task[i] for i in range(len(run.spans))]


def begins(run: Timeline) -> list[float]:
    return [span.begin_s for span in spans(run)]


def test_branches_of_a_diamond_overlap() -> None:
    found = construction(DIAMOND, 2, LATENCIES)
    assert found.streams == (0, 0, 1, 0)
    run = schedule(DIAMOND, found, LATENCIES)
    assert begins(run) == [0, 1, 1, 6]
    assert run.end_s == 7


def test_a_chain_gains_nothing() -> None:
    found = construction(CHAIN, 4, LATENCIES)
    assert found.streams == (0, 0, 0)
    assert schedule(CHAIN, found, LATENCIES).end_s == 7


def test_three_branches_share_two_workers() -> None:
    """Of 4, 3 and 3 seconds after 1: one worker has the first, the other both of the others."""
    three = plan(
        [("a", [0], [1]), ("b", [1], [2]), ("c", [1], [3]), ("c", [1], [4]), ("d", [2, 3, 4], [5])]
    )
    times = {"a": 1.0, "b": 4.0, "c": 3.0, "d": 1.0}
    found = construction(three, 2, times)
    assert found.streams == (0, 0, 1, 1, 1)
    assert begins(schedule(three, found, times)) == [0, 1, 1, 4, 7]


def test_a_stream_runs_in_order_even_if_what_comes_later_could_begin() -> None:
    """As the runtime does: the third waits for the second, and that for the first."""
    waiting = plan([("a", [0], [1]), ("b", [1], [2]), ("c", [0], [3])], outputs=[2, 3])
    found = construction(waiting, 2, LATENCIES, streams=(0, 1, 1))
    assert begins(schedule(waiting, found, {"a": 3.0, "b": 2.0, "c": 1.0})) == [0, 3, 5]


def test_what_is_not_worth_handing_over_stays_where_it_is() -> None:
    small = {"a": 1.0, "b": 1e-6, "c": 1e-6, "d": 1.0}
    assert construction(DIAMOND, 2, small).streams == (0, 0, 0, 0)


def test_two_of_an_operator_do_not_overlap() -> None:
    rule = not_two_of("B", "C")
    found = construction(DIAMOND, 2, LATENCIES, rule)
    assert begins(schedule(DIAMOND, found, LATENCIES)) == [0, 1, 6, 8]
    apart = construction(DIAMOND, 2, LATENCIES, not_two_of("A", "B"))
    assert begins(schedule(DIAMOND, apart, LATENCIES)) == [0, 1, 1, 6]


def test_a_rule_that_answers_nothing_is_refused() -> None:
    def forgetful(first: Place, second: Place) -> bool:
        return None  # type: ignore[return-value]  # people forget to return

    found = construction(DIAMOND, 2, LATENCIES, forgetful)
    with refused(UsageError, "forgetful", None, 2, 1):
        schedule(DIAMOND, found, LATENCIES)


def test_a_rule_that_fails_is_named() -> None:
    def broken(first: Place, second: Place) -> bool:
        return first.brick.flops > second.brick.nonsense  # type: ignore[attr-defined]  # or mistype

    found = construction(DIAMOND, 2, LATENCIES, broken)
    with refused(UsageError, "broken", 2, 1, "AttributeError", "nonsense"):
        schedule(DIAMOND, found, LATENCIES)


def test_threads_get_a_share_of_too_few_processors() -> None:
    """Two workers, and the caller that spins: three on two processors."""
    crowded = construction(DIAMOND, 2, LATENCIES, processors=2)
    assert crowded.processor_share == pytest.approx(2 / 3)
    run = schedule(DIAMOND, crowded, LATENCIES)
    assert run.end_s == pytest.approx(7 * 3 / 2)
    assert run.by_task[2].begin_s == pytest.approx(run.by_task[0].end_s + TICK_S)
    roomy = construction(DIAMOND, 2, LATENCIES, processors=3)
    assert schedule(DIAMOND, roomy, LATENCIES).end_s == 7


def test_a_worker_without_a_processor_takes_over_late() -> None:
    """In milliseconds: the second branch begins a tick late, and so does what joins them."""
    times = {"a": 1e-3, "b": 2e-3, "c": 2e-3, "d": 1e-3}
    crowded = construction(DIAMOND, 2, LATENCIES, processors=2)
    found = schedule(DIAMOND, crowded, times)
    late_s = 1.5e-3 + TICK_S
    expected = [0, 1.5e-3, late_s, late_s + 3e-3 + TICK_S]
    assert begins(found) == pytest.approx(expected)


def test_occurrences_that_overlap_share_the_threads_that_help_them() -> None:
    """One thread helps either: two occurrences have three threads for what had four alone."""
    found = construction(DIAMOND, 2, LATENCIES, threads=2)
    # a 1; b and c side by side until c's 2 are done at 3/4 of their speed; the rest of b; d
    assert schedule(DIAMOND, found, LATENCIES).end_s == pytest.approx(1 + 2 * 4 / 3 + 3 + 1)


def parallel(of: Plan, workers: int, **changes: int | None) -> Estimate:
    found = construction(of, workers, LATENCIES, **changes)
    return estimate_of(Basis(of, results(LATENCIES), in_walk_call_factor=1.0, construction=found))


def test_an_estimate_for_several_workers_is_as_long_as_their_schedule() -> None:
    found = parallel(DIAMOND, 2)
    assert found.estimate_s == pytest.approx(7.0)
    assert found.critical_path_s == pytest.approx(7.0)
    assert found.workers == 2


def test_the_interval_reaches_from_what_none_can_beat_to_where_nothing_overlaps() -> None:
    found, wrong_s = parallel(DIAMOND, 2), composition_s(9.0, 4, 0.0)
    assert found.low_s == pytest.approx(7.0 - wrong_s, rel=1e-3)
    assert found.high_s == pytest.approx(9.0 + wrong_s, rel=1e-3)
    crowded = parallel(DIAMOND, 2, processors=2)
    assert crowded.low_s == pytest.approx(7.0 - wrong_s, rel=1e-3)
    assert crowded.estimate_s == pytest.approx(10.5)
    assert crowded.high_s == pytest.approx(13.5 + wrong_s, rel=1e-3)


def test_the_key_of_a_whole_model_tells_how_it_is_run() -> None:
    sequential = whole_key(DIAMOND, (), 1)
    assert sequential == DIAMOND.digest
    keys = {whole_key(DIAMOND, s, n) for s in [(0, 0, 1, 0), (0, 1, 0, 0)] for n in (2, 3)}
    assert len(keys | {sequential}) == 5


@st.composite
def graphs(draw: st.DrawFn) -> tuple[Plan, dict[str, float]]:
    """Plans of up to ten occurrences, each of which reads some results of those before it."""
    count = draw(st.integers(1, 10))
    places = []
    for i in range(count):
        reads = draw(st.lists(st.integers(0, i), min_size=1, max_size=3, unique=True))
        places.append((draw(st.sampled_from("abcd")), reads, [i + 1]))
    found = plan(places, outputs=[count])
    return found, {key: draw(st.floats(0, 8)) for key in found.keys}


@given(graphs(), st.integers(1, 5), st.randoms(use_true_random=False))
def test_laws_of_schedules(drawn: tuple[Plan, dict[str, float]], workers: int, draw) -> None:
    of, times = drawn
    forbidden = {frozenset(draw.choices("abcd", k=2)) for _ in range(2)}

    def rule(first: Place, second: Place) -> bool:
        return frozenset((first.brick.key, second.brick.key)) not in forbidden

    streams = [draw.randrange(workers) for _ in of.occurrences]
    total = sum(times[o.brick] for o in of.occurrences)
    for found in (
        construction(of, workers, times),
        construction(of, workers, times, rule),
        construction(of, workers, times, rule, streams),
    ):
        assert len(set(found.streams)) <= workers
        whole = schedule(of, found, times)
        runs = spans(whole)
        assert len(runs) == len(of.occurrences)
        for i, (run, occurrence) in enumerate(zip(runs, of.occurrences, strict=True)):
            assert run.end_s - run.begin_s == pytest.approx(times[occurrence.brick])
            assert all(run.begin_s >= runs[p].end_s for p in of.producers()[i])
        for i, second in enumerate(runs):
            for j, first in enumerate(runs[:i]):
                apart = first.end_s <= second.begin_s or second.end_s <= first.begin_s
                same = found.streams[i] == found.streams[j]
                pair = frozenset((of.occurrences[i].brick, of.occurrences[j].brick))
                allowed = found.rule is anything or pair not in forbidden
                assert apart or (allowed and not same)
                assert not same or first.end_s <= second.begin_s
        assert critical_path(of, times) <= whole.end_s + 1e-9
        assert total / workers <= whole.end_s + 1e-9
        assert whole.end_s <= total + 1e-9
    alone = schedule(of, construction(of, 1, times), times)
    assert alone.end_s == pytest.approx(total)


@given(st.integers(1, 8), st.floats(0.1, 8))
def test_with_a_worker_for_each_equal_tasks_take_as_long_as_one(count: int, time: float) -> None:
    tasks = plan([("a", [0], [i + 1]) for i in range(count)], outputs=range(1, count + 1))
    found = construction(tasks, count + 1, {"a": time})
    assert schedule(tasks, found, {"a": time}).end_s == time == critical_path(tasks, {"a": time})
