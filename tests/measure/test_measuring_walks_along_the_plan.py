from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import onnx
import pytest
from factories import constant, model, node, save, value
from plans import HEAVY, decomposed, plan

from bricks import Bench
from bricks.decompose.occurrence import Occurrence
from bricks.decompose.plan import Decomposition
from bricks.graph.types import TensorType
from bricks.measure.sampler import by_key
from bricks.measure.walk import Walk, WalkStep, isolated, steps_for, without_feedback
from bricks.measure.walk_builder import WalkOptions, walk_of
from bricks.units.sample import Sample

REPEATED = plan([(key, [i], [i + 1]) for i, key in enumerate("abcabdabcd")])
LAYERS = plan([("abc"[i % 3], [i], [i + 1]) for i in range(36)])


def timed(walk: Walk) -> list[tuple[str, int]]:
    return [(step.key, step.position) for step in walk.steps if step.timed]


def test_each_brick_is_timed_at_places_all_over_the_model() -> None:
    found = timed(walk_of(decomposed(LAYERS), "abc", WalkOptions(occurrences=3)))
    for key in "abc":
        places = [p for k, p in found if k == key]
        assert {LAYERS.occurrences[p].brick for p in places} == {key}
        assert len(places) >= 3
        assert max(places) - min(places) >= 12


def test_places_stand_for_all_occurrences_in_their_situation() -> None:
    # In each of twenty layers, one "a" comes after "b", and four after another "a".
    layers = plan([("baaaaa"[i % 6], [i], [i + 1]) for i in range(120)])
    walk = walk_of(decomposed(layers), "a", WalkOptions(occurrences=5))
    weight: dict[bool, float] = {True: 0.0, False: 0.0}
    for step in walk.steps:
        if step.timed:
            weight[layers.occurrences[step.position - 1].brick == "b"] += step.weight
    assert sum(weight.values()) == 100
    assert weight[True] == pytest.approx(20, abs=2)


