"""The predicted latency of an unmeasured brick: plain data. Must not know how it is learned."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from bricks.samples.measurement import Measurement, Round
from bricks.samples.statistics import NORMAL_95, Spread

# An interval of samples that reaches further down than this share of their median says no more;
# and none is this exact, as a standard deviation of the logarithm.
_LEAST_SHARE, _LEAST_SD = 0.05, 1e-3


@dataclass(frozen=True, slots=True)
class Prediction:
    """The predicted latency of an unmeasured brick: log-normal, with its median in seconds.

    It includes the cost of a call, as a brick's measurement does. ``log_sd`` is the standard
    deviation of its logarithm; ``independent_sd`` is that of the part that is independent of the
    errors of other bricks. The machine takes at least ``least_s`` for the brick's work.
    """

    latency_s: float
    log_sd: float
    independent_sd: float = 0.0
    least_s: float = 0.0

    def spread(self) -> Spread:
        """The 95 % interval, in the form of a measured spread."""
        factor = math.exp(NORMAL_95 * self.log_sd)
        low_s = max(self.least_s, self.latency_s / factor)
        return Spread(self.latency_s, low_s, self.latency_s * factor, 0)

    def beside(self, measured: Spread) -> tuple[Spread, float]:
        """Both together, with the weight of the prediction: logarithms, weighed by certainty."""
        low_s = max(measured.low_s, measured.median_s * _LEAST_SHARE)
        log_sd = max(_LEAST_SD, math.log(measured.high_s / low_s) / 2 / NORMAL_95)
        weight = 1.0 / (1.0 + (self.log_sd / log_sd) ** 2)
        log = weight * math.log(self.latency_s) + (1.0 - weight) * math.log(measured.median_s)
        both = Prediction(math.exp(log), self.log_sd * math.sqrt(weight))
        return replace(both.spread(), count=measured.count), weight

    def measurement(self, key: str, state_s: float | None) -> Measurement:
        """In the form of a single measurement, in this machine state."""
        return Measurement(key, (Round((self.latency_s,), state_s),), 0.0)


@dataclass(frozen=True, slots=True)
class Predictions:
    """Predictions by key, and ``bias``: the standard deviation of the error common to one model.

    ``bias`` is relative to the predicted part of the model. Predictions are for the machine state
    ``state_s``; None if that is not known. ``prior`` is what was known of bricks
    whose own measurements are too uncertain to stand alone: both count, each by its certainty.
    """

    of: Mapping[str, Prediction] = field(default_factory=dict)
    bias: float = 0.0
    state_s: float | None = None
    prior: Mapping[str, Prediction] = field(default_factory=dict)

    def factors(self, counts: Mapping[str, int]) -> dict[str, float]:
        """Factors with which the medians of these bricks add up to the median of their sum.

        Independent errors cancel out in a sum of many bricks, so that each contributes its mean,
        which is above the median of a log-normal latency; a brick alone has the factor 1 (Fenton,
        *The sum of log-normal probability distributions*, 1960). ``counts`` is how often each
        occurs.
        """
        variances = {key: self.of[key].independent_sd ** 2 for key in counts}
        means = {key: math.exp(variance / 2) for key, variance in variances.items()}
        parts_s = {key: abs(n) * self.of[key].latency_s * means[key] for key, n in counts.items()}
        total_s = sum(parts_s.values())
        if total_s == 0.0:
            return means
        spread = sum(part_s**2 * math.expm1(variances[key]) for key, part_s in parts_s.items())
        return {key: mean / math.sqrt(1 + spread / total_s**2) for key, mean in means.items()}

    def common_s(self, predicted_s: float) -> float:
        """Half the width, in seconds, that the common error adds to the interval of this much."""
        return NORMAL_95 * self.bias * predicted_s
