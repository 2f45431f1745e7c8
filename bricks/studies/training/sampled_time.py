"""The mean of a series of measured times, with its interval.

The mean and not the median, because trainings add these times up: an occasional slow loading is
part of the sum. Must not know what was timed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from bricks.units.interval import Interval

# The variance of a mean is taken from the means of this number of parts: neighbouring times depend
# on each other, so the variance of single times would be too small.
_PARTS = 5


def predicted_mean(times_s: Sequence[float]) -> Interval:
    """The mean of ``times_s`` (at least one), with a 95 % interval from the means of its parts.

    The interval of a single time has no width, since its variance is unknown.
    """
    from scipy.stats import t

    count = min(_PARTS, len(times_s))
    size = len(times_s) / count
    parts = [times_s[round(k * size) : round((k + 1) * size)] for k in range(count)]
    means = [sum(part) / len(part) for part in parts]
    mean_s = sum(times_s) / len(times_s)
    if count < 2:
        return Interval.exact(mean_s)
    variance = sum((part_mean - mean_s) ** 2 for part_mean in means) / (count - 1)
    half_s = float(t.ppf(0.975, count - 1)) * math.sqrt(variance / count)
    return Interval(mean_s, max(0.0, mean_s - half_s), mean_s + half_s)