def test_first_uses_of_weights_are_timed_apart_from_later_ones() -> None:
    # Two recurrent layers of twenty steps each, all steps of one with the same weights.
    steps = [Occurrence("ab"[i % 2], (i,), (i + 1,), weights=(i // 40,)) for i in range(80)]
    walk = walk_of(decomposed(plan(steps), heavy="a"), "ab")
    places = {step.position: step.weight for step in walk.steps if step.timed and step.key == "a"}
    assert (places.pop(0), places.pop(40)) == (1, 1)
    assert sum(places.values()) == 38


def test_a_brick_that_occurs_less_often_is_timed_wherever_it_occurs() -> None:
    found = timed(walk_of(decomposed(REPEATED), "abcd", WalkOptions(occurrences=3)))
    assert [place for key, place in found if key == "d"] == [5, 9]
    assert [place for key, place in found if key == "a"] == [0, 3, 6]


def test_the_places_are_always_the_same() -> None:
    one, other = (walk_of(decomposed(LAYERS), "ab") for _ in range(2))
    assert one == other
    assert timed(one) == [x for x in timed(walk_of(decomposed(LAYERS), "abc"))
                          if x[0] != "c"]  # fmt: skip


def test_a_lonely_brick_is_led_in_by_what_stands_before_it() -> None:
    walk = walk_of(decomposed(REPEATED), {"d"}, WalkOptions(prefix_length=2))
    assert [(step.key, step.timed) for step in walk.steps] == [
        ("a", False), ("b", False), ("d", True), ("b", False), ("c", False), ("d", True),
    ]  # fmt: skip
    assert [load.key for load in walk.loads] == ["a", "b", "d", "c"]


def test_a_very_long_brick_is_timed_once_with_nothing_before_it() -> None:
    layers = plan([("bca"[i % 3], [i], [i + 1]) for i in range(36)])
    one = decomposed(layers)
    bricks = {**one.bricks, "a": replace(one.bricks["a"], flops=10**12)}
    walk = walk_of(Decomposition(layers, bricks, 0.0), {"a"})
    (step,) = walk.steps
    assert (step.key, step.weight) == ("a", 12)


def test_a_walk_fills_only_the_values_of_its_steps() -> None:
    large = {i: TensorType("FLOAT", (1 << 14,)) for i in range(37)}
    sides = plan([("ab"[i % 2], [i], [i + 1]) for i in range(36)], outputs=range(37), types=large)
    walk = walk_of(decomposed(sides), "a", WalkOptions(occurrences=1, prefix_length=0))
    filled = {at for begin, count in walk.used_parts for at in range(begin, begin + count)}
    for step in walk.steps:
        for offset in (*step.inputs, *step.outputs):
            assert offset is not None and {offset, offset + (1 << 16) - 1} <= filled
    assert len(filled) < walk.region_bytes / 4


def test_what_is_known_not_to_run_leads_nobody_in() -> None:
    walk = walk_of(decomposed(REPEATED), {"d"}, WalkOptions(avoid={"a", "c"}, prefix_length=2))
    assert [step.key for step in walk.steps] == ["b", "d", "b", "d"]


def test_places_with_weights_of_their_own_have_them_in_the_walk() -> None:
    own = plan(
        [
            Occurrence("a", (0,), (1,), weights=(0,)),
            Occurrence("a", (1,), (2,), weights=(1,)),
            Occurrence("b", (2,), (3,), weights=(2,)),
            Occurrence("b", (3,), (4,), weights=(2,)),
            Occurrence("c", (4,), (5,), weights=(3,)),
            Occurrence("c", (5,), (6,), weights=(4,)),
        ]
    )
    walk = walk_of(decomposed(own, heavy="ab"), "abc", WalkOptions(prefix_length=0))
    assert [step.load for step in walk.steps] == ["a", "a/1", "b", "b", "c", "c"]
    assert [load.name for load in walk.loads] == ["a", "a/1", "b", "c"]
    assert {load.key for load in walk.loads} == set("abc")


def test_what_leads_in_does_not_warm_the_weights_of_what_is_timed() -> None:
    keys = "aaabaab"
    own = plan([Occurrence(key, (i,), (i + 1,), weights=(i,)) for i, key in enumerate(keys)])
    walk = walk_of(decomposed(own, heavy="a"), "ab", WalkOptions(occurrences=1, prefix_length=3))
    (measured,) = (step for step in walk.steps if step.timed and step.key == "a")
    others = [step for step in walk.steps if not step.timed and step.key == "a"]
    assert others
    assert measured.load not in {step.load for step in others}
    assert len({step.load for step in others}) == 1  # one copy is enough for all of them


def test_weights_that_a_walk_lacks_are_replaced_by_an_eviction_read() -> None:
    places = [Occurrence("a", (i,), (i + 1,), weights=(i,)) for i in range(8)]
    one = Decomposition(plan(places), decomposed(plan(places), heavy="a").bricks, 0.0)
    assert one.weight_bytes == 8 * HEAVY.size_bytes
    walk = walk_of(
        one, "a", WalkOptions(prefix_length=0, occurrences=3, max_eviction_bytes=1 << 30)
    )
    assert walk.eviction_bytes(walk.steps) == 5 * HEAVY.size_bytes
    assert walk.eviction_bytes(walk.steps[:1]) == 7 * HEAVY.size_bytes
    assert replace(walk, max_eviction_bytes=1000).eviction_bytes(walk.steps) == 1000
    every = walk_of(one, "a", WalkOptions(occurrences=8, max_eviction_bytes=1 << 30))
    assert every.eviction_bytes(every.steps) == 0


def test_weights_that_places_share_count_once() -> None:
    places = [Occurrence("a", (i,), (i + 1,), weights=(0,)) for i in range(8)]
    assert decomposed(plan(places), heavy="a").weight_bytes == HEAVY.size_bytes
    unknown = plan([("a", [i], [i + 1]) for i in range(8)])
    assert decomposed(unknown, heavy="a").weight_bytes == 8 * HEAVY.size_bytes


def test_bytes_that_are_indices_are_not_read_from_the_region(tmp_path: Path) -> None:
    proto = model(
        [
            node("QuantizeLinear", ["x", "scale", "zero"], ["q"]),
            node("DequantizeLinear", ["q", "scale", "zero"], ["d"]),
            node("Cast", ["q"], ["i"], to=onnx.TensorProto.INT64),
            node("Gather", ["table", "i"], ["r"]),
            node("Add", ["d", "r"], ["y"]),
        ],
        [value("x", [8])],
        [value("y", [8])],
        [
            constant("scale", 0.1, "FLOAT"),
            constant("zero", 0, "UINT8"),
            constant("table", [0.1] * 5, "FLOAT"),
        ],
    )
    with Bench(tmp_path / "cache", runtime="fake", granularity="2") as bench:
        made = bench.decompose(bench.read(save(proto, tmp_path)))
    walk = walk_of(made, made.plan.keys)
    of = {made.bricks[step.key].operators: step for step in walk.steps}
    assert None not in of["QuantizeLinear", "DequantizeLinear"].outputs
    assert None in of["Cast", "Gather"].inputs


def test_sums_of_integers_are_read_from_the_region_unless_they_are_indices(tmp_path: Path) -> None:
    proto = model(
        [
            node("ConvInteger", ["x", "w"], ["sum"]),
            node("Cast", ["sum"], ["f"], to=onnx.TensorProto.FLOAT),
            node("Relu", ["f"], ["y"]),
            node("Add", ["i", "one"], ["j"]),
            node("Gather", ["table", "j"], ["z"]),
        ],
        [value("x", [1, 2, 8, 8], "UINT8"), value("i", [8], "INT32")],
        [value("y", [1, 2, 6, 6]), value("z", [8])],
        [
            constant("w", [[[[1] * 3] * 3] * 2] * 2, "UINT8"),
            constant("one", [1] * 8, "INT32"),
            constant("table", [0.1] * 5, "FLOAT"),
        ],
    )
    with Bench(tmp_path / "cache", runtime="fake") as bench:
        made = bench.decompose(bench.read(save(proto, tmp_path)))
    walk = walk_of(made, made.plan.keys)
    of = {made.bricks[step.key].operators: step for step in walk.steps}
    assert of["ConvInteger",].outputs == of["Cast",].inputs != (None,)
    assert None in of["Add",].inputs and None in of["Gather",].inputs


def test_what_goes_on_being_timed_is_led_in_by_no_more_than_one_long_step() -> None:
    steps = [
        WalkStep(str(i), key, (), (), timed=True, position=i, long=key == "L")
        for i, key in enumerate("abLcLdef")
    ]
    assert [step.name for step in steps_for(steps, {"f"})] == ["4", "5", "6", "7"]
    assert [step.name for step in steps_for(steps, {"c"})] == ["2", "3"]
    assert [step.timed for step in steps_for(steps, {"c"})] == [False, True]
    assert [step.name for step in steps_for(steps, {"f"}, prefix_length=1)] == ["6", "7"]


def test_what_is_timed_at_several_places_counts_with_their_mean() -> None:
    weights = (3.0, 1.0, 1.0, 1.0)
    steps = [
        WalkStep(str(i), key, (), (), timed=key != "x", weight=weight)
        for i, (key, weight) in enumerate(zip("axab", weights, strict=True))
    ]
    seconds = [[1.0, 2.0], [], [3.0, 6.0], [5.0, 7.0]]
    found = by_key(steps, [[*map(Sample, column)] for column in seconds])
    assert found == {"a": (Sample(1.5), Sample(3.0)), "b": (Sample(5.0), Sample(7.0))}


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
    walk = walk_of(decomposed(IN_PLACE), {"e"}, WalkOptions(prefix_length=1))
    assert [(step.key, step.timed) for step in walk.steps] == [
        ("a", False), ("b", False), ("d", False), ("e", True),
    ]  # fmt: skip
    assert without_feedback(walk.steps) == list(walk.steps)


@pytest.mark.parametrize("missing", ["a", "b"])
def test_what_cannot_be_made_is_not_overwritten(missing: str) -> None:
    walk = walk_of(decomposed(IN_PLACE), {"e"}, WalkOptions(avoid={missing}, prefix_length=1))
    *before, last = without_feedback(walk.steps)
    assert missing not in {step.key for step in before}
    for step in before:
        if step.overwritten is not None:  # also where its source has moved to a buffer of its own
            assert step.outputs == (None,)
    assert last.outputs != (None,)


def test_light_bricks_run_once_before_they_are_timed_and_others_do_not() -> None:
    walk = walk_of(decomposed(REPEATED, heavy="a"), "ab", WalkOptions(prefix_length=1))
    repeated = {(step.key, step.timed): step.repeated for step in walk.steps}
    assert repeated[("b", True)]
    assert not repeated[("a", True)]
    assert not any(again for (_, timed_), again in repeated.items() if not timed_)


def test_a_brick_alone_has_nothing_around_it() -> None:
    walk = walk_of(decomposed(IN_PLACE), {"d", "e"})
    (step,) = isolated(walk, "d").steps
    assert (step.key, step.inputs, step.outputs, step.timed) == ("d", (None, None), (None,), True)
    assert [load.key for load in isolated(walk, "d").loads] == ["d"]
