"""Predicts the device time of calls that were never measured, on a card that may be another one.

Each family of kernels has a roofline in units of the measured card's published peaks, and a
Gaussian process of what calls take beyond it. Seconds on other cards follow from those on this one.

The part of a duration that the bytes explain scales with the bandwidths, the part that the
operations explain with the peaks. What is left scales with the clocks of all multiprocessors, and a
kernel's floor with the clock of one. Must not know how kernels were measured, nor how calls follow
each other.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bricks.predict.kernels.device_roofline import DeviceRoofline, StatedCall
from bricks.predict.kernels.features import kernel_features
from bricks.predict.kernels.kernel_process import PARAMS, KernelProcess
from bricks.system.cards import Card, card_with_peaks
from bricks.units.interval import Interval, common_sum, independent_sum
from bricks.units.sample import COPY_TO_HOST, Kernel

if TYPE_CHECKING:
    from bricks.decompose.plan import Brick
    from bricks.predict.kernels.work import KernelFeatures
    from bricks.samples.measurement import Measurement
    from bricks.system.accelerator import Accelerator

Array = np.ndarray

# An operator that nobody measured: the standard deviation of the logarithm is at least this.
_UNKNOWN_SD = 0.5


@dataclass(frozen=True, slots=True)
class KernelPredictor:
    """Predicts calls from those measured on one card.

    ``processes`` are by family; ``counts`` are the kernels of most calls of an operator.
    """

    card: Card
    roofline: DeviceRoofline
    processes: Mapping[str, KernelProcess]
    counts: Mapping[str, int]

    @classmethod
    def learn(
        cls,
        bricks: Mapping[str, Brick],
        measured: Mapping[str, Measurement],
        accelerator: Accelerator,
    ) -> KernelPredictor:
        """Learn from the bricks that are in both; UsageError if the card's peaks are not known."""
        card = card_with_peaks(accelerator)
        rows = list(_rows(bricks, measured))
        calls = [call for call, _, _ in rows]
        device_s = np.array([seconds for _, seconds, _ in rows])
        roofline = DeviceRoofline.fit(calls, device_s, card)
        roof_s = roofline.seconds(calls, card)
        families = np.array([call.features.family for call in calls])
        processes = {
            family: KernelProcess.of(
                PARAMS[family], [calls[at] for at in own], roof_s[own], device_s[own]
            )
            for family in sorted(set(families))
            if len(own := np.flatnonzero(families == family))
        }
        return cls(card, roofline, processes, _counts(rows))

    def predict(self, brick: Brick, card: Card | None = None) -> KernelPrediction:
        """Predict the kernels of one brick; ValueError if it is no single call."""
        return self.predictions({brick.key: brick}, card)[brick.key]

    def predictions(
        self, bricks: Mapping[str, Brick], card: Card | None = None
    ) -> dict[str, KernelPrediction]:
        """Predict many bricks by key, on ``card`` or on the one that was measured."""
        features = {key: kernel_features(brick) for key, brick in bricks.items()}
        calls = {
            (key, part, displaced): StatedCall(own, state)
            for key, parts in features.items()
            for part, own in enumerate(parts)
            for displaced, state in STATES.items()
        }
        seconds = dict(zip(calls, self._seconds(list(calls.values())), strict=True))
        if card is not None:
            seconds = {
                (key, part, at): carried_s((features[key][part],), own_s, at, self.card, card)
                for (key, part, at), own_s in seconds.items()
            }
        return {
            key: self._prediction(
                parts, {at: [seconds[key, part, at] for part in range(len(parts))] for at in STATES}
            )
            for key, parts in features.items()
        }

    def _prediction(
        self,
        parts: Sequence[KernelFeatures],
        device_s: Mapping[int | None, Sequence[Interval]],
    ) -> KernelPrediction:
        """The prediction of a call with all of its parts, whose errors are independent."""
        if not parts:
            return KernelPrediction.nothing()
        counts = [self.counts.get(own.operator) for own in parts]
        total_s = {at: independent_sum(seconds).positive() for at, seconds in device_s.items()}
        return KernelPrediction(
            "+".join(dict.fromkeys(own.operator for own in parts)),
            "+".join(dict.fromkeys(own.family for own in parts)),
            sum(count or 1 for count in counts),
            total_s if len(parts) > 1 else {at: own[0] for at, own in device_s.items()},
            None not in counts,
        )

    def _seconds(self, calls: Sequence[StatedCall]) -> list[Interval]:
        """The duration of each call on the card that was measured."""
        roof_s = self.roofline.seconds(calls, self.card)
        logs, variances = np.log(roof_s), np.full(len(calls), _UNKNOWN_SD**2)
        families = np.array([call.features.family for call in calls])
        for family, process in self.processes.items():
            own = np.flatnonzero(families == family)
            if len(own):
                means, squares = process.predict([calls[int(at)] for at in own], roof_s[own])
                logs[own] += means
                variances[own] = squares + process.params.noise**2
        known = [call.features.operator in self.counts for call in calls]
        sds = np.where(known, np.sqrt(variances), np.maximum(np.sqrt(variances), _UNKNOWN_SD))
        return [
            Interval.within_factor(math.exp(log), math.exp(WIDTH * sd))
            for log, sd in zip(logs, sds, strict=True)
        ]


