"""Covariance between bricks: how closely their latencies are related.

Bricks of a kind are points in a space of sizes and tags, and their residuals from the roofline are
correlated where the points are close. Must not know what is learned from it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from zlib import crc32

import numpy as np

from bricks.predict.features import CONVOLUTION, PRODUCT, STREAM, BrickFeatures

Array = np.ndarray


@dataclass(frozen=True, slots=True)
class CovarianceParams:
    """Covariance parameters for the residuals of a kind's bricks; variances of log-latencies.

    The covariance is a sum: a part shared by all bricks of a kind (``common``), a part shared by
    those with the same operator and tags (``mean``), and parts shared by those of similar sizes,
    over a ``wide`` range and over one shorter by ``ratio`` (``near``). ``lengths`` are the ranges,
    in factors of two, of each size, of the bytes moved, of the roofline, and of the context's
    working set, repeats and slowness. ``apart`` and ``other`` are how much the covariance falls
    between bricks of different tags, or of different operators. ``noise`` is the standard deviation
    that other bricks cannot explain.
    """

    lengths: tuple[float, ...]
    apart: tuple[float, ...]
    other: float
    common: float
    mean: float
    wide: float
    near: float
    ratio: float
    noise: float

    @property
    def prior(self) -> float:
        """The prior variance of a residual."""
        return self.common + self.mean + self.wide + self.near


# Found once, on half of the families of the zoo (see benchmarks/prediction.py), as the values that
# predict bricks of left-out families best. The width of intervals is learned anew each time.
COVARIANCE_PARAMS = {
    CONVOLUTION: CovarianceParams(
        lengths=(12, 5, 6, 2.5, 1.2, 5, 2.9, 13.5, 24, 56, 7.3, 60, 1.4),
        apart=(0.57, 3.6, 0.7, 0.007, 0.015),
        other=1.4, common=0.1, mean=0.0025, wide=0.023, near=0.009, ratio=1.0, noise=0.019,
    ),
    PRODUCT: CovarianceParams(
        lengths=(2, 20, 10, 0.5, 20, 25, 40, 40, 6), apart=(0.1, 0.1, 0.7, 0.06, 2, 0.1),
        other=0.05, common=0.02, mean=0.002, wide=0.002, near=0.003, ratio=2.0, noise=0.06,
    ),
    STREAM: CovarianceParams(
        lengths=(31, 42, 0.95, 22, 0.75, 43, 29, 21, 39, 3), apart=(4.7, 0.57, 1.3, 2.2),
        other=0.6, common=0.1, mean=1.7, wide=0.009, near=0.035, ratio=16.0, noise=0.09,
    ),
}  # fmt: skip
# Latencies of microseconds are less exact, because of the timer and the caches at each call.
_NOISE_S = 0.3e-6

# Working sets beyond this size all count the same, because no processor caches them; and so do
# more repeats than this.
_MAX_WORKING_SET_BYTES, _MAX_REPEATS = 2.0**30, 8

# Number of matrix rows computed at once.
STRIPE = 128


def feature_matrix(
    features: Sequence[BrickFeatures], roof_s: Array, params: CovarianceParams
) -> Array:
    """A row for each brick: sizes in units of their ranges, and checksums of tags and operator."""
    lengths = _sizes(features, roof_s) / params.lengths
    names = [[crc32(name.encode()) for name in (*t.tags, t.operator)] for t in features]
    return np.concatenate([lengths, np.array(names, float)], axis=1)


def _sizes(features: Sequence[BrickFeatures], roof_s: Array) -> Array:
    """Logarithms to base 2 of all sizes, a row for each brick, in the order of ``lengths``."""
    rows = [
        (
            *t.sizes,
            math.log2(t.moved_bytes + 64),
            math.log2(seconds),
            math.log2(min(t.context.working_set_bytes, _MAX_WORKING_SET_BYTES) + 1024),
            math.log2(min(t.context.repeats, _MAX_REPEATS)),
            t.context.slowness,
        )
        for t, seconds in zip(features, roof_s, strict=True)
    ]
    return np.array(rows)


def covariance(a: Array, b: Array, params: CovarianceParams, *, lower: bool = False) -> Array:
    """Covariance of the residuals of ``a`` and ``b``, given as :func:`feature_matrix` rows.

    ``lower`` leaves out most or all of the part above the diagonal. The matrix is computed in
    stripes, because working outside a processor's cache takes far longer.
    """
    found = np.zeros((len(a), len(b)))
    for begin in range(0, len(a), STRIPE):
        end = min(begin + STRIPE, len(a))
        width = end if lower else len(b)
        found[begin:end, :width] = _stripe(a[begin:end], b[:width], params)
    return found


def _stripe(a: Array, b: Array, params: CovarianceParams) -> Array:
    count = len(params.lengths)
    far = np.zeros((len(a), len(b)))
    weights = (*params.apart, params.other)
    for mine, theirs, weight in zip(a.T[count:], b.T[count:], weights, strict=True):
        far += weight * (mine[:, None] != theirs[None, :])
    x, y = a[:, :count], b[:, :count]
    squares = (x**2).sum(axis=1)[:, None] + (y**2).sum(axis=1)[None, :]
    squares -= 2 * x @ y.T
    distance = np.sqrt(3 * np.maximum(squares, 0.0))
    similarity: Array = params.mean + params.wide * (1 + distance) * np.exp(-distance)
    distance *= params.ratio
    similarity += params.near * (1 + distance) * np.exp(-distance)
    similarity *= np.exp(-far)
    similarity += params.common
    return similarity


def noise_of(params: CovarianceParams, latency_s: Array) -> Array:
    """The noise variance of bricks with these latencies."""
    noise: Array = params.noise**2 + (_NOISE_S / latency_s) ** 2
    return noise


def by_kind(features: Mapping[str, BrickFeatures], keys: Collection[str]) -> dict[str, list[str]]:
    """The bricks among ``keys`` that are of each kind."""
    kinds: dict[str, list[str]] = {}
    for key in keys:
        kinds.setdefault(features[key].kind, []).append(key)
    return dict(sorted(kinds.items()))
