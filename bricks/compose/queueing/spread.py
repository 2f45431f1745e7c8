"""The distribution of single runs of a model around its median, from the samples of its bricks.

A percentile under load depends on the whole distribution, outliers included. Must not know queues.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from bricks.samples.measurement import Measurement

if TYPE_CHECKING:
    from bricks.compose.basis import Basis
    from bricks.compose.estimate import Estimate

# Runs that are drawn: enough for a few of the slowest thousandth.
DRAWS = 4096

# Bricks with a smaller share of the latency are left out.
_MIN_SHARE = 1e-5


def run_factors(basis: Basis, estimate: Estimate, *, seed: int = 0) -> np.ndarray:
    """Latencies of ``DRAWS`` single runs, relative to their median: shape ``(DRAWS,)``.

    Conditions of the machine that change from round to round are common to the bricks of a run, so
    a run takes all its bricks from rounds of the same rank. Differences within a round, such as
    outliers, are independent, so they are drawn for each occurrence. Unmeasured bricks vary as the
    sum of the measured ones. Without any measured brick, all factors are 1.
    """
    rng = np.random.default_rng(seed)
    ranks = rng.permutation((np.arange(DRAWS) + 0.5) / DRAWS)
    total, weight = np.zeros(DRAWS), 0.0
    for share in estimate.shares:
        measurement = basis.results.get(share.brick)
        if share.predicted or not isinstance(measurement, Measurement) or share.share <= _MIN_SHARE:
            continue
        rounds = measurement.rounds  # noisy ones included
        medians = np.sort([r.latency_s for r in rounds])
        own = np.concatenate([np.asarray(r.host_s) / r.latency_s for r in rounds])
        # np.quantile, but without its search for equal ranks, which takes longest.
        places = np.arange(len(medians)) / max(1, len(medians) - 1)
        common = np.interp(ranks, places, medians) / np.median(medians)
        count = max(1, share.occurrences)
        total += share.share * common * _mean_of(own, count, rng)
        weight += share.share
    if not weight:
        return np.ones(DRAWS)
    return np.asarray(total / np.median(total))


def single_runs_s(
    samples: Mapping[str, Sequence[float]],
    counts: Mapping[str, int],
    places: Mapping[str, int],
    *,
    seed: int = 0,
) -> np.ndarray:
    """Seconds of whole runs from passes over their bricks: shape ``(passes,)``.

    ``samples`` are a brick's seconds in each pass, the mean over the ``places`` that are timed; it
    occurs ``counts`` times in a run. The median of a pass over its bricks is kept. Deviations of a
    brick from it are drawn for each occurrence, since an interruption lengthens one occurrence.
    """
    rng, keys = np.random.default_rng(seed), list(samples)
    seconds = np.asarray([samples[key] for key in keys])
    medians_s = np.median(seconds, axis=1, keepdims=True)
    relative = seconds / medians_s
    whole_s = medians_s[:, 0] * [counts[key] for key in keys]
    common = _weighted_medians(relative, np.abs(whole_s))
    total_s = np.zeros(relative.shape[1])
    for number, key in enumerate(keys):
        draws = max(1, round(abs(counts[key]) / places[key]))
        total_s += whole_s[number] * _mean_of(relative[number] / common, draws, rng, len(common))
    return np.asarray(common * total_s)


def _weighted_medians(of: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The weighted median of each column of ``of``: shape ``(columns,)``."""
    order = np.argsort(of, axis=0)
    reached = np.cumsum(weights[order], axis=0) >= weights.sum() / 2
    middles = np.take_along_axis(order, reached.argmax(axis=0)[np.newaxis], axis=0)
    return np.asarray(np.take_along_axis(of, middles, axis=0)[0])


# Occurrences whose samples are drawn at once, to bound the memory.
_AT_ONCE = 64


def _mean_of(
    own: np.ndarray, count: int, rng: np.random.Generator, draws: int = DRAWS
) -> np.ndarray:
    """The mean of ``count`` draws from ``own``, ``draws`` times."""
    total = np.zeros(draws)
    for begin in range(0, count, _AT_ONCE):
        size = (min(_AT_ONCE, count - begin), draws)
        total += own[rng.integers(0, len(own), size)].sum(axis=0)
    return np.asarray(total / count)
