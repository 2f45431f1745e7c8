"""What a latency that was taken in one state of the machine is in another.

The reference is mostly waiting of threads for each other, so between two states it changes more
than most bricks do: those of milliseconds hardly change, those of microseconds nearly as much, or
the other way round. And within a state the machine drifts: a round in which the reference took
longer is one in which short bricks did too. How much is learned from all that was measured while
the reference was at different latencies.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from bricks.samples.machine_state import dominant_state
from bricks.samples.measurement import Measurement
from bricks.samples.statistics import NORMAL_95, median

# Which power of the reference's change a latency changes by, where nothing is known, and its
# standard deviation: anything between not at all, a little less, and as much. It counts like one
# brick that was measured in both of two states, which are a factor of two apart.
_USUAL, _DEVIATION = 0.25, 0.4
_APART = math.log(2) ** 2 / 2  # the sum of squares of such logarithms about their mean

# A measurement whose rounds are less apart than this tells nothing: two, by 15 %.
_MIN_APART = 0.01

# What lies beyond is noise.
_MIN, _MAX = -1.0, 2.0

# No clock tells shorter latencies apart.
_BRIEF_S = 1e-9

# Over which factor of latency bricks tell of each other: a natural logarithm.
_WIDTH = 1.0
# Latencies that agree to so many digits of that are one.
_DIGITS = 1


@dataclass(frozen=True, slots=True)
class Factor:
    """What to multiply a latency with, and where 95 % of such factors lie."""

    middle: float = 1.0
    low: float = 1.0
    high: float = 1.0

    @property
    def relative_uncertainty(self) -> float:
        """How far off a latency may be after it was multiplied, relative to it."""
        return max(self.high - self.middle, self.middle - self.low) / self.middle

    @property
    def reach(self) -> Factor:
        """The same without the change that is expected."""
        return Factor(1.0, self.low / self.middle, self.high / self.middle)


@dataclass(frozen=True, slots=True)
class _Slope:
    """By which ``power`` of the reference's change a brick of a latency's ``log_s`` changes.

    ``weight`` says how much it counts.
    """

    log_s: float
    power: float
    weight: float


class StateCorrection:
    """Into the state ``state_s`` of the machine, learned from ``measurements``.

    With None for a state nothing needs to be translated.
    """

    def __init__(self, measurements: Iterable[Measurement], state_s: float | None) -> None:
        self._state_s = state_s
        slopes = (_slope(m) for m in measurements) if state_s is not None else ()
        self._slopes = [slope for slope in slopes if slope is not None]
        self._powers: dict[float, tuple[float, float]] = {}  # by logarithm of latency, rounded

    def rounds_s(self, measurement: Measurement) -> list[float]:
        """What each of its rounds that are used is in that state, in seconds."""
        used = measurement.used_rounds(self._state_s)
        if self._state_s is None or all(r.state_s is None for r in used):
            return [r.latency_s for r in used]
        power, _ = self._power(measurement)
        return [
            r.latency_s * (1.0 if r.state_s is None else (self._state_s / r.state_s) ** power)
            for r in used
        ]

    def latency_s(self, measurement: Measurement) -> float:
        """What it is in that state, in seconds."""
        return median(self.rounds_s(measurement))

    def factor(self, measurement: Measurement) -> Factor:
        """From the state that a measurement's rounds were mostly taken in."""
        own_s = dominant_state(r.state_s for r in measurement.used_rounds(self._state_s))
        if own_s is None or self._state_s is None:
            return Factor()
        power, deviation = self._power(measurement)
        change = math.log(self._state_s / own_s)
        middle, reach = change * power, NORMAL_95 * deviation * abs(change)
        return Factor(math.exp(middle), math.exp(middle - reach), math.exp(middle + reach))

    def _power(self, measurement: Measurement) -> tuple[float, float]:
        """Which power of the reference's change such a latency changes by; its deviation."""
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
    """How a measurement's rounds follow the reference; None if that was the same in all."""
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
