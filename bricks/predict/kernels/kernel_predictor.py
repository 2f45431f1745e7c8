"""Predicts the device time of calls that were never measured, on a card that may be another one.

Each family of kernels has a roofline in units of the card's published peaks, and a Gaussian process
of what calls take beyond it. Must not know how kernels were measured, nor how they are added up.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bricks.decompose.plan import Brick
from bricks.errors import UsageError
from bricks.predict.interpolation import Interpolation
from bricks.predict.kernels.device_roofline import DeviceRoofline, StatedCall
from bricks.predict.kernels.features import KernelFeatures, kernel_features
from bricks.predict.kernels.kernel_process import process_of, residuals
from bricks.predict.kernels.parameters import PARAMS
from bricks.samples.measurement import Measurement
from bricks.system.accelerator import Accelerator
from bricks.system.cards import Card, card_of
from bricks.units.interval import Interval, common_sum, independent_sum
from bricks.units.sample import Kernel

Array = np.ndarray

# States of the cache by displaced bytes: in a walk, again and again, after all of it was displaced.
COLD_BYTES = 256 << 20
STATES: Mapping[int | None, str] = {None: "walk", 0: "hot", COLD_BYTES: "cold"}

# An operator that nobody measured: the standard deviation of the logarithm is at least this.
_UNKNOWN_SD = 0.5
_WIDTH = 1.96


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

    @property
    def kernels_by_displaced(self) -> Mapping[int | None, tuple[Kernel, ...]]:
        """Kernels of equal duration, called by the operator, by displaced bytes."""
        return {
            displaced: (Kernel(self.operator, own.value / self.count),) * self.count
            for displaced, own in self.device_s.items()
        }


_NOTHING = KernelPrediction("", "", 0, {})


@dataclass(frozen=True, slots=True)
class KernelPredictor:
    """Predicts calls from those measured on one card.

    ``processes`` are by family; ``counts`` are the kernels of most calls of an operator.
    """

    card: Card
    roofline: DeviceRoofline
    processes: Mapping[str, Interpolation]
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
            family: process_of(
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
            (key, displaced): StatedCall(own, state)
            for key, own in features.items()
            if own is not None
            for displaced, state in STATES.items()
        }
        seconds = dict(zip(calls, self._seconds(list(calls.values()), card), strict=True))
        return {
            key: self._prediction(own, {at: seconds[key, at] for at in STATES}) if own else _NOTHING
            for key, own in features.items()
        }

    def _prediction(
        self, features: KernelFeatures, device_s: Mapping[int | None, Interval]
    ) -> KernelPrediction:
        count = self.counts.get(features.operator)
        return KernelPrediction(
            features.operator, features.family, count or 1, device_s, count is not None
        )

    def _seconds(self, calls: Sequence[StatedCall], card: Card | None) -> list[Interval]:
        """The duration of each call."""
        roof_s = self.roofline.seconds(calls, card or self.card)
        logs, variances = np.log(roof_s), np.full(len(calls), _UNKNOWN_SD**2)
        families = np.array([call.features.family for call in calls])
        for family, process in self.processes.items():
            own = np.flatnonzero(families == family)
            if len(own):
                means, squares = residuals(process, [calls[int(at)] for at in own], roof_s[own])
                logs[own] += means
                variances[own] = squares + process.params.noise**2
        known = [call.features.operator in self.counts for call in calls]
        sds = np.where(known, np.sqrt(variances), np.maximum(np.sqrt(variances), _UNKNOWN_SD))
        return [
            Interval.within_factor(math.exp(log), math.exp(_WIDTH * sd))
            for log, sd in zip(logs, sds, strict=True)
        ]


def card_with_peaks(accelerator: Accelerator) -> Card:
    """The card of an accelerator; UsageError if its published peaks are not known."""
    card = card_of(accelerator)
    if card is None:
        raise UsageError(f"the published peaks of {accelerator.name!r} are not known")
    return card


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


def _rows(
    bricks: Mapping[str, Brick], measured: Mapping[str, Measurement]
) -> Iterator[tuple[StatedCall, float, int]]:
    """Each measured call in each state: its seconds and its number of kernels, in order of keys."""
    for key in sorted(bricks.keys() & measured.keys()):
        features = kernel_features(bricks[key])
        for displaced, kernels in measured[key].kernels_by_displaced.items():
            seconds = sum(kernel.device_s for kernel in kernels)
            if features is not None and displaced in STATES and seconds > 0:
                yield StatedCall(features, STATES[displaced]), seconds, len(kernels)


def _counts(rows: Iterable[tuple[StatedCall, float, int]]) -> dict[str, int]:
    counts: dict[str, Counter[int]] = {}
    for call, _, count in rows:
        counts.setdefault(call.features.operator, Counter())[count] += 1
    return {operator: own.most_common(1)[0][0] for operator, own in sorted(counts.items())}
