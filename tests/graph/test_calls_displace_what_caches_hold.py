from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bricks.graph.program import ALL_BYTES, Call, evicted_share, touched_bytes
from bricks.graph.types import TensorType

MATRIX = TensorType("FLOAT", (512, 512))
TYPES = {"a": MATRIX, "b": MATRIX, "c": MATRIX}


def call(operator: str, aliases: tuple[int, ...] = (), namespace: str = "aten") -> Call:
    return Call(namespace, operator, ([{"t": 0}, {"t": 1}], {}), aliases=aliases)


def test_a_call_touches_what_it_reads_and_what_it_makes() -> None:
    assert touched_bytes(call("mm").node(["a", "b"], ["c"]), TYPES) == 3 * MATRIX.size_bytes


@pytest.mark.parametrize("operator", ["add_.Tensor", "mm.out", "sum.IntList_out"])
def test_what_works_in_place_touches_a_tensor_once(operator: str) -> None:
    node = call(operator, (0,)).node(["a", "b"], ["c"])
    assert touched_bytes(node, TYPES) == 2 * MATRIX.size_bytes


def test_a_view_touches_nothing() -> None:
    assert touched_bytes(call("t", (0,)).node(["a"], ["c"]), TYPES) == 0


def test_a_kernel_that_fills_what_it_is_given_is_no_view() -> None:
    node = call("k", (0,), "kernel").node(["a", "b"], ["c"])
    assert touched_bytes(node, TYPES) == 2 * MATRIX.size_bytes


@given(st.integers(0, 1 << 40), st.integers(0, 1 << 40))
def test_more_bytes_never_displace_less(one: int, other: int) -> None:
    less, more = sorted((one, other))
    assert 0 <= evicted_share(less) <= evicted_share(more) <= 1


def test_small_calls_displace_nothing_and_large_ones_all() -> None:
    assert evicted_share(4096) == 0
    assert evicted_share(ALL_BYTES) == pytest.approx(1)
