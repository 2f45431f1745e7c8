from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plans import plan
from random_plans import random_plans

from bricks.decompose.allocated import Allocated
from bricks.decompose.memory import Phase
from bricks.decompose.plan import Plan
from bricks.decompose.planned_memory import Planned
from bricks.graph.types import TensorType

# As versions up to 0.9 wrote them: a training step of three calls, and a model of two nodes.
RECORDED = """
{"model": "step", "digest": "m1-s", "granularity": "executed", "inputs": [0], "outputs": [3],
 "types": [["FLOAT", [4]], ["FLOAT", [4]], ["FLOAT", [4]], ["FLOAT", [4]]],
 "occurrences": [["a", [0], [1], 1, null, []], ["b", [1], [2], 1, null, []],
                 ["c", [2], [3], 1, 0, []]],
 "assumed": [],
 "program": {"kind": "training step", "phases": [["forward", 1, 1, 0.5], ["backward", 2, 2, 0.25]],
             "freed": [null, 1, null, null], "storages": [-1, 1, 2, 2], "gradients": [3],
             "state_bytes": {"parameters": 16}}}
"""
OPTIMISED = """
{"model": "net", "digest": "m1-n", "granularity": "executed", "inputs": [0], "outputs": [2],
 "types": [["FLOAT", [4]], ["FLOAT", [4]], ["FLOAT", [4]]],
 "occurrences": [["a", [0], [1], 1, null, [0]], ["b", [1], [2], 2, 0, []]],
 "assumed": [], "rewritten_bytes": 8, "weight_bound": ["a"]}
"""


@st.composite
def recorded(draw: st.DrawFn) -> Plan:
    """A random plan whose calls allocate: values are freed after their last use, or stay."""
    made = draw(random_plans())
    length = len(made.occurrences)
    last = {v: i for i, o in enumerate(made.occurrences) for v in (*o.made, *o.inputs)}
    stay = draw(st.sets(st.sampled_from(range(len(made.types)))))
    freed = tuple(
        None if value in stay or value in made.inputs else last.get(value)
        for value in range(len(made.types))
    )
    storages = tuple(-1 if v in made.inputs else v for v in range(len(made.types)))
    calls = draw(st.integers(0, length))
    phases = (Phase("forward", calls, calls, calls / 4), Phase("backward", length - calls, 9, 1.25))
    kind = draw(st.sampled_from(["inference", "training step"]))
    memory = Allocated(kind, phases, freed, storages, (), {"inputs": 64})
    return replace(made, memory=memory)


@given(st.one_of(recorded(), random_plans()))
def test_a_plan_is_read_as_it_was_written(made: Plan) -> None:
    assert Plan.from_json(json.loads(json.dumps(made.to_json()))) == made


@pytest.mark.parametrize("text", [RECORDED, OPTIMISED])
def test_a_plan_of_an_earlier_version_is_written_as_it_was(text: str) -> None:
    data = json.loads(text)
    assert json.loads(json.dumps(Plan.from_json(data).to_json())) == data


def test_a_plan_of_an_earlier_version_knows_its_memory() -> None:
    assert Plan.from_json(json.loads(OPTIMISED)).memory == Planned()
    memory = Plan.from_json(json.loads(RECORDED)).memory
    assert memory == Allocated(
        kind="training step",
        phases=(Phase("forward", 1, 1, 0.5), Phase("backward", 2, 2, 0.25)),
        freed=(None, 1, None, None),
        storages=(-1, 1, 2, 2),
        gradients=(3,),
        state_bytes={"parameters": 16},
    )


@given(recorded())
def test_what_is_live_at_the_peak_is_the_most_that_is_allocated_at_once(made: Plan) -> None:
    live = made.memory.peak(made)
    assert live is not None
    most = now = 0
    allocations = made.memory.allocations(made)
    for position in range(len(made.occurrences)):
        now += sum(each.size_bytes for each in allocations if each.made == position)
        most = max(most, now)
        now -= sum(each.size_bytes for each in allocations if each.freed == position)
    found = live.activation_bytes + live.gradient_bytes + live.temporary_bytes
    assert found == most + 64  # and the inputs


@given(recorded())
def test_nothing_is_freed_before_it_is_made_or_while_it_is_read(made: Plan) -> None:
    last = {v: i for i, o in enumerate(made.occurrences) for v in o.inputs}
    for each in made.memory.allocations(made):
        assert each.freed is None or each.freed >= max(each.made, last.get(each.slot, 0))


@given(random_plans())
def test_a_planned_region_holds_what_is_live_at_once(made: Plan) -> None:
    spans = list(made.memory.spans(made))
    live = [
        sum(span.size_bytes for span in spans if span.begin <= position <= span.end)
        for position in range(len(made.occurrences))
    ]
    assert made.memory.layout(made).size_bytes >= max(live, default=0)


@given(recorded())
def test_each_kind_of_memory_answers_the_same_questions(made: Plan) -> None:
    planned = replace(made, memory=Planned())
    for each in (made, planned):
        assert each.memory.problem(len(each.occurrences), len(each.types)) is None
        assert len(each.memory.layout(each).offsets) == len(each.types)
        assert sum(phase.occurrences for phase in each.memory.phases) == len(
            each.memory.phase_names
        )
        assert [phase for _, phase in each.memory.overheads] == list(each.memory.phases)
    # A region has a size; slots have none, and only what is allocated can be freed.
    assert bool(planned.memory.layout(planned).size_bytes) and not planned.memory.allocations(made)
    assert not made.memory.layout(made).size_bytes


def test_a_view_lives_in_the_memory_of_what_it_shows() -> None:
    large = TensorType("FLOAT", (100,))
    made = plan([("a", [0], [1]), ("view", [1], [2]), ("b", [2], [3])], types={1: large, 2: large})
    memory = Allocated(
        "inference", (Phase("forward", 3, 3),), (None, 1, 2, None), (-1, 1, 1, 3), (), {}
    )
    viewed = replace(made, memory=memory)
    assert [each.size_bytes for each in memory.allocations(viewed)] == [400, 0, 64]
    first, last = memory.spans(viewed)
    assert (first.begin, first.end) == (0, 2)  # the view is read after the value was freed
    assert (last.begin, last.end) == (2, 2)
