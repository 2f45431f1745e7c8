from __future__ import annotations

from collections.abc import Mapping, Sequence

from hypothesis import given
from plans import plan
from random_plans import random_plans

from bricks.compose.memory.activations import Activations, input_bytes, sizeless
from bricks.decompose.occurrence import Occurrence
from bricks.decompose.plan import Plan
from bricks.graph.types import TensorType

MIB = 1 << 20
LARGE = TensorType("FLOAT", (4 * MIB,))  # 16 MiB


def resident_bytes(
    plan: Plan, workspaces: Mapping[str, Sequence[int]] | None = None, weights: Sequence[int] = ()
) -> int:
    return Activations(plan).resident_bytes(workspaces, weights)


def chain(length: int) -> Plan:
    """Values of 16 MiB, each made from the one before."""
    kinds = dict.fromkeys(range(length + 1), LARGE)
    return plan([("a", [i], [i + 1]) for i in range(length)], types=kinds)


def regions(*sizes: int) -> int:
    """The tables of an arena's regions of so many MiB."""
    return sum(sizes) * MIB // 32


def test_the_first_run_takes_memory_and_the_second_a_block_of_its_own() -> None:
    """Two buffers alternate; the output takes the place of one. Then a block for two of them."""
    assert resident_bytes(chain(6)) == 2 * 16 * MIB + 2 * 16 * MIB + regions(16, 16, 32)


def test_a_model_of_one_node_holds_its_output_alone() -> None:
    one = chain(1)
    assert resident_bytes(one) == 16 * MIB + regions(16)
    assert input_bytes(one) == 16 * MIB


def test_a_view_takes_no_memory() -> None:
    kinds = dict.fromkeys(range(4), LARGE)
    places = [
        Occurrence("a", (0,), (1,)),
        Occurrence("reshape", (1,), (2,), in_place=0),
        Occurrence("b", (2,), (3,)),
    ]
    assert resident_bytes(plan(places, types=kinds)) == resident_bytes(chain(2))


def test_a_workspace_takes_new_memory_where_none_is_free() -> None:
    without, nothing, some = (
        resident_bytes(chain(1), {"a": sizes}) for sizes in ((), (0,), (16 * MIB,))
    )
    assert nothing == without
    assert some == without + 16 * MIB + regions(16)


def test_a_workspace_takes_memory_that_is_free() -> None:
    """That of the values whose readers are done, which the last node does not need any more."""
    places = [("a", [i], [i + 1]) for i in range(5)]
    kinds = {v: LARGE if v in (1, 2) else TensorType("FLOAT", (1,)) for v in range(6)}
    alone = plan([*places[:4], ("b", [4], [5])], types=kinds)
    with_workspace = resident_bytes(alone, {"b": (4 * MIB,)})
    assert with_workspace == resident_bytes(alone)


def test_weights_in_the_arena_do_not_count_but_make_it_grow() -> None:
    without, with_one = resident_bytes(chain(1)), resident_bytes(chain(1), weights=(20 * MIB,))
    assert with_one - without == regions(32, 32) - regions(16)


def test_texts_have_no_size_and_are_counted_apart() -> None:
    texts = plan([("a", [0], [1])], types={1: TensorType("STRING", (8,))})
    assert sizeless(texts) == 1
    assert resident_bytes(texts) == 0


@given(random_plans())
def test_values_that_live_at_once_fit_into_what_is_resident(random: Plan) -> None:
    last = {v: i for i, o in enumerate(random.occurrences) for v in o.inputs}
    made = {v for o in random.occurrences for v in o.outputs}
    last |= dict.fromkeys(made.intersection(random.outputs), len(random.occurrences))
    most = live = 0
    for position, occurrence in enumerate(random.occurrences):
        live += sum(random.types[v].size_bytes for v in occurrence.outputs)
        most = max(most, live)
        for v in {*occurrence.inputs, *occurrence.outputs} & made:
            if last.get(v, position) == position:
                live -= random.types[v].size_bytes
    assert resident_bytes(random) >= most
