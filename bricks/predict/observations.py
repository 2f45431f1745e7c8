"""Measured latencies as predictors learn from them: in the machine state of each measurement.

Correcting latencies to a common state first would add the correction's error to most of what is
learned, since a slow state affects short bricks and synchronisation more than arithmetic. Must not
know what is learned.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from bricks.predict.defaults import MIN
from bricks.predict.features import BrickFeatures
from bricks.samples.machine_state import same_state
from bricks.samples.measurement import Measurement

# Slower references than this, in factors of two, are outliers.
_MAX_SLOWNESS = 2.0


@dataclass(frozen=True, slots=True)
class StateCounts:
    """The machine states in which bricks were measured, and how many bricks in each.

    A state is the latency of the reference workload in seconds; None counts where it isn't known.
    """

    counts: Mapping[float | None, int]

    @property
    def fastest_s(self) -> float | None:
        """The fastest state; None if none is known."""
        return min((s for s in self.counts if s is not None), default=None)

    def enough_in(self, state_s: float | None) -> bool:
        """Whether so much was observed in this state that predictions for it can be learned."""
        counts = self.counts.items()
        return sum(n for seen_s, n in counts if same_state(state_s, seen_s)) >= MIN

    def in_state(
        self, features: Mapping[str, BrickFeatures], state_s: float | None
    ) -> dict[str, BrickFeatures]:
        """``features`` of any bricks in the state ``state_s``, to be predicted."""
        slowness = _slowness(state_s, self.fastest_s)
        return {key: _slowed(t, slowness) for key, t in features.items()}


@dataclass(frozen=True, slots=True)
class Observations:
    """Mean latencies of bricks in seconds, by key, and the machine state of each measurement.

    ``states`` are latencies of the reference workload in seconds.
    """

    latency_s: Mapping[str, float]
    states: Mapping[str, float | None]

    @classmethod
    def of(cls, measured: Mapping[str, Measurement], preferred_s: float | None) -> Observations:
        """From measurements, of each in the state ``preferred_s`` if it is known in that one."""
        used = {
            key: preferred_s if m.known_in(preferred_s) else None for key, m in measured.items()
        }
        return cls(
            {key: m.mean_s(used[key]) for key, m in measured.items()},
            {key: m.used_state_s(used[key]) for key, m in measured.items()},
        )

    @property
    def state_counts(self) -> StateCounts:
        """The states, without the bricks."""
        return StateCounts(Counter(self.states.values()))

    def features(self, features: Mapping[str, BrickFeatures]) -> dict[str, BrickFeatures]:
        """``features`` of the measured bricks, in the states of their measurements."""
        fastest_s = self.state_counts.fastest_s
        return {
            key: _slowed(t, _slowness(self.states[key], fastest_s)) for key, t in features.items()
        }


def _slowed(features: BrickFeatures, slowness: float) -> BrickFeatures:
    return replace(features, context=replace(features.context, slowness=slowness))


def _slowness(state_s: float | None, fastest_s: float | None) -> float:
    if state_s is None or fastest_s is None:
        return 0.0
    return min(_MAX_SLOWNESS, max(0.0, math.log2(state_s / fastest_s)))
