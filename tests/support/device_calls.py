"""Calls on a made-up GPU: bricks of single calls, and what they take by a law that tests state."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from bricks.decompose.build import single_call
from bricks.decompose.plan import Brick
from bricks.graph.program import Call, Port, contiguous
from bricks.graph.types import TensorType
from bricks.samples.measurement import Measurement, Round
from bricks.units.sample import Kernel, Sample

COLD_BYTES = 256 << 20


def product_brick(m: int, n: int, k: int, dtype: str = "BFLOAT16") -> Brick:
    """A product of an m x k and a k x n matrix."""
    call = Call("aten", "mm", ([{"t": 0}, {"t": 1}], {}))
    tensors = TensorType(dtype, (m, k)), TensorType(dtype, (k, n))
    return single_call(call, tensors, [TensorType(dtype, (m, n))])


def call_brick(
    operator: str,
    arguments: list[Any],
    inputs: Sequence[tuple[tuple[int, ...], str]],
    outputs: Sequence[tuple[tuple[int, ...], str]],
    strides: Sequence[tuple[int, ...]] | None = None,
) -> Brick:
    """A call with tensors of these shapes and types; without ``strides`` they are contiguous."""
    every = strides or [contiguous(shape) for shape, _ in inputs]
    ports = tuple(Port(at, 0, own) for at, own in enumerate(every))
    types = [[TensorType(dtype, shape) for shape, dtype in side] for side in (inputs, outputs)]
    return single_call(Call("aten", operator, (arguments, {}), ports), *types)


def sum_brick(elements: int, operator: str = "add.Tensor") -> Brick:
    """A pointwise call with two operands."""
    vector = TensorType("FLOAT", (elements,))
    call = Call("aten", operator, ([{"t": 0}, {"t": 1}], {}))
    return single_call(call, [vector, vector], [vector])


def view_brick(elements: int) -> Brick:
    """A view, which starts no kernel."""
    call = Call("aten", "view", ([{"t": 0}, [elements]], {}), aliases=(0,))
    return single_call(
        call, [TensorType("FLOAT", (1, elements))], [TensorType("FLOAT", (elements,))]
    )


def measured_by(
    law: Callable[[Brick], float], bricks: Iterable[Brick], kernels: int = 1
) -> dict[str, Measurement]:
    """Measurements of bricks whose kernels take ``law`` seconds, in all states of the cache."""
    return {brick.key: _measurement(brick, law(brick), kernels) for brick in bricks}


def _measurement(brick: Brick, device_s: float, kernels: int) -> Measurement:
    run = (Kernel("kernel", device_s / kernels),) * kernels
    states = (None, 0, COLD_BYTES)
    rounds = tuple(Round.of([Sample(1e-6, run, displaced)]) for displaced in states)
    return Measurement(brick.key, rounds, 0.0)
