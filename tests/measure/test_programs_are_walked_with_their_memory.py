from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from plans import decomposed, plan

from bricks.decompose.allocated import Allocated
from bricks.decompose.memory import Allocation, Phase
from bricks.decompose.plan import Decomposition, Plan
from bricks.decompose.planned_memory import Planned
from bricks.graph.types import TensorType
from bricks.measure.protocol.walking import EVERY_HANDLE, allocation_events
from bricks.measure.walk_builder import WalkOptions, walk_of

LARGE = TensorType("FLOAT", (1 << 16,))


def program(length: int, *, views: tuple[int, ...] = ()) -> Plan:
    """A chain; value k + 1 is made by occurrence k and freed by the next one."""
    made = plan(
        [(f"b{i}", [i], [i + 1]) for i in range(length)],
        types={i: LARGE for i in range(length + 1)},
    )
    freed = (None, *(i + 1 if i + 1 < length else None for i in range(length)))
    storages = (-1, *(-1 if i in views else i + 1 for i in range(length)))
    return replace(
        made,
        memory=Allocated("inference", (Phase("forward", length, length),), freed, storages, (), {}),
    )


def allocations(of: Plan) -> tuple[Allocation, ...]:
    return of.memory.allocations(of)


def test_what_is_left_out_is_allocated_and_freed_in_its_place() -> None:
    made = allocations(program(5))
    assert made[0] == Allocation(1, 0, 1, LARGE.size_bytes)
    before_third, after = allocation_events([2], made, 5)
    size = LARGE.size_bytes
    # Occurrences 0 and 1 are left out, then the step at 2 makes value 3 itself.
    assert before_third == [(1, size), (2, size), (1, 0)]
    assert after == [(2, 0), (4, size), (3, 0), (5, size), (4, 0), (EVERY_HANDLE, 0)]


def test_views_need_no_memory_but_are_let_go() -> None:
    made = allocations(program(3, views=(1,)))
    assert [each.size_bytes > 0 for each in made] == [True, False, True]
    (before, after) = allocation_events([2], made, 3)
    assert (2, LARGE.size_bytes) not in before
    assert (2, 0) in after


@given(st.integers(1, 30), st.data())
def test_every_allocation_is_freed_and_nothing_is_freed_before(
    length: int, data: st.DataObject
) -> None:
    run = sorted(data.draw(st.sets(st.integers(0, length - 1), min_size=1)))
    events = allocation_events(run, allocations(program(length)), length)
    assert len(events) == len(run) + 1
    held: set[int] = set()
    for number, between in enumerate(events):
        for slot, size_bytes in between:
            if slot == EVERY_HANDLE:
                held.clear()
            elif size_bytes:
                assert slot not in held
                assert slot - 1 not in run  # the step itself would make it
                held.add(slot)
            else:
                held.discard(slot)
        if number < len(run):
            held.add(run[number] + 1)
    assert not held


def test_values_are_handed_on_in_slots_and_not_in_a_region() -> None:
    made = program(3)
    walk = walk_of(decomposed(made), ["b1"])
    assert walk.region_bytes == 0
    assert [(step.inputs, step.outputs) for step in walk.steps] == [((0,), (1,)), ((1,), (2,))]
    assert len(walk.allocation_events(walk.steps)) == 3
    ordinary = walk_of(decomposed(replace(made, memory=Planned())), ["b1"])
    assert ordinary.allocation_events(ordinary.steps) == []


def test_calls_that_do_next_to_nothing_do_not_count_as_a_lead_in() -> None:
    made = program(8)
    found = decomposed(made)
    bricks = dict(found.bricks)
    for key in ("b0", "b1", "b2"):  # their values are large; the others' are not known to be
        bricks[key] = replace(bricks[key], outputs={"v0": LARGE})
    positions = [
        step.position
        for step in walk_of(
            Decomposition(made, bricks, 0.0), ["b7"], WalkOptions(prefix_length=2)
        ).steps
    ]
    assert positions == [1, 2, 3, 4, 5, 6, 7]
    without = walk_of(Decomposition(made, bricks, 0.0), ["b7"], WalkOptions(prefix_length=0))
    assert [step.position for step in without.steps] == [7]
