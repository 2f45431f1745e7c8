"""A call that returns a value to the host waits for the device, whatever its kernels tell."""

from __future__ import annotations

import pytest
from plans import plan

from bricks.compose.device.launching import copies_to_host
from bricks.compose.device.recompose import with_copies
from bricks.decompose.build import single_call
from bricks.decompose.plan import Brick
from bricks.graph.program import Call
from bricks.graph.types import TensorType
from bricks.units.sample import COPY_TO_HOST, Kernel

VECTOR, MASK, SCALAR = TensorType("FLOAT", (8,)), TensorType("BOOL", (8,)), TensorType("FLOAT", ())
KERNELS = (Kernel("kernel", 1e-5),)
COPY = (Kernel(f"{COPY_TO_HOST} (Device -> Pinned)", 1e-6),)


def called(operator: str, *inputs: TensorType) -> Brick:
    arguments: list[object] = [{"t": n} for n in range(len(inputs))]
    return single_call(Call("aten", operator, (arguments, {})), inputs, [VECTOR])


@pytest.mark.parametrize(
    ("brick", "waits"),
    [
        (called("nonzero", VECTOR), True),
        (called("_local_scalar_dense", SCALAR), True),
        (called("index.Tensor", VECTOR, MASK), True),
        (called("index.Tensor", VECTOR, TensorType("INT64", (8,))), False),
        (called("add.Tensor", VECTOR, VECTOR), False),
    ],
    ids=["sizes", "a scalar", "a mask", "indices", "a sum"],
)
@pytest.mark.parametrize("own", [(), KERNELS], ids=["no kernel", "a kernel"])
def test_results_on_the_host_are_copied(brick: Brick, waits: bool, own: tuple[Kernel, ...]) -> None:
    (found,) = with_copies(plan([(brick.key, [0], [1])]), [own], {brick.key: brick})
    assert copies_to_host(found) is waits
    assert tuple(found[: len(own)]) == own


def test_a_measured_copy_is_not_made_twice() -> None:
    brick = called("nonzero", VECTOR)
    row = plan([(brick.key, [0], [1])])
    assert with_copies(row, [COPY], {brick.key: brick}) == (COPY,)
    assert with_copies(row, [KERNELS], {}) == (KERNELS,)


def test_a_number_of_the_host_is_read_without_waiting() -> None:
    call = Call("aten", "_local_scalar_dense", ([{"t": 0}], {}), on_host=True)
    brick = single_call(call, [SCALAR], [])
    assert with_copies(plan([(brick.key, [0], [1])]), [()], {brick.key: brick}) == ((),)
