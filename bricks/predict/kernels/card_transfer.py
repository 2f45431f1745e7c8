"""What calls of one card take on another one, by the published peaks of both.

The part of a duration that the bytes explain scales with the bandwidths, the part that the
operations explain with the peaks. What is left scales with the clocks of all multiprocessors, and a
kernel's floor with the clock of one. Must not know how durations are added up.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from bricks.predict.kernels.features import kernel_features
from bricks.predict.kernels.kernel_prediction import STATES, WIDTH, KernelPrediction
from bricks.units.interval import Interval

if TYPE_CHECKING:
    from bricks.decompose.plan import Brick
    from bricks.predict.kernels.work import KernelFeatures
    from bricks.samples.measurement import Measurement
    from bricks.system.cards import Card

# Shares of the peaks that long kernels reach, and what the shortest one takes.
_REACHED_FLOPS, _REACHED_BANDWIDTH = 0.7, 0.85
_FLOOR_S = 2e-6
# The noise of a call from run to run, and the error for each unit of the ratio's logarithm, which
# covers the cards on which the rule was chosen and steps of the H200 on the H100 (research/gpu.md).
_NOISE_SD, _RATIO_SD = 0.03, 0.25


def transferred(
    bricks: Mapping[str, Brick], measured: Mapping[str, Measurement], here: Card, there: Card
) -> dict[str, KernelPrediction]:
    """Predict on card ``there`` the bricks that were measured on card ``here``.

    Raises ValueError for a brick that is no single call of a recorded program.
    """
    chosen = sorted(bricks.keys() & measured.keys())
    return {key: _transferred(bricks[key], measured[key], here, there) for key in chosen}


def carried_s(
    parts: Sequence[KernelFeatures],
    device_s: Interval,
    displaced: int | None,
    here: Card,
    there: Card,
) -> Interval:
    """The seconds of a call with these ``parts`` there, which takes ``device_s`` here.

    ``displaced`` bytes say which state of the cache they are of. The interval grows with the ratio.
    """
    ratio = _ratio(parts, device_s.value, displaced, here, there)
    own, further = math.log(device_s.high / device_s.value), WIDTH * _RATIO_SD * math.log(ratio)
    return Interval.within_factor(ratio * device_s.value, math.exp(math.hypot(own, further)))


def _transferred(brick: Brick, result: Measurement, here: Card, there: Card) -> KernelPrediction:
    parts = kernel_features(brick)
    kernels = {at: own for at, own in result.kernels_by_displaced.items() if own and at in STATES}
    if not parts or not kernels:
        return KernelPrediction.nothing()
    seconds = {at: sum(kernel.device_s for kernel in own) for at, own in kernels.items()}
    noise = math.exp(WIDTH * _NOISE_SD)
    device_s = {
        at: carried_s(parts, Interval.within_factor(own_s, noise), at, here, there)
        for at, own_s in seconds.items()
    }
    count = len(next(iter(kernels.values())))
    names = (" ".join(dict.fromkeys(names)) for names in zip(*map(_names, parts), strict=True))
    operator, family = names
    return KernelPrediction(operator, family, count, device_s)


def _names(part: KernelFeatures) -> tuple[str, str]:
    return part.operator, part.family


def _ratio(
    parts: Sequence[KernelFeatures], device_s: float, displaced: int | None, here: Card, there: Card
) -> float:
    """Seconds there, for each of ``device_s`` seconds here."""
    moved = sum(part.work.read_bytes + part.work.written_bytes for part in parts)
    compute_s, memory_s = _compute_s(parts, here), _memory_s(moved, here)
    floor = min(1.0, _FLOOR_S / device_s)
    if compute_s > memory_s:
        share = min(1.0 - floor, compute_s / device_s)
        scale = _compute_s(parts, there) / compute_s
    else:
        cached = displaced == 0 and moved < min(c.accelerator.l2_bytes for c in (here, there))
        share = 0.0 if cached else min(1.0, memory_s / device_s)
        scale = here.bandwidth_bytes_per_s / there.bandwidth_bytes_per_s
    floor = min(floor, 1.0 - share)
    clocks = _clock_hz(here) / _clock_hz(there)
    processors = here.accelerator.multiprocessors / there.accelerator.multiprocessors
    ratio = share * scale + clocks * (floor + (1.0 - share - floor) * processors)
    return max(ratio, _compute_s(parts, there) / device_s)


def _compute_s(parts: Sequence[KernelFeatures], card: Card) -> float:
    peaks = card.flops_per_s
    works = [part.work for part in parts]
    return sum(
        work.flops / (_REACHED_FLOPS * peaks.get(work.precision, peaks["fp32"])) for work in works
    )


def _memory_s(moved: float, card: Card) -> float:
    return moved / (_REACHED_BANDWIDTH * card.bandwidth_bytes_per_s)


def _clock_hz(card: Card) -> float:
    return card.accelerator.clock_hz or 1.0
