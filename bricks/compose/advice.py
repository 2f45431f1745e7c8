"""The probability that an estimate misses a latency bound, and the cost of a million inferences.

They answer the future work of the DLBricks paper: given a model, find a system; given a system,
find a model. Must not know which systems or models there are.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import TYPE_CHECKING

from bricks.samples.statistics import NORMAL_95

if TYPE_CHECKING:
    from bricks.compose.estimate import Estimate

# A latency bound counts as met if it is missed with at most this probability.
PROMISE = 0.05


def risk(estimate: Estimate, slo_s: float) -> float:
    """The probability that the model takes longer than ``slo_s`` seconds.

    The estimate's interval is treated as the middle 95 % of a log-normal distribution, with a
    separate width on each side of the estimate. The probability is that of a typical latency, not
    of the slowest of many runs.
    """
    if estimate.estimate_s <= 0:
        return 0.0
    off = math.log(slo_s / estimate.estimate_s)
    edge_s = estimate.high_s if off > 0 else estimate.low_s
    deviation = abs(math.log(edge_s / estimate.estimate_s)) / NORMAL_95 if edge_s > 0 else 0.0
    if deviation == 0.0:
        return 0.0 if off >= 0 else 1.0
    return 1.0 - NormalDist().cdf(off / deviation)


def per_million(price_per_hour: float, latency_s: float, batch: int) -> float:
    """The price of a million inferences, one batch after the other on the whole host."""
    return price_per_hour / 3600 * latency_s / batch * 1e6
