from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plans import plan

from bricks.decompose.plan import Brick, Occurrence, Plan
from bricks.graph.tensor import TensorType
from bricks.measure.arena import arrange
from bricks.measure.walk import alone, grounded, walk_of


def bricks_of(keys: str) -> dict[str, Brick]:
    return {key: Brick(key, key.encode(), {}, {}, {}, ("Relu",), 0) for key in keys}


REPEATED = plan(
    [(key, [i], [i + 1]) for i, key in enumerate("abcabdabcd")],
)


def test_each_brick_is_timed_once_at_its_first_place() -> None:
    walk = walk_of(REPEATED, bricks_of("abcd"), set("abcd"), optimize=False)
    timed = [step for step in walk.steps if step.timed]
    assert [step.key for step in timed] == ["a", "b", "c", "d"]
    assert [step.place for step in timed] == [f"m1-net/{i}" for i in (0, 1, 2, 5)]
    assert [step.multiplicity for step in timed] == [3, 3, 2, 2]


def test_a_lonely_brick_is_led_in_by_what_stands_before_it() -> None:
    walk = walk_of(REPEATED, bricks_of("abcd"), {"d"}, optimize=False, lead_in=2)
    assert [(step.key, step.timed) for step in walk.steps] == [
        ("a", False), ("b", False), ("d", True),
    ]  # fmt: skip
    assert [load.key for load in walk.loads] == ["a", "b", "d"]


def test_what_is_known_not_to_run_leads_nobody_in() -> None:
    walk = walk_of(REPEATED, bricks_of("abcd"), {"d"}, optimize=False, avoid={"a"}, lead_in=2)
    assert [step.key for step in walk.steps] == ["b", "d"]


def test_integers_keep_buffers_of_their_own() -> None:
    kinds = {1: TensorType("INT64", (4,))}
    arena = arrange(plan([("a", [0], [1]), ("b", [1], [2])], types=kinds))
    assert arena.offsets[1] is None
    assert arena.offsets[0] is not None


def test_a_value_in_place_takes_its_sources_memory() -> None:
    places = [
        Occurrence("a", (0,), (1,)),
        Occurrence("b", (1,), (2,), in_place=0),
        Occurrence("c", (2,), (3,)),
    ]
    offsets = arrange(plan(places)).offsets
    assert offsets[2] == offsets[1]
    assert len({offsets[0], offsets[1], offsets[3]}) == 3


def test_memory_is_used_again_when_its_last_reader_is_done() -> None:
    long_chain = plan([("a", [i], [i + 1]) for i in range(50)])
    assert arrange(long_chain).size_bytes == 3 * 64  # the input, and two that alternate


@st.composite
def random_plans(draw: st.DrawFn) -> Plan:
    places = []
    for i in range(draw(st.integers(1, 25))):
        reads = draw(st.lists(st.integers(0, i), min_size=1, max_size=3, unique=True))
        places.append(("a", reads, [i + 1]))
    sizes = {v: TensorType("FLOAT", (draw(st.integers(1, 200)),)) for v in range(len(places) + 1)}
    outputs = draw(st.sets(st.integers(1, len(places)), min_size=1, max_size=3))
    return plan(places, outputs=sorted(outputs), types=sizes)


@given(random_plans())
def test_values_that_live_at_the_same_time_never_overlap(random: Plan) -> None:
    arena = arrange(random)
    last = {v: i for i, o in enumerate(random.occurrences) for v in (*o.outputs, *o.inputs)}
    for v in (*random.inputs, *random.outputs):
        last[v] = len(random.occurrences)
    born = {v: -1 for v in random.inputs}
    born |= {v: i for i, o in enumerate(random.occurrences) for v in o.outputs}
    extent = {}
    for v, type_ in enumerate(random.types):
        offset = arena.offsets[v]
        assert offset is not None and offset % 64 == 0
        extent[v] = (offset, offset + type_.size_bytes)
        assert extent[v][1] <= arena.size_bytes
    for v in born:
        for w in born:
            if v < w and born[v] <= last.get(w, 0) and born[w] <= last.get(v, 0):
                (a, b), (c, d) = extent[v], extent[w]
                assert b <= c or d <= a, (v, w)


IN_PLACE = plan(
    [
        Occurrence("a", (0,), (1,)),
        Occurrence("b", (1,), (2,), in_place=0),
        Occurrence("c", (2,), (3,)),
        Occurrence("c", (3,), (4,)),
        Occurrence("c", (4,), (5,)),
        Occurrence("d", (5, 2), (6,), in_place=1),
        Occurrence("e", (6,), (7,)),
    ]
)


def test_what_a_step_overwrites_is_made_in_the_same_walk() -> None:
    walk = walk_of(IN_PLACE, bricks_of("abcde"), {"e"}, optimize=False, lead_in=1)
    assert [(step.key, step.timed) for step in walk.steps] == [
        ("a", False), ("b", False), ("d", False), ("e", True),
    ]  # fmt: skip
    assert grounded(walk.steps) == list(walk.steps)


@pytest.mark.parametrize("missing", ["a", "b"])
def test_what_cannot_be_made_is_not_overwritten(missing: str) -> None:
    walk = walk_of(IN_PLACE, bricks_of("abcde"), {"e"}, optimize=False, avoid={missing}, lead_in=1)
    *before, last = grounded(walk.steps)
    assert missing not in {step.key for step in before}
    for step in before:
        if step.after is not None:  # also where its source has moved to a buffer of its own
            assert step.outputs == (None,)
    assert last.outputs != (None,)


def test_a_brick_alone_has_nothing_around_it() -> None:
    walk = walk_of(IN_PLACE, bricks_of("abcde"), {"d", "e"}, optimize=False)
    (step,) = alone(walk, "d").steps
    assert (step.key, step.inputs, step.outputs, step.timed) == ("d", (None, None), (None,), True)
    assert [load.key for load in alone(walk, "d").loads] == ["d"]
