"""Corrects a latency that was taken in one machine state to another state.

The reference workload is mostly threads waiting for each other, so between two states its latency
changes more than that of most bricks: bricks of milliseconds hardly change and bricks of
microseconds change nearly as much as the reference, or the other way round. Within a state the
machine drifts: in a round with a slower reference, short bricks are slower too. The size of the
correction is learned from all measurements that were taken at different reference latencies. Must
not know how latencies were measured.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from bricks.samples.machine_state import dominant_state
from bricks.samples.measurement import Measurement
from bricks.samples.statistics import NORMAL_95, median

# Prior for the power of the reference's change by which a latency changes, and its standard
# deviation: anything between no change, slightly less, and as much. The prior weighs as much as one
# brick that was measured in both of two states which are a factor of two apart.
_USUAL, _DEVIATION = 0.25, 0.4
_APART = math.log(2) ** 2 / 2  # the sum of squares of such logarithms about their mean

# A measurement whose rounds differ by less than this carries no information: two, by 15 %.
_MIN_APART = 0.01

# Values beyond this are noise.
_MIN, _MAX = -1.0, 2.0

# No clock distinguishes shorter latencies.
_BRIEF_S = 1e-9

# The range of latency over which bricks inform each other: a natural logarithm.
_WIDTH = 1.0
# Latencies that agree to this many digits of it share one result.
_DIGITS = 1


@dataclass(frozen=True, slots=True)
class Factor:
    """The factor to multiply a latency with, and the interval that holds 95 % of such factors."""

    middle: float = 1.0
    low: float = 1.0
    high: float = 1.0

    @property
    def relative_uncertainty(self) -> float:
        """The relative error that a latency may have after the multiplication."""
        return max(self.high - self.middle, self.middle - self.low) / self.middle

    @property
    def reach(self) -> Factor:
        """The same without the expected change."""
        return Factor(1.0, self.low / self.middle, self.high / self.middle)


@dataclass(frozen=True, slots=True)
class _Slope:
    """The ``power`` of the reference's change by which a brick with latency ``exp(log_s)`` changes.

    ``weight`` is its statistical weight.
    """

    log_s: float
    power: float
    weight: float


class StateCorrection:
    """Corrects to the machine state ``state_s``, learned from ``measurements``.

    No correction is applied where a state is None.
    """

    def __init__(self, measurements: Iterable[Measurement], state_s: float | None) -> None:
        self._state_s = state_s
        slopes = (_slope(m) for m in measurements) if state_s is not None else ()
        self._slopes = [slope for slope in slopes if slope is not None]
        self._powers: dict[float, tuple[float, float]] = {}  # by logarithm of latency, rounded

    def rounds_s(self, measurement: Measurement) -> list[float]:
        """The latency of each of its used rounds in that state, in seconds."""
        used = measurement.used_rounds(self._state_s)
        if self._state_s is None or all(r.state_s is None for r in used):
            return [r.latency_s for r in used]
        power, _ = self._power(measurement)
        return [
            r.latency_s * (1.0 if r.state_s is None else (self._state_s / r.state_s) ** power)
            for r in used
        ]

    def latency_s(self, measurement: Measurement) -> float:
        """Its latency in that state, in seconds."""
        return median(self.rounds_s(measurement))

    def factor(self, measurement: Measurement) -> Factor:
        """The correction from the state in which most of a measurement's rounds were taken."""
        own_s = dominant_state(r.state_s for r in measurement.used_rounds(self._state_s))
        if own_s is None or self._state_s is None:
            return Factor()
        power, deviation = self._power(measurement)
        change = math.log(self._state_s / own_s)
        middle, reach = change * power, NORMAL_95 * deviation * abs(change)
        return Factor(math.exp(middle), math.exp(middle - reach), math.exp(middle + reach))

    def _power(self, measurement: Measurement) -> tuple[float, float]:
        """The power of the reference's change by which such a latency changes; its deviation."""
        log_s = round(math.log(max(measurement.latency_s(self._state_s), _BRIEF_S)), _DIGITS)
        if log_s not in self._powers:
            self._powers[log_s] = self._learned(log_s)
        return self._powers[log_s]

    def _learned(self, log_s: float) -> tuple[float, float]:
        near = [
            (s.weight * math.exp(-0.5 * ((s.log_s - log_s) / _WIDTH) ** 2), s.power)
            for s in self._slopes
        ]
        weight = 1.0 + sum(w for w, _ in near)
        mean = (_USUAL + sum(w * y for w, y in near)) / weight
        squares = _DEVIATION**2 + (_USUAL - mean) ** 2
        return mean, math.sqrt((squares + sum(w * (y - mean) ** 2 for w, y in near)) / weight)


def _slope(measurement: Measurement) -> _Slope | None:
    """How a measurement's rounds follow the reference; None if that was equal in all rounds."""
    found = [
        (math.log(r.state_s), math.log(r.latency_s))
        for r in measurement.quiet_rounds
        if r.state_s is not None and r.latency_s > 0
    ]
    if len(found) < 2:
        return None
    middle, level = (sum(values) / len(found) for values in zip(*found, strict=True))
    apart = sum((x - middle) ** 2 for x, _ in found)
    if apart < _MIN_APART:
        return None
    power = sum((x - middle) * (y - level) for x, y in found) / apart
    return _Slope(level, min(_MAX, max(_MIN, power)), min(1.0, apart / _APART))
