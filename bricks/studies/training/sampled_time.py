"""The mean of times that were measured as a whole, with its interval.

The mean and not the median, because trainings add such times up: loading takes longer now and then,
and that belongs to it. Must not know what was timed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from bricks.units.interval import Interval

# Means of so many parts of a series show how much the mean varies: neighbouring times depend on
# each other, so that single ones would show too little.
_PARTS = 5


def predicted_mean(times_s: Sequence[float]) -> Interval:
    """The mean of ``times_s`` (at least one), and its 95 % interval from means of parts of them.

    A single time has an interval of no width: nothing tells how it varies.
    """
    from scipy.stats import t

    count = min(_PARTS, len(times_s))
    size = len(times_s) / count
    parts = [times_s[round(k * size) : round((k + 1) * size)] for k in range(count)]
    means = [sum(part) / len(part) for part in parts]
    mean_s = sum(times_s) / len(times_s)
    if count < 2:
        return Interval.exact(mean_s)
    variance = sum((each - mean_s) ** 2 for each in means) / (count - 1)
    half_s = float(t.ppf(0.975, count - 1)) * math.sqrt(variance / count)
    return Interval(mean_s, max(0.0, mean_s - half_s), mean_s + half_s)
