"""Corrects a latency from the conditions in which it was measured to others.

The change of each reference kernel between the two, times how the brick follows it
(:mod:`bricks.samples.sensitivity`). Whole measurements are corrected, not rounds: the kernels of
one round vary more than the mean over all. Must not know how latencies are measured.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bricks.samples.sensitivity import (
    INDEPENDENT_SD,
    SHARED_SD,
    UNSEEN_SD,
    Sensitivities,
    changes,
    mean_sensitivity,
)
from bricks.samples.statistics import NORMAL_95, median
from bricks.samples.usual_conditions import UsualConditions, mean_error

if TYPE_CHECKING:
    from bricks.samples.measurement import Measurement
    from bricks.system.host_conditions import HostConditions


@dataclass(frozen=True, slots=True)
class Factor:
    """The factor to multiply a latency with, and the error that this brings: log-normal.

    ``independent_sd`` is the standard deviation of the logarithm of this latency's own error.
    """

    middle: float = 1.0
    independent_sd: float = 0.0

    @property
    def low(self) -> float:
        """The lower end of the interval that holds 95 % of such factors."""
        return self.middle * math.exp(-NORMAL_95 * self.independent_sd)

    @property
    def high(self) -> float:
        """The upper end of that interval."""
        return self.middle * math.exp(NORMAL_95 * self.independent_sd)


@dataclass(frozen=True, slots=True)
class _Change:
    """The change of a latency's logarithm, and the standard deviation of what it leaves open."""

    log: float = 0.0
    open_sd: float = 0.0


class Correction:
    """Corrects latencies to the conditions ``to``, with the ``sensitivities`` of bricks.

    No latency is corrected if one of the two is None.
    """

    def __init__(self, sensitivities: Sensitivities | None, to: UsualConditions | None) -> None:
        self._sensitivities, self._to = sensitivities, to
        self._changes: dict[tuple[str, float, HostConditions], _Change] = {}

    def factor(self, measurement: Measurement) -> Factor:
        """The correction of a measurement's latency."""
        change = self._change(measurement).log
        return Factor(math.exp(change), INDEPENDENT_SD * abs(change))

    def rounds_s(self, measurement: Measurement) -> list[float]:
        """The latency of each of its rounds in use, in those conditions, in seconds."""
        middle = self.factor(measurement).middle
        return [middle * r.latency_s for r in measurement.quiet_rounds]

    def mean_s(self, measurement: Measurement) -> float:
        """The mean seconds of a run in those conditions."""
        return median(self.rounds_s(measurement)) * measurement.runs.mean

    def shared_sd(self, parts: Iterable[tuple[Measurement, float]]) -> float:
        """The relative error that all latencies of a run have in common: a standard deviation.

        Each measurement counts with its part of the run in seconds. It has the error of what the
        kernels changed by, and the change that is still to come: how far conditions differ from
        those that are expected.
        """
        if self._sensitivities is None or self._to is None:
            return 0.0
        sensitivities, to = self._sensitivities, self._to
        every = [(m, part_s, sensitivities.of(m.key, m.latency_s)) for m, part_s in parts]
        total_s = sum(abs(part_s) for _, part_s, _ in every)
        if not total_s:
            return 0.0
        changed = [(self._change(m), part_s / total_s) for m, part_s, _ in every]
        log = sum(change.log * share for change, share in changed)
        open_sd = sum(change.open_sd * abs(share) for change, share in changed)
        ahead = to.relative_sd(mean_sensitivity([(of, part_s) for _, part_s, of in every]))
        return math.hypot(SHARED_SD * log, UNSEEN_SD * log, open_sd, ahead, UNSEEN_SD * ahead)

    def _change(self, measurement: Measurement) -> _Change:
        """As much of the kernels' change as their noise does not explain.

        Kernels are timed for a part of the time only, so that their means over two series differ
        even if the series were taken in turn (positive-part estimator; James and Stein, 1961).
        """
        if self._sensitivities is None or self._to is None or measurement.host is None:
            return _Change()
        of = measurement.key, measurement.latency_s, measurement.host
        if of not in self._changes:
            self._changes[of] = self._computed(measurement, self._sensitivities, self._to)
        return self._changes[of]

    @staticmethod
    def _computed(
        measurement: Measurement, sensitivities: Sensitivities, to: UsualConditions
    ) -> _Change:
        followed = sensitivities.of(measurement.key, measurement.latency_s)
        log = float(followed @ changes(measurement.host, to.mean))
        noise = mean_error([r.host for r in measurement.quiet_rounds]) + to.error
        variance = max(0.0, float(followed @ noise @ followed))
        resolved = max(0.0, 1.0 - variance / log**2) if log else 0.0
        noise_sd = math.sqrt(variance)
        open_sd = resolved * noise_sd + (1.0 - resolved) * min(noise_sd, abs(log))
        return _Change(resolved * log, open_sd)


def conditions_of(measurement: Measurement) -> UsualConditions | None:
    """The conditions in which a run was measured; None if unknown."""
    if measurement.host is None:
        return None
    return UsualConditions.exactly(measurement.host, [r.host for r in measurement.quiet_rounds])
