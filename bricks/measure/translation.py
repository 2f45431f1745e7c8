"""What a latency that was taken in one state of the machine is in another.

The reference is mostly waiting of threads for each other, so between two states it changes more
than most bricks do: those of milliseconds hardly change, those of microseconds nearly as much, or
the other way round. How much is learned from whatever was measured in both.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from bricks.measure.measurement import Measurement
from bricks.measure.state import alike, prevailing
from bricks.measure.statistics import NORMAL_95

# Which power of the reference's change a latency changes by, where nothing is known, and its
# standard deviation: anything between not at all, a little less, and as much. It counts like one
# brick that was measured in both states.
_USUAL, _DEVIATION = 0.25, 0.4

# What lies beyond is noise.
_LEAST, _MOST = -1.0, 2.0

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
    def open_share(self) -> float:
        """How far off a latency may be after it was multiplied, relative to it."""
        return max(self.high - self.middle, self.middle - self.low) / self.middle


class Translation:
    """Into the state ``state_s`` of the machine, learned from ``measurements``.

    With None for a state nothing needs to be translated.
    """

    def __init__(self, measurements: Iterable[Measurement], state_s: float | None) -> None:
        self._state_s = state_s
        pairs = (_pair(m, state_s) for m in measurements) if state_s is not None else ()
        self._pairs = [pair for pair in pairs if pair is not None]
        self._powers: dict[float, tuple[float, float]] = {}  # by logarithm of latency, rounded

    def latency_s(self, measurement: Measurement) -> float:
        """What it is in that state, in seconds: as measured there, or else translated."""
        return measurement.latency_s(self._state_s) * self.factor(measurement).middle

    def factor(self, measurement: Measurement) -> Factor:
        """From the state that a measurement is known in; 1 where it is known in this one."""
        own_s = measurement.state_s
        if own_s is None or self._state_s is None or measurement.known_in(self._state_s):
            return Factor()
        power, deviation = self._power(math.log(measurement.latency_s(own_s)))
        change = math.log(self._state_s / own_s)
        middle, reach = change * power, NORMAL_95 * deviation * abs(change)
        return Factor(math.exp(middle), math.exp(middle - reach), math.exp(middle + reach))

    def _power(self, log_s: float) -> tuple[float, float]:
        """Which power of the reference's change such a latency changes by; its deviation."""
        log_s = round(log_s, _DIGITS)
        if log_s not in self._powers:
            self._powers[log_s] = self._learned(log_s)
        return self._powers[log_s]

    def _learned(self, log_s: float) -> tuple[float, float]:
        near = [(math.exp(-0.5 * ((x - log_s) / _WIDTH) ** 2), y) for x, y in self._pairs]
        weight = 1.0 + sum(w for w, _ in near)
        mean = (_USUAL + sum(w * y for w, y in near)) / weight
        squares = _DEVIATION**2 + (_USUAL - mean) ** 2
        return mean, math.sqrt((squares + sum(w * (y - mean) ** 2 for w, y in near)) / weight)


def _pair(measurement: Measurement, state_s: float) -> tuple[float, float] | None:
    """The logarithm of a latency in another state, and by which power of the reference it changes.

    None if it is known in one state only.
    """
    other = [r for r in measurement.quiet_rounds if not alike(r.state_s, state_s)]
    other_s = prevailing(r.state_s for r in other)
    if other_s is None or not measurement.known_in(state_s) or not measurement.known_in(other_s):
        return None
    before_s, after_s = measurement.latency_s(other_s), measurement.latency_s(state_s)
    power = math.log(after_s / before_s) / math.log(state_s / other_s)
    return math.log(before_s), min(_MOST, max(_LEAST, power))
