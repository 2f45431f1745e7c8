"""Predicts the device time of calls that were never measured, on a card that may be another one.

Each family of kernels has a roofline in units of the measured card's published peaks, and a
Gaussian process of what calls take beyond it. Seconds on other cards follow from those on this one.
Must not know how kernels were measured, nor how they are added up.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bricks.predict.kernels.card_transfer import carried_s
from bricks.predict.kernels.device_roofline import DeviceRoofline, StatedCall
from bricks.predict.kernels.features import kernel_features
from bricks.predict.kernels.kernel_prediction import STATES, WIDTH, KernelPrediction
from bricks.predict.kernels.kernel_process import KernelProcess
from bricks.predict.kernels.parameters import PARAMS
from bricks.system.cards import Card, card_with_peaks
from bricks.units.interval import Interval, independent_sum

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
