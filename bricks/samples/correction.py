"""Corrects a latency from the conditions in which it was measured to others.

The change of each reference kernel between the two, times how the brick follows it
(:mod:`bricks.samples.sensitivity`). First the rounds of a measurement are brought to their mean
conditions, as far as kernels of a single round show what its samples met; then the whole to the
others. Must not know how latencies are measured.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bricks.samples.sensitivity import (
    INDEPENDENT_SD,
    SHARED_SD,
    UNSEEN_SD,
    Sensitivities,
    changes,
    mean_sensitivity,
)
from bricks.samples.statistics import NORMAL_95
from bricks.samples.usual_conditions import UsualConditions, mean_error

if TYPE_CHECKING:
    from bricks.samples.measurement import Measurement
    from bricks.system.host_conditions import HostConditions

# How much of what the kernels of a single round change by its samples change by too, against the
# noise of kernels that run once: it is learned from the rounds at hand, with this prior and its
# standard deviation. On an Intel Xeon whose speed flips, the rounds of 12 networks show 0.81 with
# one thread, 0.84 with two.
_AT_ONCE, _AT_ONCE_SD = 0.8, 0.3


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

    No latency is corrected if one of the two is None. The rounds of ``seen`` measurements show how
    much the kernels of a single round say.
    """

    def __init__(
        self,
        sensitivities: Sensitivities | None,
        to: UsualConditions | None,
        seen: Iterable[Measurement] = (),
    ) -> None:
        self._sensitivities, self._to = sensitivities, to
        self._at_once = _AT_ONCE
        if sensitivities is not None and to is not None:
            self._at_once = _followed_at_once(seen, sensitivities)
        self._changes: dict[tuple[str, float, HostConditions], _Change] = {}

    def factor(self, measurement: Measurement) -> Factor:
        """The correction of a measurement's mean conditions."""
        change = self._change(measurement).log
        return Factor(math.exp(change), INDEPENDENT_SD * abs(change))

    def corrected(
        self, measurement: Measurement, follows: NDArray[np.float64] | None = None
    ) -> Measurement:
        """The measurement as if it had been taken in those conditions.

        ``follows`` is how its latency follows the kernels, if that is not due to its own work.
        """
        if self._sensitivities is None or self._to is None or measurement.host is None:
            return measurement
        mean, log = measurement.host, self._change(measurement, follows).log
        if follows is None:
            follows = self._sensitivities.of(measurement.key, measurement.latency_s)
        rounds = tuple(
            r.times(math.exp(log + self._at_once * float(follows @ changes(r.host, mean))))
            for r in measurement.rounds
        )
        return replace(measurement, rounds=rounds)

    def mean_s(self, measurement: Measurement) -> float:
        """The mean seconds of a run in those conditions."""
        return self.corrected(measurement).mean_s

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
        unshown = sum(
            to.unshown_sd(m.host) * abs(part_s) / total_s for m, part_s, _ in every if m.host
        )
        of_change = math.hypot(SHARED_SD * log, UNSEEN_SD * log)
        return math.hypot(of_change, open_sd, ahead, UNSEEN_SD * ahead, unshown)

    def _change(
        self, measurement: Measurement, follows: NDArray[np.float64] | None = None
    ) -> _Change:
        """As much of the kernels' change as their noise does not explain.

        Kernels are timed for a part of the time only, so that their means over two series differ
        even if the series were taken in turn (positive-part estimator; James and Stein, 1961).
        """
        if self._sensitivities is None or self._to is None or measurement.host is None:
            return _Change()
        if follows is not None:
            return self._computed(measurement, follows, self._to)
        of = measurement.key, measurement.latency_s, measurement.host
        if of not in self._changes:
            followed = self._sensitivities.of(measurement.key, measurement.latency_s)
            self._changes[of] = self._computed(measurement, followed, self._to)
        return self._changes[of]

    def _computed(
        self, measurement: Measurement, followed: NDArray[np.float64], to: UsualConditions
    ) -> _Change:
        log = float(followed @ changes(measurement.host, to.mean))
        # What samples change by along with their kernels is no noise.
        noise = mean_error([r.host for r in measurement.walked]) * (1.0 - self._at_once)
        noise = noise + to.error
        variance = max(0.0, float(followed @ noise @ followed))
        resolved = max(0.0, 1.0 - variance / log**2) if log else 0.0
        noise_sd = math.sqrt(variance)
        open_sd = resolved * noise_sd + (1.0 - resolved) * min(noise_sd, abs(log))
        return _Change(resolved * log, open_sd)


def conditions_of(measurement: Measurement) -> UsualConditions | None:
    """The conditions in which a run was measured; None if unknown."""
    if measurement.host is None:
        return None
    noise = mean_error([r.host for r in measurement.walked]) * (1.0 - _AT_ONCE)
    return UsualConditions.exactly(measurement.host, noise)


def _followed_at_once(seen: Iterable[Measurement], sensitivities: Sensitivities) -> float:
    """The slope of rounds' latencies over their kernels, logarithms both, within measurements.

    Sums of squares are means over measurements, weighed by their latencies: their rounds are the
    same moments.
    """
    kernels_2 = both = latencies_2 = rounds_s = seconds = 0.0
    for measurement in seen:
        rounds, mean = measurement.undisturbed, measurement.host
        if mean is None or len(rounds) < 2:
            continue
        weight_s = measurement.latency_s
        follows = sensitivities.of(measurement.key, weight_s)
        kernels = np.array([follows @ changes(mean, r.host) for r in rounds])
        logs = np.log([r.latency_s for r in rounds])
        logs -= logs.mean()
        kernels_2 += weight_s * float(kernels @ kernels)
        both += weight_s * float(kernels @ logs)
        latencies_2 += weight_s * float(logs @ logs)
        rounds_s += weight_s * (len(rounds) - 1)
        seconds += weight_s
    if not kernels_2:
        return _AT_ONCE
    left = max(0.0, latencies_2 - both**2 / kernels_2) / rounds_s
    prior = seconds * left / _AT_ONCE_SD**2
    slope = (both + prior * _AT_ONCE) / (kernels_2 + prior)
    return min(1.0, max(0.0, slope))
