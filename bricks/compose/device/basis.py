"""Further inputs of an estimate on a device: plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bricks.compose.device.launching import LaunchCosts
    from bricks.decompose.plan import Brick
    from bricks.samples.measurement import Measurement
    from bricks.system.accelerator import Accelerator
    from bricks.units.interval import Interval


@dataclass(frozen=True, slots=True)
class PredictedKernels:
    """The kernels of a brick that was not measured, in the form of a measurement.

    ``device_s`` are the seconds of all of them, ``host_s`` those of the host for the call, with the
    errors of their predictions, which bricks of one ``operator`` have in common. They are
    ``carried`` if another card ran the same call.
    """

    operator: str
    kernels: Measurement
    device_s: Interval
    host_s: Interval
    carried: bool = False


@dataclass(frozen=True, slots=True)
class DeviceBasis:
    """A device, what launching costs there, and the ``predicted`` kernels of unmeasured bricks.

    ``bricks`` are those of the plan, by key, from which the state of the device's cache follows.
    ``transfer_error`` is half the width, relative to all kernels, of an error that all predictions
    have in common because another card was measured; 0 for the card itself.
    """

    accelerator: Accelerator
    costs: LaunchCosts
    bricks: Mapping[str, Brick]
    predicted: Mapping[str, PredictedKernels] = field(default_factory=dict)
    transfer_error: float = 0.0
