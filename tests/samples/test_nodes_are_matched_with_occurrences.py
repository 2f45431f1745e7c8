"""Which occurrence a node is that ran: by name, by what it is joined to, and by when it ran."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hypothesis import given
from hypothesis import strategies as st
from plans import Place, decomposed, plan

from bricks.decompose.plan import Brick, Decomposition, Plan
from bricks.samples.whole_models import counterparts, match


@dataclass(frozen=True)
class Ran:
    operator: str
    begin_s: float
    end_s: float


def named(of: Plan) -> Decomposition:
    """A plan whose bricks have the operator that they are called after."""
    bricks = {key: Brick(key, b"", {}, {}, {}, (key,), 0) for key in of.keys}
    return replace(decomposed(of), bricks=bricks)


def in_turn(*operators: str) -> list[Ran]:
    return [Ran(operator, i, i + 1) for i, operator in enumerate(operators)]


# Two branches of the same operators but for their ends.
LEFT: list[Place] = [("a", [1], [2]), ("b", [2], [3]), ("l", [3], [4])]
RIGHT: list[Place] = [("a", [1], [5]), ("b", [5], [6]), ("r", [6], [7])]
BEGIN: Place = ("s", [0], [1])
END: Place = ("e", [4, 7], [8])
ONE = plan([BEGIN, *LEFT, *RIGHT, END], outputs=[8])
OTHER = plan([BEGIN, *RIGHT, *LEFT, END], outputs=[8])


def test_another_order_of_the_same_plan_is_found() -> None:
    assert counterparts(ONE, ONE) == (list(range(8)), set())
    assert counterparts(OTHER, ONE) == ([0, 4, 5, 6, 1, 2, 3, 7], set())


def test_ambiguous_nodes_are_counted() -> None:
    """But it is kept together: what follows a twin follows the same one."""
    twins = [("a", [1], [2]), ("b", [2], [3]), ("a", [1], [4]), ("b", [4], [5])]
    same = plan([BEGIN, *twins], outputs=[])
    found = counterparts(same, same)
    assert found is not None
    positions, unsure = found
    assert positions == list(range(5))
    assert unsure == {1}


def test_nodes_of_one_operator_are_told_apart_by_what_their_readers_read_too() -> None:
    read_alone, read_with_input = ("b", [1], [3]), ("b", [2, 0], [4])
    first = plan([("b", [0], [1]), ("b", [0], [2]), read_alone, read_with_input], outputs=[])
    other = plan([("b", [0], [2]), ("b", [0], [1]), read_alone, read_with_input], outputs=[])
    assert counterparts(other, first) == ([1, 0, 2, 3], set())


def test_what_is_joined_otherwise_is_another_plan() -> None:
    crossed = plan([BEGIN, *LEFT, *RIGHT, ("e", [7, 4], [8])], outputs=[8])
    assert counterparts(crossed, ONE) is None
    assert counterparts(plan([BEGIN, *LEFT], outputs=[4]), ONE) is None
    assert match([], {}, crossed, named(ONE)).problem == (
        "the runtime now executes another graph than the plan's"
    )


def test_names_tell_where_a_node_stands_in_whatever_order_it_ran() -> None:
    ran = in_turn("s", "a", "b", "r", "a", "b", "l", "e")
    known = {i: i for i in range(8)}  # in the other order
    found = match(ran, known, OTHER, named(ONE))
    assert found.positions == (0, 4, 5, 6, 1, 2, 3, 7)
    assert (found.unsure, found.problem) == (0, None)


def test_a_node_without_a_name_is_known_by_when_it_ran() -> None:
    """``b`` runs after the ``a`` of its branch, and before what ends it."""
    ran = in_turn("s", "a", "a", "b", "r", "b", "l", "e")
    known = {0: 0, 1: 1, 2: 4, 4: 3, 6: 6, 7: 7}
    found = match(ran, known, OTHER, named(ONE))
    assert found.positions == (0, 4, 1, 5, 6, 2, 3, 7)
    assert found.unsure == 1  # the first could be of either branch, but for the second


def test_what_cannot_have_run_then_is_a_problem() -> None:
    ran = in_turn("b", "s", "a", "a", "r", "b", "l", "e")
    known = {1: 0, 2: 1, 3: 4, 4: 3, 6: 6, 7: 7}
    assert match(ran, known, OTHER, named(ONE)).problem == "b ran when no b of the plan could"


@st.composite
def graphs(draw: st.DrawFn) -> list[Place]:
    count = draw(st.integers(1, 10))
    return [
        (
            draw(st.sampled_from("abc")),
            draw(st.lists(st.integers(0, i), min_size=1, max_size=2, unique=True)),
            [i + 1],
        )
        for i in range(count)
    ]


@given(graphs(), st.randoms(use_true_random=False))
def test_laws_of_matching(places: list[Place], draw) -> None:
    """However a graph is ordered and run: who feeds whom stays, and so do the operators."""
    of = plan(places, outputs=[len(places)])
    order: list[int] = []
    while len(order) < len(places):
        done = {0, *(places[i][2][0] for i in order)}
        ready = [i for i, p in enumerate(places) if i not in order and done.issuperset(p[1])]
        order.append(draw.choice(ready))
    other = plan([places[i] for i in order], outputs=[len(places)])
    found = counterparts(other, of)
    assert found is not None
    positions, unsure = found
    assert sorted(positions) == list(range(len(places)))
    if not unsure:
        ends = [of.occurrences[positions[i]] for i in range(len(places))]
        assert [o.brick for o in ends] == [o.brick for o in other.occurrences]
    edges = {(positions[p], positions[c]) for p, c in other.edges()}
    assert edges == set(of.edges())
    ran = in_turn(*(o.brick for o in other.occurrences))
    known = {i: i for i in range(len(places))}
    assert match(ran, known, other, named(of)).positions == tuple(positions)
    nameless = match(ran, {}, other, named(of))
    if nameless.problem is None:
        assert sorted(nameless.positions) == list(range(len(places)))
