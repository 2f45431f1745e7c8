"""Calls of a step for which the host waits, although none of their kernels tells.

The kernels of a measured call say that it copies to the host. Those of a predicted one may not.
Calls on the host wait for nothing. Must not know how kernels were measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from bricks.compose.device.launching import copies_to_host
from bricks.graph.form import operator_title
from bricks.operators.waiting import returns_to_host, selects_by_masks
from bricks.predict.kernels.call_tensors import tensor_call
from bricks.units.sample import COPY_TO_HOST, Kernel

if TYPE_CHECKING:
    from bricks.decompose.plan import Brick, Plan

# A copy of a scalar took 1.5 to 2 µs on an H200.
_COPY = Kernel(COPY_TO_HOST, 2e-6)


def with_copies(
    plan: Plan, kernels: Sequence[Sequence[Kernel]], bricks: Mapping[str, Brick]
) -> tuple[Sequence[Kernel], ...]:
    """The ``kernels`` of each occurrence of ``plan``, with the copies that it waits for.

    Bricks that are not among ``bricks``, by key, keep their kernels.
    """
    waiting = {key: _waits(brick) for key, brick in bricks.items()}
    return tuple(
        (*own, _COPY) if waiting.get(of.brick) and not copies_to_host(own) else own
        for of, own in zip(plan.occurrences, kernels, strict=True)
    )


def _waits(brick: Brick) -> bool:
    masks = any(getattr(of, "dtype", None) == "BOOL" for of in brick.inputs.values())
    names = map(operator_title, brick.operators)
    if not any(returns_to_host(name) or (masks and selects_by_masks(name)) for name in names):
        return False
    call = tensor_call(brick)
    return call is None or not call.call.on_host
