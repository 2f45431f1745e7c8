from __future__ import annotations

from dataclasses import replace

import numpy as np
from factories import constant, one_node, value
from plans import plan

from bricks.compose.memory.weights import weight_memory
from bricks.decompose.identity import Cutter
from bricks.decompose.occurrence import Occurrence
from bricks.decompose.plan import Brick, Plan
from bricks.graph.types import TensorType
from bricks.graph.view import graph_of


def brick(op: str, result: tuple[int, ...], *shapes: tuple[int, ...], **more: object) -> Brick:
    """A brick that reads ``x`` (the first shape) and weights of the others."""
    arrays = [np.full(shape, 0.5) for shape in shapes[1:]]
    weights = [constant(f"w{i}", array, "FLOAT") for i, array in enumerate(arrays)]
    proto = one_node(op, [value("x", list(shapes[0]))], [value("y", list(result))], weights, **more)
    types = {"y": TensorType("FLOAT", result)}
    return Cutter(graph_of(proto, types)).cut((0,)).brick


PRODUCT = brick("MatMul", (8, 1000), (8, 500), (500, 1000))
LOOKUP = brick("Mul", (8, 1000), (8, 1000), (8, 1000))


def known(places: list[Occurrence]) -> Plan:
    return replace(plan(places), rewritten_bytes=0)


def places(*bricks: tuple[Brick, tuple[int, ...]]) -> list[Occurrence]:
    return [Occurrence(b.key, (i,), (i + 1,), weights=w) for i, (b, w) in enumerate(bricks)]


def test_a_product_keeps_its_weight_packed_with_padded_columns_instead_of_the_original() -> None:
    memory = weight_memory(known(places((PRODUCT, (0,)))), {PRODUCT.key: PRODUCT})
    assert memory.kept_bytes == 4 * 500 * 1008
    assert memory.loading_bytes == memory.kept_bytes + 4 * 500 * 1000  # both, while it is packed


def test_a_weight_that_occurrences_share_counts_once() -> None:
    bricks = {PRODUCT.key: PRODUCT}
    shared = weight_memory(known(places((PRODUCT, (0,)), (PRODUCT, (0,)))), bricks)
    separate = weight_memory(known(places((PRODUCT, (0,)), (PRODUCT, (1,)))), bricks)
    assert separate.kept_bytes == 2 * shared.kept_bytes
    assert (shared.count, separate.count) == (1, 2)


def test_a_weight_that_kernels_keep_in_two_forms_counts_twice() -> None:
    other = brick("Mul", (8, 500, 1000), (8, 500, 1000), (500, 1000))
    both = {PRODUCT.key: PRODUCT, other.key: other}
    tied = weight_memory(known(places((PRODUCT, (0,)), (other, (0,)))), both)
    assert tied.kept_bytes == 4 * 500 * 1008 + 4 * 500 * 1000


def test_weights_whose_numbers_are_not_known_count_at_each_place() -> None:
    memory = weight_memory(known(places((LOOKUP, ()), (LOOKUP, ()))), {LOOKUP.key: LOOKUP})
    assert memory.kept_bytes == 2 * LOOKUP.weight_bytes


def test_a_mapped_weight_takes_nothing_while_the_model_is_loaded() -> None:
    memory = weight_memory(known(places((LOOKUP, (0,)))), {LOOKUP.key: LOOKUP})
    assert memory.kept_bytes == LOOKUP.weight_bytes
    assert memory.loading_bytes == 0


def test_reordering_needs_three_more_copies_of_one_weight_at_a_time() -> None:
    small, large = (
        brick(
            "Conv", (1, n, 8, 8), (1, 16, 8, 8), (n, 16, 3, 3),
            domain="com.microsoft.nchwc", pads=[1, 1, 1, 1],
        )
        for n in (16, 32)
    )  # fmt: skip
    bricks = {b.key: b for b in (small, large)}
    (a, b) = (small.weight_bytes, large.weight_bytes)
    rising = weight_memory(known(places((small, (0,)), (large, (1,)))), bricks)
    falling = weight_memory(known(places((large, (0,)), (small, (1,)))), bricks)
    assert rising.kept_bytes == falling.kept_bytes == a + b
    assert rising.loading_bytes == a + b + 3 * b
    assert falling.loading_bytes == b + 3 * b


def test_weights_that_fusion_has_rewritten_are_there_while_others_are_reordered() -> None:
    conv = brick(
        "Conv", (1, 16, 8, 8), (1, 16, 8, 8), (16, 16, 3, 3),
        domain="com.microsoft.nchwc", pads=[1, 1, 1, 1],
    )  # fmt: skip
    bare = known(places((conv, (0,))))
    fused = replace(bare, rewritten_bytes=1000)
    bricks = {conv.key: conv}
    more = weight_memory(fused, bricks).loading_bytes - weight_memory(bare, bricks).loading_bytes
    assert more == 1000
    unknown = weight_memory(replace(bare, rewritten_bytes=None), bricks)
    assert not unknown.rewriting_known


def test_only_transposed_convolutions_keep_weights_in_the_arena() -> None:
    up = brick("ConvTranspose", (1, 8, 8, 8), (1, 16, 4, 4), (16, 8, 2, 2), strides=[2, 2])
    both = {up.key: up, PRODUCT.key: PRODUCT}
    memory = weight_memory(known(places((up, (0,)), (PRODUCT, (1,)))), both)
    assert memory.in_arena == (up.weight_bytes,)
