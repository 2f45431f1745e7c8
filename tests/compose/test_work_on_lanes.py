"""Laws of every run that is composed over lanes, whatever its tasks are."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bricks.compose.composer import compose
from bricks.compose.lanes import WAITING, Group, Task, Timeline, longest_chain_s

LANES = ("a", "b", "c")
SLACK = 1e-9

seconds = st.one_of(st.just(0.0), st.floats(1e-3, 8.0), st.integers(1, 4).map(float))


@st.composite
def tasks(draw: st.DrawFn, lags: bool = True, slowing: bool = False) -> list[Task]:
    """Up to ten tasks, each of which needs some of those before it."""
    found: list[Task] = []
    for i in range(draw(st.integers(1, 10))):
        needed = draw(st.sets(st.integers(0, i - 1), max_size=3)) if i else set()
        after = {p: draw(seconds) if lags else 0.0 for p in sorted(needed)}
        slowed = draw(st.dictionaries(st.sampled_from(LANES), st.floats(1.0, 3.0), max_size=2))
        lane = draw(st.sampled_from(LANES))
        found.append(Task(lane, draw(seconds), "work", after, slowed if slowing else {}))
    return found


def chained(of: Sequence[Task]) -> list[Task]:
    """The tasks, each of which also needs the one before it on its lane."""
    last: dict[str, int] = {}
    found = []
    for position, task in enumerate(of):
        before = {last[task.lane]: 0.0} if task.lane in last else {}
        found.append(replace(task, after=before | dict(task.after)))
        last[task.lane] = position
    return found


def waited_s(run: Timeline, lane: str) -> float:
    return sum(span.length_s for span in run.shown(lane) if span.kind == WAITING)


def begins_as_needed(found: Timeline, of: Sequence[Task]) -> bool:
    spans = found.by_task
    return all(
        spans[i].begin_s >= spans[p].end_s + lag_s
        for i, task in enumerate(of)
        for p, lag_s in task.after.items()
    )


@given(tasks())
def test_the_work_of_a_lane_adds_up(of: list[Task]) -> None:
    found = compose(of)
    for lane in LANES:
        work_s = sum(task.work_s for task in of if task.lane == lane)
        assert found.busy_s(lane) == pytest.approx(work_s)
        last_s = max((span.end_s for span in found.of(lane)), default=0.0)
        assert found.busy_s(lane) + waited_s(found, lane) == pytest.approx(last_s)


@given(tasks(slowing=True))
def test_a_lane_does_one_thing_at_a_time_and_each_once_and_in_order(of: list[Task]) -> None:
    found = compose(of)
    assert sorted(i for span in found.spans for i in span.members) == list(range(len(of)))
    assert begins_as_needed(found, of)
    for lane in LANES:
        own = found.of(lane)
        assert all(one.end_s <= next_.begin_s for one, next_ in itertools.pairwise(own))
        assert [i for span in own for i in span.members] == [
            i for i, task in enumerate(of) if task.lane == lane
        ]


@given(tasks())
def test_the_end_is_that_of_the_longest_chain_of_tasks_that_wait_for_each_other(
    of: list[Task],
) -> None:
    assert compose(of).end_s == pytest.approx(longest_chain_s(chained(of)))
    alone = [replace(task, lane=str(i)) for i, task in enumerate(of)]
    assert compose(alone).end_s == pytest.approx(longest_chain_s(of))


@given(tasks(), st.data())
def test_what_takes_longer_never_ends_earlier(of: list[Task], data: st.DataObject) -> None:
    """So the ends of intervals are those of runs with all of their tasks at these ends."""
    longer = [replace(task, work_s=task.work_s + data.draw(seconds)) for task in of]
    before, after = compose(of).by_task, compose(longer).by_task
    assert all(after[i].end_s >= before[i].end_s - SLACK for i in range(len(of)))


@given(tasks(lags=False))
def test_another_lane_takes_work_away_from_none_and_makes_no_run_longer(of: list[Task]) -> None:
    one, several = (compose([replace(t, lane=t.lane if n else "a") for t in of]) for n in (0, 1))
    assert one.end_s == pytest.approx(sum(task.work_s for task in of))
    assert several.end_s <= one.end_s + SLACK
    assert sum(map(several.busy_s, several.lanes)) == pytest.approx(one.busy_s("a"))


@given(tasks())
def test_lanes_at_full_speed_run_as_if_all_events_were_followed(of: list[Task]) -> None:
    found, followed = compose(of), compose(of, speed=lambda busy: 1.0)
    for i, span in followed.by_task.items():
        ends_s = [found.by_task[i].begin_s, found.by_task[i].end_s]
        assert ends_s == pytest.approx([span.begin_s, span.end_s])


@given(tasks(slowing=True))
def test_busy_lanes_make_others_slower_by_no_more_than_they_say(of: list[Task]) -> None:
    found, alone = compose(of), compose([replace(task, slowed={}) for task in of])
    assert found.end_s >= alone.end_s - SLACK
    for i, task in enumerate(of):
        took_s, most = found.by_task[i].length_s, max(task.slowed.values(), default=1.0)
        assert task.work_s - SLACK <= took_s <= most * task.work_s + SLACK


@given(tasks(lags=False), st.integers(1, 3))
def test_lanes_that_share_a_processor_take_as_long_as_one(of: list[Task], cores: int) -> None:
    found = compose(of, speed=lambda busy: min(1.0, cores / busy))
    work_s = sum(task.work_s for task in of)
    assert found.end_s >= work_s / cores - SLACK
    assert found.end_s <= work_s + SLACK


@settings(max_examples=100)  # few draw tasks that would overlap
@given(tasks(), st.sets(st.frozensets(st.integers(0, 9), min_size=2, max_size=2), max_size=8))
def test_what_must_not_overlap_does_not(of: list[Task], forbidden: set[frozenset[int]]) -> None:
    def overlap(position: int, running: Collection[int]) -> bool:
        return all(frozenset((position, other)) not in forbidden for other in running)

    found = compose(of, overlap=overlap)
    spans = found.by_task
    assert begins_as_needed(found, of)
    for first, second in (sorted(pair) for pair in forbidden):
        if second < len(of):
            one, other = spans[first], spans[second]
            assert one.end_s <= other.begin_s or other.end_s <= one.begin_s


class Pairs:
    """A lane that runs what is ready in pairs, each of which takes a second."""

    def __init__(self, every_s: float) -> None:
        self._every_s, self.asked_s = every_s, list[float]()

    def next(self, ready: Sequence[int], now_s: float) -> Group | float | None:
        self.asked_s.append(now_s)
        if not ready:
            return None
        if now_s % self._every_s:
            return now_s - now_s % self._every_s + self._every_s
        return Group(tuple(ready[:2]), Task("a", 1.0, "pair"))


@given(st.integers(1, 9), st.integers(1, 3))
def test_a_policy_decides_what_runs_together_and_when(count: int, every: int) -> None:
    of = [Task("b", 0.5) for _ in range(count)]
    of += [Task("a", 0.0, after={i: 0.25}) for i in range(count)]
    found = compose(of, policies={"a": Pairs(every)})
    members = [i for span in found.of("a") for i in span.members]
    assert members == list(range(count, 2 * count))
    assert all(len(span.members) <= 2 for span in found.of("a"))
    assert all(span.begin_s % every == 0 and span.length_s == 1 for span in found.of("a"))
    assert begins_as_needed(found, of)


def test_waiting_for_others_is_shown_between_what_a_lane_does() -> None:
    found = compose([Task("a", 2.0, "x"), Task("b", 1.0, "y"), Task("b", 1.0, "z", {0: 0.5})])
    assert [(s.kind, s.begin_s, s.end_s) for s in found.shown("b")] == [
        ("y", 0.0, 1.0), (WAITING, 1.0, 2.5), ("z", 2.5, 3.5),
    ]  # fmt: skip
    assert waited_s(found, "b") == 1.5
    assert [s.begin_s for s in found.later(1.0).of("b")] == [1.0, 3.5]


def test_tasks_that_wait_for_each_other_are_an_error() -> None:
    with pytest.raises(RuntimeError, match="2 tasks wait"):
        compose([Task("a", 1.0, after={1: 0.0}), Task("b", 1.0, after={0: 0.0})])


def test_nothing_takes_no_time() -> None:
    assert compose([]).end_s == 0.0
