"""The kernels of a step on a device, with the duration of each where it stands in the step.

Durations were measured in walks, hot and cold; the state of the cache and of the clock in a step
follow from the plan.

Products of 16-bit numbers on tensor cores draw more than a card may, if they run for long; then it
lowers its clock. Walks are too short to feel all of it. Must not know when kernels begin.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bricks.compose.device.cache_state import CacheModel, CallTimes, StepReuses
from bricks.graph.types import TensorType
from bricks.units.sample import Kernel

if TYPE_CHECKING:
    from bricks.decompose.plan import Brick, Plan
    from bricks.samples.measurement import Measurement
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


# The relative error of a sum of walks, whose worst is that of models that stay in the L2.
_WALK_ERROR = 0.22


@dataclass(frozen=True, slots=True)
class UncertaintyModel:
    """The relative error of a step's device time: the half width of its 95 % interval.

    Its parts are an error of ``every`` step, one of the time that depends on the cache (``spread``
    of it), and one of what the clock falls by (``clock`` of it); ``factor`` scales all.
    """

    every: float = 0.012
    spread: float = 0.13
    clock: float = 0.35
    factor: float = 0.82

    def error(self, spread_share: float, clock_share: float) -> float:
        """The error where ``spread_share`` of a step lies between hot and cold calls."""
        own = self.spread * spread_share, self.clock * (1 - clock_share)
        return self.factor * math.hypot(self.every, *own)


@dataclass(frozen=True, slots=True)
class DeviceModel:
    """How the cache and the clock of a device change a step; constants are of an H100 and H200."""

    cache: CacheModel = field(default_factory=CacheModel)
    power: PowerModel = field(default_factory=PowerModel)
    uncertainty: UncertaintyModel = field(default_factory=UncertaintyModel)


@dataclass(frozen=True, slots=True)
class StepKernels:
    """The kernels of each occurrence of a step, in order.

    ``error`` is the relative half width of the 95 % interval of their sum, ``clock_share`` the
    share of the highest clock at which the step runs.
    """

    kernels: tuple[tuple[Kernel, ...], ...]
    error: float
    clock_share: float = 1.0

    @property
    def device_s(self) -> float:
        """Seconds of all kernels."""
        return sum(kernel.device_s for call in self.kernels for kernel in call)


@dataclass(frozen=True, slots=True)
class StepDurations:
    """The seconds of each occurrence's kernels; ``error`` and clock as of :class:`StepKernels`."""

    calls_s: tuple[float, ...]
    error: float
    clock_share: float

    @property
    def device_s(self) -> float:
        """Seconds of all kernels."""
        return sum(self.calls_s)


def device_kernels(
    plan: Plan,
    measured: Mapping[str, Measurement],
    accelerator: Accelerator,
    bricks: Mapping[str, Brick] | None = None,
) -> tuple[tuple[Kernel, ...], ...]:
    """The kernels of each occurrence of ``plan`` in order, as :func:`step_kernels`."""
    return step_kernels(plan, measured, accelerator, bricks).kernels


def step_kernels(
    plan: Plan,
    measured: Mapping[str, Measurement],
    accelerator: Accelerator,
    bricks: Mapping[str, Brick] | None = None,
    model: DeviceModel | None = None,
) -> StepKernels:
    """The kernels of a step of ``plan`` on ``accelerator``, after an equal step.

    ``measured`` has a measurement of each brick by key; KeyError for a brick without. Unless all
    ``bricks`` are known, kernels take what they take in a walk, with a wide error. A call that
    starts no kernel has none.
    """
    keys = [occurrence.brick for occurrence in plan.occurrences]
    states = {key: MeasuredStates.of(measured[key]) for key in dict.fromkeys(keys)}
    if bricks is None or not bricks.keys() >= states.keys():
        return StepKernels(tuple(states[key].walk for key in keys), _WALK_ERROR)
    used = StepReuses.of(plan, bricks, [bool(states[key].walk) for key in keys])
    return StepModel(keys, states, used, bricks, accelerator).kernels(model or DeviceModel())


