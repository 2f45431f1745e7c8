"""Calls of a step for which the host waits, although none of their kernels tells.

The kernels of a measured call say that it copies to the host. Those of a predicted one don't; nor
do they for a scalar, which is read from the device or, where an optimiser counts its steps, from
the host. Must not know how kernels were measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bricks.compose.device.launching import TO_HOST, copies_to_host
from bricks.decompose.plan import Brick, Plan
from bricks.graph.form import operator_title
from bricks.graph.program_phases import OPTIMIZER
from bricks.operators.waiting import returns_to_host, selects_by_masks
from bricks.units.sample import Kernel

# A copy of a scalar took 1.5 to 2 µs on an H200.
_COPY = Kernel(TO_HOST, 2e-6)
_SCALAR = "_local_scalar_dense"


def with_copies(
    plan: Plan, kernels: Sequence[Sequence[Kernel]], bricks: Mapping[str, Brick]
) -> tuple[Sequence[Kernel], ...]:
    """The ``kernels`` of each occurrence of ``plan``, with the copies that it waits for.

    Bricks that are not among ``bricks``, by key, keep their kernels.
    """
    waiting = {key: _waits(brick) for key, brick in bricks.items()}
    scalars = {key for key, of in bricks.items() if _SCALAR in map(operator_title, of.operators)}
    phases = plan.memory.phase_names or [""] * len(plan.occurrences)
    found = list[Sequence[Kernel]]()
    for occurrence, phase, own in zip(plan.occurrences, phases, kernels, strict=True):
        if phase == OPTIMIZER and occurrence.brick in scalars:  # counts of steps
            found.append(())
        elif waiting.get(occurrence.brick) and not copies_to_host(own):
            found.append((*own, _COPY))
        else:
            found.append(own)
    return tuple(found)


def _waits(brick: Brick) -> bool:
    masks = any(getattr(of, "dtype", None) == "BOOL" for of in brick.inputs.values())
    names = map(operator_title, brick.operators)
    return any(returns_to_host(name) or (masks and selects_by_masks(name)) for name in names)
