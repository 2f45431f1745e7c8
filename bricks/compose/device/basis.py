"""The inputs of an estimate on a device, beside those of every estimate: plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bricks.compose.device.launching import LaunchCosts
from bricks.decompose.plan import Brick
from bricks.samples.measurement import Measurement
from bricks.system.accelerator import Accelerator
from bricks.units.interval import Interval


@dataclass(frozen=True, slots=True)
class PredictedKernels:
    """The kernels of a brick that was not measured, in the form of a measurement.

    ``device_s`` are the seconds of all of them, with the error of the prediction.
    """

    kernels: Measurement
    device_s: Interval


@dataclass(frozen=True, slots=True)
class DeviceBasis:
    """A device, what launching costs there, and the ``predicted`` kernels of unmeasured bricks.

    ``bricks`` are the plan's, from which follows what the cache holds at each call.
    """

    accelerator: Accelerator
    costs: LaunchCosts
    predicted: Mapping[str, PredictedKernels] = field(default_factory=dict)
    bricks: Mapping[str, Brick] = field(default_factory=dict)
