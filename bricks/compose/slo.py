"""Whether a latency meets an SLO, the risk that it does not, and the cost of a million inferences.

A latency meets an SLO, or does not, or it is uncertain where its interval holds the bound. Risk and
cost answer the future work of the DLBricks paper: given a model, find a system; given a system,
find a model. Must not know what the latency is of, nor which systems or models there are.
"""

from __future__ import annotations

import math
from enum import StrEnum
from statistics import NormalDist
from typing import TYPE_CHECKING

from bricks.samples.statistics import NORMAL_95

if TYPE_CHECKING:
    from bricks.compose.estimate import Estimate
    from bricks.units.interval import Interval


class MeetsSlo(StrEnum):
    """Whether an SLO is met."""

    YES = "yes"
    NO = "no"
    UNCERTAIN = "uncertain"


def meets_slo(latency_s: Interval, slo_s: float) -> MeetsSlo:
    """Whether a latency is at most ``slo_s`` seconds, wherever in its interval it is."""
    if latency_s.high <= slo_s:
        return MeetsSlo.YES
    return MeetsSlo.UNCERTAIN if latency_s.low <= slo_s else MeetsSlo.NO


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
