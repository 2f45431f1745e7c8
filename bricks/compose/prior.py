"""Priors of brick latencies: measurements or predictions of another host of the same kind.

A measurement on a noisy host may be less precise than its prior. Then a brick's latency is the
posterior of both, weighted by their precision. Must not know where priors are stored.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from bricks.compose.recomposition_error import OTHER_HOST_SHARE
from bricks.predict.prediction import Prediction
from bricks.samples.measurement import UNSURE_SHARE, round_spread
from bricks.samples.statistics import NORMAL_95

if TYPE_CHECKING:
    from bricks.compose.basis import Basis
    from bricks.units.interval import Interval

# How much hosts of one kind differ, as a standard deviation of the logarithm of latencies.
OTHER_HOST_SD = OTHER_HOST_SHARE / NORMAL_95

# Bricks whose standard deviations add up to no more than this share of an estimate need no priors:
# a prior that agrees with the measurement moves a brick by less than its standard deviation.
_NEGLIGIBLE_SHARE = 0.001


def imprecise_bricks(basis: Basis) -> set[str]:
    """Keys of bricks measured on this host whose intervals are so wide that priors count.

    None if all of these together are negligible: priors take longer to find than all the rest.
    """
    counts, measured = basis.plan.counts, basis.parts.measured
    correction = basis.correction
    spreads = {key: round_spread(correction.corrected(m)) for key, m in measured.items()}
    parts_s = {key: abs(counts[key]) * spread.value for key, spread in spreads.items()}
    unsure = {
        key
        for key, spread in spreads.items()
        if not measured[key].published and spread.relative > UNSURE_SHARE
    }
    moved_s = sum(parts_s[key] * spreads[key].relative / NORMAL_95 for key in unsure)
    return unsure if moved_s > _NEGLIGIBLE_SHARE * sum(parts_s.values()) else set()


def prior_of_measurement(latency_s: Interval) -> Prediction:
    """The prior for this host from a latency that another host of its kind measured."""
    return prior_of_prediction(Prediction(latency_s.value, latency_s.relative / NORMAL_95))


def prior_of_prediction(prediction: Prediction) -> Prediction:
    """The prior for this host from a prediction for another host of its kind."""
    return replace(prediction, log_sd=math.hypot(prediction.log_sd, OTHER_HOST_SD))
