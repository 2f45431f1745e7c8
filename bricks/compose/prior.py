"""What was known of a brick before this host measured it: by another host of the same kind.

A measurement on a disturbed host may say less than that. Then a brick's latency is what both tell,
each weighed by its certainty. Must not know where the knowledge is kept.
"""

from __future__ import annotations

import math
from dataclasses import replace

from bricks.compose.parts import Results
from bricks.compose.recomposition_error import OTHER_HOST_SHARE
from bricks.decompose.plan import Plan
from bricks.predict.prediction import Prediction
from bricks.samples.measurement import UNSURE_SHARE, Measurement, round_spread
from bricks.samples.statistics import NORMAL_95
from bricks.units.interval import Interval

# How much hosts of one kind differ, as a standard deviation of the logarithm of latencies.
OTHER_HOST_SD = OTHER_HOST_SHARE / NORMAL_95


def unsure(plan: Plan, results: Results, state_s: float | None) -> set[str]:
    """The bricks measured on this host whose intervals are too wide to stand alone."""
    measured = {key: m for key in plan.counts if isinstance(m := results.get(key), Measurement)}
    return {
        key
        for key, m in measured.items()
        if not m.published and round_spread(m, state_s).relative > UNSURE_SHARE
    }


def measured_elsewhere(found: Interval) -> Prediction:
    """What a measurement of another host tells about this one."""
    return on_another_host(Prediction(found.value, found.relative / NORMAL_95))


def on_another_host(prediction: Prediction) -> Prediction:
    """What a prediction for one host tells about another of the same kind."""
    return replace(prediction, log_sd=math.hypot(prediction.log_sd, OTHER_HOST_SD))
