"""Measured latencies as training points of predictors: in the machine state of each measurement.

Correcting latencies to a common state first would add the correction's error to most training
points, since a slow state affects short bricks and synchronisation more than arithmetic. Must not
know how predictors learn.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from bricks.predict.defaults import MIN
from bricks.samples.machine_state import same_state

if TYPE_CHECKING:
    from bricks.predict.features import BrickFeatures
    from bricks.samples.measurement import Measurement

# The largest slowness of the reference workload, in factors of two; larger values are outliers.
_MAX_SLOWNESS = 2.0


@dataclass(frozen=True, slots=True)
class StateCounts:
    """The number of bricks that were measured in each machine state.

    A state is the latency of the reference workload in seconds, None if unknown.
    """

    counts: Mapping[float | None, int]

    @property
    def fastest_s(self) -> float | None:
        """The fastest state; None if none is known."""
        return min((s for s in self.counts if s is not None), default=None)

    def enough_in(self, state_s: float | None) -> bool:
        """Whether enough bricks were measured in this state to learn predictions for it."""
        counts = self.counts.items()
        return sum(n for seen_s, n in counts if same_state(state_s, seen_s)) >= MIN

    def in_state(
        self, features: Mapping[str, BrickFeatures], state_s: float | None
    ) -> dict[str, BrickFeatures]:
        """Return ``features`` of any bricks with the slowness of the state ``state_s``."""
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
        """From measurements by key: each in the state ``preferred_s``, or else in its own state."""
        used = {
            key: preferred_s if m.known_in(preferred_s) else None for key, m in measured.items()
        }
        return cls(
            {key: m.mean_s(used[key]) for key, m in measured.items()},
            {key: m.used_state_s(used[key]) for key, m in measured.items()},
        )

    @property
    def state_counts(self) -> StateCounts:
        """The number of bricks by machine state."""
        return StateCounts(Counter(self.states.values()))

    def features(self, features: Mapping[str, BrickFeatures]) -> dict[str, BrickFeatures]:
        """Return ``features`` of the measured bricks with the slowness of their measurements."""
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
