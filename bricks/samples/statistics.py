"""Statistics of latency samples, computed when they are read; the stored data stay raw.

Medians, because disturbances on a shared machine only ever make a run slower; intervals from order
statistics, because the distribution of latencies is not known. Must not know how the samples were
taken.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from bricks.units.interval import Interval

# From this many values on, an interval between two of them covers the median with 95 %.
MIN_RANKED = 6

# The expected range of this many values, in standard deviations of a normal distribution (the d2 of
# control charts).
_RANGES = {2: 1.128, 3: 1.693, 4: 2.059, 5: 2.326}
# Sums of weights are equal up to this.
_ROUNDING = 1e-9

# 95 % of a normal distribution lie within this many standard deviations.
NORMAL_95 = 1.96


def median(values: Sequence[float], weights: Sequence[float] | None = None) -> float:
    """The middle value, or the mean of the two in the middle; ``values`` must not be empty.

    With ``weights``, the value on whose two sides there are equal sums of weights.
    """
    if weights is None:
        ordered = sorted(values)
        middle = len(ordered) // 2
        if len(ordered) % 2:
            return ordered[middle]
        return (ordered[middle - 1] + ordered[middle]) / 2
    return (_quantile(values, weights, 0.5) - _quantile([-v for v in values], weights, 0.5)) / 2


def effective_count(weights: Sequence[float]) -> float:
    """The number of equal weights that say as much (Kish, *Survey Sampling*, section 8.2)."""
    return float(sum(weights) ** 2 / sum(weight**2 for weight in weights))


def spread(
    values: Sequence[float], confidence: float = 0.95, weights: Sequence[float] | None = None
) -> Interval:
    """The median of ``values`` with its distribution-free confidence interval.

    The interval runs between two order statistics (binomial argument; David and Nagaraja, *Order
    Statistics*, section 7.1). Six values are needed for 95 %. Of fewer, the interval is the range,
    which is too narrow: :func:`half_width` has a wider one. Values with ``weights`` count as their
    effective number.
    """
    if weights is None:
        ordered = sorted(values)
        rank = _rank(len(ordered), confidence)
        return Interval(median(ordered), ordered[rank], ordered[-1 - rank])
    count = int(effective_count(weights) + _ROUNDING)
    share = (_rank(count, confidence) + 0.5) / count
    low = _quantile(values, weights, share)
    high = -_quantile([-value for value in values], weights, share)
    return Interval(median(values, weights), low, high)


def pooled_spread(
    values: Sequence[float], deviation: float, weights: Sequence[float] | None = None
) -> Interval:
    """:func:`spread` of positive ``values``; of few, as wide as :func:`half_width` says."""
    if _count(values, weights) >= MIN_RANKED:
        return spread(values, weights=weights)
    half = half_width(values, deviation, weights)
    return Interval.around(median(values, weights), half).at_least(0.0)


def half_width(
    values: Sequence[float], deviation: float, weights: Sequence[float] | None = None
) -> float:
    """Half the width of a 95 % interval of the median.

    With enough values, from order statistics. With fewer, from a normal distribution, whose
    deviation is the larger of their own and ``deviation``, that of similar series relative to the
    median.
    """
    count = _count(values, weights)
    if count >= MIN_RANKED:
        return spread(values, weights=weights).half_width
    relative = max(deviation, relative_deviation(values) or 0.0)
    return NORMAL_95 * relative * median(values, weights) / math.sqrt(count)


def _count(values: Sequence[float], weights: Sequence[float] | None) -> float:
    return len(values) if weights is None else effective_count(weights) + _ROUNDING


def _quantile(values: Sequence[float], weights: Sequence[float], share: float) -> float:
    """The least value up to which weights add up to ``share`` of all."""
    least, added = share * sum(weights) - _ROUNDING, 0.0
    ordered = sorted(zip(values, weights, strict=True))
    for value, weight in ordered:
        added += weight
        if added >= least:
            return value
    return ordered[-1][0]


def relative_deviation(values: Sequence[float]) -> float | None:
    """The standard deviation of ``values``, relative to their median; None for a single value.

    Computed from the range of the first five values at most, which is robust and accurate enough.
    """
    few = values[:5]
    middle = median(few)
    if len(few) < 2 or middle <= 0:
        return None
    return (max(few) - min(few)) / _RANGES[len(few)] / middle


def pooled_variance(series: Iterable[Sequence[float]]) -> float:
    """The variance within each of several series, pooled over all; 0 where none has two values."""
    squares, freedom = 0.0, 0
    for values in series:
        mean = sum(values) / len(values)
        squares += sum((value - mean) ** 2 for value in values)
        freedom += len(values) - 1
    return squares / freedom if freedom else 0.0


def pooled_deviation(kinds: Iterable[Sequence[float]]) -> float:
    """The median relative deviation over many series; 0 where none has two values."""
    deviations = [d for values in kinds if (d := relative_deviation(values)) is not None]
    return median(deviations) if deviations else 0.0


@dataclass(frozen=True, slots=True)
class Term:
    """A random term of a sum, in seconds; it may be a sum of equal runs itself.

    ``medians_s`` is the sum of the medians of its runs, ``mean_s`` its mean, and ``gap_s`` the
    distance from its median up to the mean.
    """

    medians_s: float
    mean_s: float
    variance: float
    gap_s: float


def skew_share(terms: Iterable[Term]) -> float:
    """How much of the way from its medians to its means the median of a sum of terms is.

    A long run now and then lifts the mean of a term above its median. In a sum of many, such runs
    are always among them, so that the median of the sum nears its mean (1); a single run keeps its
    median (0). To first order a median is a sixth of the third cumulant, divided by the variance,
    below the mean (Cornish and Fisher, *Moments and cumulants in the specification of
    distributions*, 1938), and cumulants of independent terms add up: so the gap of a sum is the
    mean of its terms' gaps, weighed by their variances.
    """
    summands = list(terms)
    way_s = sum(t.mean_s - t.medians_s for t in summands)
    variance = sum(t.variance for t in summands)
    if way_s <= 0 or variance == 0:
        return 1.0
    gap_s = sum(t.gap_s * t.variance for t in summands) / variance
    return min(1.0, max(0.0, 1.0 - gap_s / way_s))


@lru_cache(maxsize=4096)
def _rank(count: int, confidence: float) -> int:
    """Greatest r for which [x(r), x(count-1-r)] (from 0) covers the median this likely."""
    outside, rank, ways = 0.0, 0, 1
    for r in range(count // 2):
        outside += ways / 2**count
        if 1 - 2 * outside < confidence:
            break
        rank = r
        ways = ways * (count - r) // (r + 1)  # math.comb(count, r + 1), which takes long to compute
    return rank
