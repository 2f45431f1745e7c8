"""The kernels of a step on a device, with the duration of each where it stands in the step.

Must not know when kernels begin.
"""

from __future__ import annotations

from collections.abc import Mapping

from bricks.decompose.plan import Plan
from bricks.samples.measurement import Measurement
from bricks.system.accelerator import Accelerator
from bricks.units.sample import Kernel


def device_kernels(
    plan: Plan, measured: Mapping[str, Measurement], accelerator: Accelerator
) -> tuple[tuple[Kernel, ...], ...]:
    """The kernels of each occurrence of ``plan`` in order, on a device called ``accelerator``.

    ``measured`` has a measurement of each brick, by key; KeyError for a brick without. A call that
    starts no kernel has none.
    """
    return tuple(measured[occurrence.brick].kernels() for occurrence in plan.occurrences)
