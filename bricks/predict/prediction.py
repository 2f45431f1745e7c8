"""The predicted latency of an unmeasured brick: plain data. Must not know how it is learned."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from bricks.samples.measurement import Measurement, Round
from bricks.samples.statistics import NORMAL_95, Term
from bricks.system.host_conditions import HostConditions
from bricks.units.interval import Interval

# The lowest lower end of an interval of samples, as a share of their median; and the least standard
# deviation of the logarithm.
_MIN_SHARE, _MIN_SD = 0.05, 1e-3

# Half of a 95 % interval, in standard deviations. Errors of predictions have longer tails than
# normal ones: this held 95 % of the models of half of the zoo's families, six targets and two
# efforts together, and 94 % of the others (research/design-experiments.md).
_REACH = 1.3 * NORMAL_95


@dataclass(frozen=True, slots=True)
class Prediction:
    """The predicted latency of an unmeasured brick: log-normal, with its median in seconds.

    It includes the cost of a call, as a brick's measurement does. ``log_sd`` is the standard
    deviation of its logarithm. The machine takes at least ``min_latency_s`` for the brick's work.
    """

    latency_s: float
    log_sd: float
    min_latency_s: float = 0.0

    @property
    def mean(self) -> float:
        """The mean latency relative to the median."""
        return math.exp(self.log_sd**2 / 2)

    def term(self, occurrences: int) -> Term:
        """This number of occurrences, which have one error in common, as a term of a sum."""
        median_s = occurrences * self.latency_s
        mean_s = median_s * self.mean
        variance = mean_s**2 * math.expm1(self.log_sd**2)
        return Term(median_s, mean_s, variance, mean_s - median_s)

    def spread(self, reach: float = _REACH) -> Interval:
        """The 95 % interval in seconds, which reaches ``reach`` standard deviations."""
        factor = math.exp(reach * self.log_sd)
        low_s = max(self.min_latency_s, self.latency_s / factor)
        return Interval(self.latency_s, low_s, self.latency_s * factor)

    def combined_with(self, measured: Interval) -> tuple[Interval, float]:
        """Return the combination with ``measured``, and the weight of the prediction in it.

        Logarithms are weighted by their certainty.
        """
        low_s = max(measured.low, measured.value * _MIN_SHARE)
        log_sd = max(_MIN_SD, math.log(measured.high / low_s) / 2 / NORMAL_95)
        weight = 1.0 / (1.0 + (self.log_sd / log_sd) ** 2)
        log = weight * math.log(self.latency_s) + (1.0 - weight) * math.log(measured.value)
        both = Prediction(math.exp(log), self.log_sd * math.sqrt(weight))
        return both.spread(NORMAL_95), weight

    def measurement(self, key: str, host: HostConditions | None) -> Measurement:
        """The prediction as a single measurement in these conditions of the host."""
        return Measurement(key, (Round((self.latency_s,), host),), 0.0)


@dataclass(frozen=True, slots=True)
class BrickPredictions:
    """Predictions by key, and ``bias``: the standard deviation of the error common to one model.

    ``bias`` is relative to the predicted part of the model. Predictions are for the conditions
    ``host``; None if unknown. ``prior`` are predictions of bricks whose own measurements are
    uncertain: both are combined by their certainty. ``unmeasurable`` are predicted bricks that no
    runtime measures, whose failures are ignored.
    """

    of: Mapping[str, Prediction] = field(default_factory=dict)
    bias: float = 0.0
    host: HostConditions | None = None
    prior: Mapping[str, Prediction] = field(default_factory=dict)
    unmeasurable: frozenset[str] = frozenset()

    def common_s(self, predicted_s: float) -> float:
        """Half the width, in seconds, that the common error adds to an interval.

        ``predicted_s`` is the predicted part of the model in seconds.
        """
        return _REACH * self.bias * predicted_s
