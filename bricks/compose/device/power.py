"""The clock of a device that reaches its power limit, and how much longer kernels take by that.

Products of 16-bit numbers on tensor cores draw more than a card may, if they run for long; then it
lowers its clock. Walks are too short to feel all of it. Must not know measurements.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bricks.graph.tensor import TensorType

if TYPE_CHECKING:
    from bricks.decompose.plan import Brick
    from bricks.system.accelerator import Accelerator

_HALF = frozenset({"BFLOAT16", "FLOAT16"})
# The compute capability of the cards on which the power model was measured.
_MEASURED_ON = "9.0"
# Calls with fewer operations a second are limited by memory, not by the clock.
_BUSY_FLOPS = 50e12


@dataclass(frozen=True, slots=True)
class HalfWork:
    """Operations of 16-bit products of a call, and its seconds in a walk."""

    flops: int
    device_s: float

    @property
    def busy(self) -> bool:
        """Whether the clock limits the call."""
        return self.device_s > 0 and self.flops / self.device_s > _BUSY_FLOPS


def half_flops(brick: Brick) -> int:
    """Operations of a brick on 16-bit numbers; 0 if most of its data are others, or unknown."""
    sizes: dict[str, int] = {}
    for type_ in (*brick.inputs.values(), *brick.weights.values()):
        if isinstance(type_, TensorType) and type_.dtype != "STRING":
            sizes[type_.dtype] = sizes.get(type_.dtype, 0) + type_.size_bytes
    largest = max(sizes, key=lambda dtype: sizes[dtype], default="")
    return (brick.flops or 0) if largest in _HALF else 0


@dataclass(frozen=True, slots=True)
class PowerModel:
    """Power of a card that computes: ``other_w`` beside ``joules`` for each 16-bit operation.

    At the limit the clock falls with the power of ``clock_exponent`` of the power that is missing,
    since the voltage falls with it. Kernels that the clock limits take longer than in walks by the
    power of ``felt`` of the clock's ratio: walks feel a part of it.
    """

    other_w: float = 200.0
    joules: float = 1.4e-12
    clock_exponent: float = 0.4
    felt: float = 0.4

    def clock_share(
        self, calls: Iterable[HalfWork], step_s: float, accelerator: Accelerator
    ) -> float:
        """The share of the highest clock, 0 to 1, at which a step of ``step_s`` seconds runs."""
        limit_w = accelerator.power_limit_w
        flops = sum(call.flops for call in calls)
        if limit_w is None or accelerator.capability != _MEASURED_ON or not flops or not step_s:
            return 1.0
        wanted_w = self.joules * flops / step_s
        return float(min(1.0, ((limit_w - self.other_w) / wanted_w) ** self.clock_exponent))

    def slowdown(self, clock_share: float) -> float:
        """How many times longer a busy call takes than in a walk."""
        return float(clock_share**-self.felt)