def _rows(
    bricks: Mapping[str, Brick], measured: Mapping[str, Measurement]
) -> Iterator[tuple[StatedCall, float, int]]:
    """Each measured call in each state: its seconds and its number of kernels, in order of keys."""
    for key in sorted(bricks.keys() & measured.keys()):
        features = kernel_features(bricks[key])
        for displaced, kernels in measured[key].kernels_by_displaced.items():
            seconds = sum(kernel.device_s for kernel in kernels)
            if len(features) == 1 and displaced in STATES and seconds > 0:
                yield StatedCall(features[0], STATES[displaced]), seconds, len(kernels)


def _counts(rows: Iterable[tuple[StatedCall, float, int]]) -> dict[str, int]:
    counts: dict[str, Counter[int]] = {}
    for call, _, count in rows:
        counts.setdefault(call.features.operator, Counter())[count] += 1
    return {operator: own.most_common(1)[0][0] for operator, own in sorted(counts.items())}


# States of the cache by displaced bytes: in a walk, again and again, after all of it was displaced.
COLD_BYTES = 256 << 20
STATES: Mapping[int | None, str] = {None: "walk", 0: "hot", COLD_BYTES: "cold"}

# What operators start that start no kernel of their own name: the host waits for a copy.
_STARTED: Mapping[str, str] = {"_local_scalar_dense": COPY_TO_HOST}

# Half the width of a 95 % interval in standard deviations.
WIDTH = 1.96


@dataclass(frozen=True, slots=True)
class KernelPrediction:
    """The predicted kernels of one call.

    ``device_s`` is the total by displaced bytes, as in
    :attr:`~bricks.samples.measurement.Measurement.kernels_by_displaced`: None in a walk. A call
    that starts no kernel has a ``count`` of 0, and no times. ``known`` says whether calls of its
    operator were measured.
    """

    operator: str
    family: str
    count: int
    device_s: Mapping[int | None, Interval]
    known: bool = True

    @classmethod
    def nothing(cls) -> KernelPrediction:
        """The prediction of a call that starts no kernel."""
        return cls("", "", 0, {})

    @property
    def kernels_by_displaced(self) -> Mapping[int | None, tuple[Kernel, ...]]:
        """Kernels of equal duration, called by the operator, by displaced bytes."""
        name = _STARTED.get(self.operator, self.operator)
        return {
            displaced: (Kernel(name, own.value / self.count),) * self.count
            for displaced, own in self.device_s.items()
        }


def total_s(predictions: Iterable[tuple[KernelPrediction, int]], state: int | None) -> Interval:
    """The sum of predicted calls with their numbers of occurrences, in one state of the cache.

    Errors of calls of one operator are taken as common: their ends add up. Those of different
    operators are independent.
    """
    by_operator: dict[str, list[Interval]] = {}
    for prediction, times in predictions:
        if prediction.count:
            own = prediction.device_s[state].scaled(times)
            by_operator.setdefault(prediction.operator, []).append(own)
    return independent_sum([common_sum(parts) for parts in by_operator.values()]).positive()


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
    compute_s, memory_s = (
        _compute_s(parts, here),
        (moved / (_REACHED_BANDWIDTH * here.bandwidth_bytes_per_s)),
    )
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


def _clock_hz(card: Card) -> float:
    return card.accelerator.clock_hz or 1.0