@dataclass(frozen=True, slots=True)
class MeasuredStates:
    """The mean kernels of a brick in a walk, hot and cold; empty for states not measured.

    Where it was not ``walked``, another state stands for the walk. Of a walk that was timed
    ``at_power_limit``, the clock was as low as in a step.
    """

    walk: tuple[Kernel, ...]
    hot: tuple[Kernel, ...]
    cold: tuple[Kernel, ...]
    walked: bool = True
    at_power_limit: bool = False

    @classmethod
    def of(cls, measurement: Measurement) -> MeasuredStates:
        """The states of ``measurement``."""
        by_displaced = measurement.kernels_by_displaced
        displaced = [state for state in by_displaced if state]
        hot = by_displaced.get(0, ())
        cold = by_displaced[max(displaced)] if displaced else ()
        walk = by_displaced.get(None, ())
        limited = measurement.throttled is not None and measurement.throttled.at_power_limit
        return cls(walk or cold or hot, hot, cold, bool(walk), limited)

    @property
    def times(self) -> CallTimes | None:
        """Seconds in the three states; None unless all are known."""
        if not (self.walk and self.hot and self.cold):
            return None
        return CallTimes(*map(_sum_s, (self.walk, self.hot, self.cold)))

    def lasting(self, device_s: float) -> tuple[Kernel, ...]:
        """The kernels of the walk, all longer by one factor, so that they take ``device_s``."""
        walk_s = _sum_s(self.walk)
        factor = device_s / walk_s if walk_s else 1.0
        return tuple(Kernel(kernel.name, factor * kernel.device_s) for kernel in self.walk)


def _sum_s(kernels: Sequence[Kernel]) -> float:
    return sum(kernel.device_s for kernel in kernels)


@dataclass(frozen=True, slots=True)
class StepModel:
    """All that the durations of a step's kernels follow from, except the constants of a model."""

    keys: Sequence[str]
    states: Mapping[str, MeasuredStates]
    used: StepReuses
    bricks: Mapping[str, Brick]
    accelerator: Accelerator

    def kernels(self, model: DeviceModel) -> StepKernels:
        """The kernels with the constants of ``model``."""
        of = self.durations(model)
        calls = zip(self.keys, of.calls_s, strict=True)
        kernels = tuple(self.states[key].lasting(call_s) for key, call_s in calls)
        return StepKernels(kernels, of.error, of.clock_share)

    def durations(self, model: DeviceModel) -> StepDurations:
        """The seconds of each occurrence's kernels with the constants of ``model``."""
        cached_s = self.cached_s(model.cache)
        step_s = sum(cached_s)
        work = {
            key: HalfWork(half_flops(self.bricks[key]), _sum_s(of.walk))
            for key, of in self.states.items()
        }
        clock = model.power.clock_share([work[k] for k in self.keys], step_s, self.accelerator)
        busy = [key for key in work if work[key].busy and not self.states[key].at_power_limit]
        slower = dict.fromkeys(busy, model.power.slowdown(clock))
        calls = zip(self.keys, cached_s, strict=True)
        calls_s = tuple(slower.get(key, 1.0) * call_s for key, call_s in calls)
        # The share of a step that lies between hot and cold calls.
        times = (self.states[key].times for key in self.keys)
        spread_s = sum(of.spread_s for of in times if of is not None)
        error = model.uncertainty.error(spread_s / step_s if step_s else 0.0, clock)
        return StepDurations(calls_s, error, clock)

    def cached_s(self, model: CacheModel) -> list[float]:
        """Seconds of each occurrence's kernels with the cache in the state of a step."""
        l2_bytes = self.accelerator.l2_bytes
        walks = {key: model.walk_missing(of, l2_bytes) for key, of in self.used.walk.items()}
        return [
            self._call_s(model, key, model.missing(reuses, l2_bytes), walks.get(key))
            for key, reuses in zip(self.keys, self.used.step, strict=True)
        ]

    def _call_s(self, model: CacheModel, key: str, missing: float, walk: float | None) -> float:
        times = self.states[key].times
        if times is None or walk is None:
            return _sum_s(self.states[key].walk)
        if not self.states[key].walked:
            return model.hot_to_cold_s(times, missing)
        return model.device_s(times, missing, walk)
