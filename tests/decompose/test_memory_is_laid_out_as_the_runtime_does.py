from __future__ import annotations

from hypothesis import given
from plans import plan
from random_plans import random_plans

from bricks.decompose.occurrence import Occurrence
from bricks.decompose.plan import Plan
from bricks.decompose.planned_memory import arrange, buffers
from bricks.graph.types import TensorType


def test_integers_keep_buffers_of_their_own() -> None:
    kinds = {1: TensorType("INT64", (4,))}
    layout = arrange(plan([("a", [0], [1]), ("b", [1], [2])], types=kinds))
    assert layout.offsets[1] is None
    assert layout.offsets[0] is not None


def test_bytes_are_quantised_numbers() -> None:
    kinds = {0: TensorType("UINT8", (4,)), 1: TensorType("INT8", (4,)), 2: TensorType("UINT8", ())}
    assert arrange(plan([("a", [0], [1]), ("b", [1], [2])], types=kinds)).offsets == (0, 64, None)


def test_sums_of_quantised_products_are_converted_in_place() -> None:
    kinds = {1: TensorType("INT32", (4,))}
    places = [Occurrence("a", (0,), (1,)), Occurrence("b", (1,), (2,), in_place=0)]
    places.append(Occurrence("c", (2,), (3,)))
    offsets = arrange(plan(places, types=kinds)).offsets
    assert offsets[1] is not None and offsets[1] == offsets[2]


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
    assert arrange(long_chain).size_bytes == 4 * 64  # input, output, and two that alternate


def test_what_came_free_last_is_taken_first() -> None:
    """As in ONNX Runtime, of buffers that were made for the same type."""
    kinds = {v: TensorType("FLOAT", (100,)) for v in range(6)} | {2: TensorType("FLOAT", (99,))}
    diamond = plan(
        [
            ("a", [0], [1]),
            ("b", [1], [2]),
            ("c", [1, 2], [3]),  # frees 1 and 2; 2 is of another type
            ("d", [3], [4]),
            ("e", [4], [5]),
        ],
        types=kinds,
    )
    offsets = arrange(diamond).offsets
    assert offsets[4] == offsets[1]
    assert len(set(offsets[:4])) == 4


def test_of_the_gaps_that_fit_the_smallest_is_taken() -> None:
    kinds = {v: TensorType("FLOAT", (size,)) for v, size in ((1, 200), (3, 100), (6, 90))}
    gaps = plan(
        [
            ("a", [0], [1]),
            ("b", [0], [2]),
            ("c", [0], [3]),
            ("d", [0], [4]),
            ("e", [1, 3], [5]),  # frees both, between others that stay
            ("f", [2, 4, 5], [6]),
            ("g", [6], [7]),
        ],
        types=kinds,
    )
    offsets = arrange(gaps).offsets
    assert offsets[6] == offsets[3]


@given(random_plans())
def test_values_that_live_at_the_same_time_never_overlap(random: Plan) -> None:
    layout = arrange(random)
    last = {v: i for i, o in enumerate(random.occurrences) for v in (*o.outputs, *o.inputs)}
    for v in (*random.inputs, *random.outputs):
        last[v] = len(random.occurrences)
    born = {v: -1 for v in random.inputs}
    born |= {v: i for i, o in enumerate(random.occurrences) for v in o.outputs}
    extent = {}
    for v, type_ in enumerate(random.types):
        offset = layout.offsets[v]
        assert offset is not None and offset % 64 == 0
        extent[v] = (offset, offset + type_.size_bytes)
        assert extent[v][1] <= layout.size_bytes
    for v in born:
        for w in born:
            if v < w and born[v] <= last.get(w, 0) and born[w] <= last.get(v, 0):
                (a, b), (c, d) = extent[v], extent[w]
                assert b <= c or d <= a, (v, w)


def test_a_buffer_goes_to_the_next_value_of_its_shape_and_element_size() -> None:
    float32, int32 = TensorType("FLOAT", (100,)), TensorType("INT32", (100,))
    kinds = {0: int32, 1: int32, 2: float32, 3: float32, 4: TensorType("DOUBLE", (100,))}
    chain = plan([("a", [i], [i + 1]) for i in range(5)], types=kinds)
    found = buffers(chain)
    assert found[3] is found[1]
    assert len({id(found[v]) for v in (0, 1, 2, 4, 5)}) == 5


def test_inputs_outputs_and_scalars_take_no_memory_that_was_used_before() -> None:
    scalar = TensorType("FLOAT", ())
    chain = plan([("a", [i], [i + 1]) for i in range(6)], types={v: scalar for v in range(7)})
    assert len({id(buffer) for buffer in buffers(chain).values()}) == 7
    ordinary = buffers(plan([("a", [i], [i + 1]) for i in range(6)]))
    assert ordinary[6] not in [ordinary[v] for v in range(6)]
    assert ordinary[0] not in [ordinary[v] for v in range(1, 7)]
