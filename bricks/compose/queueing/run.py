"""The latency of single runs of a model: an estimated median and a sampled distribution.

The distribution around the median is from the samples of the model's bricks: a percentile under
load depends on all of it, outliers included. Must not know queues, nor what a run is part of.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from bricks.compose.estimate import MEASURED, Estimate, IncompleteEstimate, Provenance
from bricks.compose.recompose import recompose
from bricks.errors import ModelError
from bricks.samples.measurement import Measurement

if TYPE_CHECKING:
    from bricks.compose.basis import Basis
    from bricks.compose.estimate import DeviceTimes, Uncertainty
    from bricks.units.interval import Interval

# Indices that are drawn once and reused cyclically: so many runs in a row keep the order in which
# they were sampled, since a host that is slow now is slow for some time, and queues build up.
_INDICES, _IN_A_ROW = 1 << 16, 64


@dataclass(frozen=True, slots=True)
class RunLatency:
    """The median latency of a run, and single runs relative to it, in order: shape ``(draws,)``.

    ``own_share`` of the latency's squared error is independent of that of runs of other sizes.
    ``device`` are the seconds on a host and its device, None without one.
    """

    latency_s: Interval
    factors: np.ndarray = field(repr=False)
    provenance: Provenance = MEASURED
    own_share: float = 0.0
    device: DeviceTimes | None = None

    @property
    def spread_known(self) -> bool:
        """Whether samples of any brick tell how single runs differ."""
        return bool(np.ptp(self.factors) > 0)

    @property
    def mean_s(self) -> Interval:
        """The mean of single runs, in seconds."""
        return self.latency_s.scaled(float(self.factors.mean()))


class RunSampler:
    """Samples single runs by their number, from the ``runs`` of the next larger size.

    ``runs`` are by ascending size. Samplers with the same ``seed`` give runs of the same number
    the same noise, so that simulations of other rates and other latencies can be compared.
    """

    __slots__ = ("_drawn", "_factors", "_indices", "_listed", "_sizes")

    def __init__(self, runs: Mapping[int, RunLatency], seed: int) -> None:
        self._sizes = list(runs)
        self._drawn = [run.factors for run in runs.values()]
        self._factors: list[list[float]] = [factors.tolist() for factors in self._drawn]
        self._indices, self._listed = _indices(len(self._drawn[0]), seed)

    def place(self, size: int) -> int:
        """The position of the runs that :meth:`factor` samples for a run of ``size``."""
        return bisect_left(self._sizes, size)

    def factors(self, place: int, count: int) -> np.ndarray:
        """:meth:`factor` of the first ``count`` runs: shape ``(count,)``."""
        return np.asarray(self._drawn[place][np.resize(self._indices, count)])

    def factor(self, place: int, number: int) -> float:
        """The latency of the ``number``-th run, relative to the median."""
        return self._factors[place][self._listed[number % _INDICES]]


@lru_cache(maxsize=2)
def _indices(draws: int, seed: int) -> tuple[np.ndarray, list[int]]:
    """Rows of indices below ``draws`` that begin at random, as an array and as a list.

    Drawn once for all settings.
    """
    begins = np.random.default_rng(seed).integers(0, draws, _INDICES // _IN_A_ROW)
    indices = (begins[:, np.newaxis] + np.arange(_IN_A_ROW)).ravel() % draws
    return indices, indices.tolist()


def complete_estimate(basis: Basis, which: str) -> Estimate:
    """The estimate of the plan in ``basis``; :class:`ModelError` for ``which`` if it has gaps."""
    estimate = recompose(basis)
    if isinstance(estimate, IncompleteEstimate):
        raise ModelError(f"{which}: no estimate without {estimate.lacks}")
    return estimate


def run_latency(basis: Basis, which: str, *, seed: int) -> RunLatency:
    """The latency of runs of the plan in ``basis``; ``seed`` draws single runs.

    Raises :class:`ModelError` where the plan has no complete estimate; ``which`` names the run.
    """
    estimate = complete_estimate(basis, which)
    return RunLatency(
        estimate.latency_s,
        run_factors(basis, estimate, seed=seed),
        estimate.provenance,
        _own_share(estimate.uncertainty),
        estimate.device,
    )


def _own_share(of: Uncertainty) -> float:
    """The share of samples: all other errors have the same causes at any batch size."""
    half_s = of.half_width_s  # parts are in proportion to squares
    return min(1.0, of.samples_s / half_s) if half_s else 0.0


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
    # The weighted median of each column.
    weights = np.abs(whole_s)
    order = np.argsort(relative, axis=0)
    reached = np.cumsum(weights[order], axis=0) >= weights.sum() / 2
    middles = np.take_along_axis(order, reached.argmax(axis=0)[np.newaxis], axis=0)
    common = np.asarray(np.take_along_axis(relative, middles, axis=0)[0])
    total_s = np.zeros(relative.shape[1])
    for number, key in enumerate(keys):
        draws = max(1, round(abs(counts[key]) / places[key]))
        total_s += whole_s[number] * _mean_of(relative[number] / common, draws, rng, len(common))
    return np.asarray(common * total_s)


# Occurrences whose samples are drawn at once, to bound the memory.
_AT_ONCE = 64


def _mean_of(
    own: np.ndarray, count: int, rng: np.random.Generator, draws: int = DRAWS
) -> np.ndarray:
    total = np.zeros(draws)
    for begin in range(0, count, _AT_ONCE):
        size = (min(_AT_ONCE, count - begin), draws)
        total += own[rng.integers(0, len(own), size)].sum(axis=0)
    return np.asarray(total / count)
