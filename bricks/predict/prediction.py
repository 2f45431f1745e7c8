"""What is expected of a brick that was not measured. Plain data: whoever learns it is elsewhere."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from bricks.samples.measurement import Measurement, Round
from bricks.samples.statistics import NORMAL_95, Spread


@dataclass(frozen=True, slots=True)
class Prediction:
    """The latency of a brick that was not measured: log-normal, with its median in seconds.

    A call's cost is in it, as it is in a brick's measurement. ``log_sd`` is the standard deviation
    of its logarithm.
    """

    latency_s: float
    log_sd: float

    def spread(self) -> Spread:
        """The interval that holds it with 95 %, as if it were measured so."""
        factor = math.exp(NORMAL_95 * self.log_sd)
        return Spread(self.latency_s, self.latency_s / factor, self.latency_s * factor, 0)

    def measurement(self, key: str, state_s: float | None) -> Measurement:
        """As if it had been measured once, in this state of the machine."""
        return Measurement(key, (Round((self.latency_s,), state_s),), 0.0)


@dataclass(frozen=True, slots=True)
class Predictions:
    """Predictions by key, and ``bias``: by how much they err together in one model.

    That is a standard deviation too, relative to the part of the model that is predicted. They are
    of the machine's state ``state_s``; None if that is not known.
    """

    of: Mapping[str, Prediction] = field(default_factory=dict)
    bias: float = 0.0
    state_s: float | None = None

    def common_s(self, predicted_s: float) -> float:
        """Half the width, in seconds, that erring together adds to the interval of this much."""
        return NORMAL_95 * self.bias * predicted_s
