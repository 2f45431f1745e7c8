"""What calls that were measured on one card take on another, by the published peaks of both.

The measured duration tells how much of it the memory explains: that share scales with the
bandwidths. A call whose operations outweigh its bytes scales with the peaks, what is left with the
clocks. Must not know how durations are added up.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from bricks.decompose.plan import Brick
from bricks.predict.kernels.features import kernel_features
from bricks.predict.kernels.kernel_prediction import STATES, WIDTH, KernelPrediction
from bricks.predict.kernels.work import KernelFeatures
from bricks.samples.measurement import Measurement
from bricks.system.cards import Card
from bricks.units.interval import Interval

# Shares of the peaks that long kernels reach, and what the shortest one takes.
_REACHED_FLOPS, _REACHED_BANDWIDTH = 0.7, 0.85
_FLOOR_S = 2e-6
# The noise of a call from run to run, and the error for each unit of the ratio's logarithm.
_NOISE_SD, _RATIO_SD = 0.03, 0.5


def transferred(
    bricks: Mapping[str, Brick], measured: Mapping[str, Measurement], here: Card, there: Card
) -> dict[str, KernelPrediction]:
    """Predict on card ``there`` the bricks that were measured on card ``here``.

    Raises ValueError for a brick that is no single call of a recorded program.
    """
    chosen = sorted(bricks.keys() & measured.keys())
    return {key: _transferred(bricks[key], measured[key], here, there) for key in chosen}


def _transferred(brick: Brick, result: Measurement, here: Card, there: Card) -> KernelPrediction:
    parts = kernel_features(brick)
    kernels = {at: own for at, own in result.kernels_by_displaced.items() if own and at in STATES}
    if not parts or not kernels:
        return KernelPrediction.nothing()
    seconds = {at: sum(kernel.device_s for kernel in own) for at, own in kernels.items()}
    device_s = {at: _scaled(parts, own_s, at, here, there) for at, own_s in seconds.items()}
    count = len(next(iter(kernels.values())))
    names = (" ".join(dict.fromkeys(names)) for names in zip(*map(_names, parts), strict=True))
    operator, family = names
    return KernelPrediction(operator, family, count, device_s)


def _names(part: KernelFeatures) -> tuple[str, str]:
    return part.operator, part.family


def _scaled(
    parts: Sequence[KernelFeatures], device_s: float, displaced: int | None, here: Card, there: Card
) -> Interval:
    """``device_s`` seconds ``here``, there; the error grows with the ratio."""
    ratio = _ratio(parts, device_s, displaced, here, there)
    sd = math.hypot(_NOISE_SD, _RATIO_SD * math.log(ratio))
    return Interval.within_factor(ratio * device_s, math.exp(WIDTH * sd))


def _ratio(
    parts: Sequence[KernelFeatures], device_s: float, displaced: int | None, here: Card, there: Card
) -> float:
    moved = sum(part.work.read_bytes + part.work.written_bytes for part in parts)
    memory_s = moved / (_REACHED_BANDWIDTH * here.bandwidth_bytes_per_s)
    compute_s, there_s = (_compute_s(parts, card) for card in (here, there))
    clocks = (here.accelerator.clock_hz or 1.0) / (there.accelerator.clock_hz or 1.0)
    if compute_s > memory_s:
        share = max(0.0, 1.0 - _FLOOR_S / device_s)
        return share * there_s / compute_s + (1.0 - share) * clocks
    cached = displaced == 0 and moved < min(c.accelerator.l2_bytes for c in (here, there))
    share = 0.0 if cached else min(1.0, memory_s / device_s)
    bandwidths = here.bandwidth_bytes_per_s / there.bandwidth_bytes_per_s
    return share * bandwidths + (1.0 - share) * clocks


def _compute_s(parts: Sequence[KernelFeatures], card: Card) -> float:
    peaks = card.flops_per_s
    works = [part.work for part in parts]
    return sum(
        work.flops / (_REACHED_FLOPS * peaks.get(work.precision, peaks["fp32"])) for work in works
    )
