"""Gaussian processes over bricks: their covariance function, and their fit to measured bricks.

Bricks of a kind are points in a space of sizes and tags, and their residuals from the roofline are
correlated where the points are close.

A process interpolates residuals.

Its covariance is fixed, so fitting is one factorisation without a search. It gives a weight for
each brick, from which predictions follow (Rasmussen and Williams, *Gaussian Processes for Machine
Learning*, algorithm 2.1). Must not know the meaning of the residuals.
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

    The covariance of two bricks is a sum: ``kind_variance`` for any two of a kind,
    ``operator_variance`` for equal operators and tags, and two terms that fall with the distance
    between their sizes: ``long_range_variance``, and ``short_range_variance`` over a range shorter
    by ``range_ratio``. ``lengths`` are the ranges, in factors of two, of each size, of the bytes
    moved, of the roofline, and of the context's working set, repeats and slowness. All terms but
    the first fall by a factor of e for each unit of ``tag_distances`` (one for each tag that
    differs) and of ``operator_distance`` (if the operators differ). ``noise`` is the standard
    deviation that other bricks cannot explain.
    """

    lengths: tuple[float, ...]
    tag_distances: tuple[float, ...]
    operator_distance: float
    kind_variance: float
    operator_variance: float
    long_range_variance: float
    short_range_variance: float
    range_ratio: float
    noise: float

    @property
    def prior(self) -> float:
        """The prior variance of a residual."""
        return (
            self.kind_variance
            + self.operator_variance
            + self.long_range_variance
            + self.short_range_variance
        )


# Found once, on half of the families of the zoo (see benchmarks/prediction.py), as the values that
# predict bricks of left-out families best. The width of intervals is learned anew each time.
COVARIANCE_PARAMS = {
    CONVOLUTION: CovarianceParams(
        lengths=(12, 5, 6, 2.5, 1.2, 5, 2.9, 13.5, 24, 56, 7.3, 60, 1.4),
        tag_distances=(0.57, 3.6, 0.7, 0.007, 0.015),
        operator_distance=1.4, kind_variance=0.1, operator_variance=0.0025,
        long_range_variance=0.023, short_range_variance=0.009, range_ratio=1.0,
        noise=0.019,
    ),
    PRODUCT: CovarianceParams(
        lengths=(2, 20, 10, 0.5, 20, 25, 40, 40, 6),
        tag_distances=(0.1, 0.1, 0.7, 0.06, 2, 0.1),
        operator_distance=0.05, kind_variance=0.02, operator_variance=0.002,
        long_range_variance=0.002, short_range_variance=0.003, range_ratio=2.0,
        noise=0.06,
    ),
    STREAM: CovarianceParams(
        lengths=(31, 42, 0.95, 22, 0.75, 43, 29, 21, 39, 3),
        tag_distances=(4.7, 0.57, 1.3, 2.2),
        operator_distance=0.6, kind_variance=0.1, operator_variance=1.7,
        long_range_variance=0.009, short_range_variance=0.035, range_ratio=16.0,
        noise=0.09,
    ),
}  # fmt: skip
# Latencies of microseconds are less exact, because of the timer and the caches at each call.
_NOISE_S = 0.3e-6

# Larger working sets count as this size, because no processor caches them; more repeats as these.
_MAX_WORKING_SET_BYTES, _MAX_REPEATS = 2.0**30, 8

# Number of matrix rows computed at once.
STRIPE = 128


def feature_matrix(
    features: Sequence[BrickFeatures], roof_s: Array, params: CovarianceParams
) -> Array:
    """Return a row for each brick: sizes in units of their ranges, checksums of tags and operator.

    ``roof_s`` are the bricks' rooflines in seconds.
    """
    # Logarithms to base 2 of all sizes, in the order of ``lengths``.
    sizes = [
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
    lengths = np.array(sizes) / params.lengths
    names = [[crc32(name.encode()) for name in (*t.tags, t.operator)] for t in features]
    return np.concatenate([lengths, np.array(names, float)], axis=1)


def covariance(a: Array, b: Array, params: CovarianceParams, *, lower: bool = False) -> Array:
    """Return the covariance matrix of the residuals of ``a`` and ``b``, rows of feature matrices.

    ``lower`` leaves out most or all of the part above the diagonal. The matrix is computed in
    stripes, which fit into a processor's cache.
    """
    matrix = np.zeros((len(a), len(b)))
    for begin in range(0, len(a), STRIPE):
        end = min(begin + STRIPE, len(a))
        width = end if lower else len(b)
        matrix[begin:end, :width] = _stripe(a[begin:end], b[:width], params)
    return matrix


def _stripe(a: Array, b: Array, params: CovarianceParams) -> Array:
    count = len(params.lengths)
    distance_by_name = np.zeros((len(a), len(b)))
    weights = (*params.tag_distances, params.operator_distance)
    for own_names, other_names, weight in zip(a.T[count:], b.T[count:], weights, strict=True):
        distance_by_name += weight * (own_names[:, None] != other_names[None, :])
    x, y = a[:, :count], b[:, :count]
    squares = (x**2).sum(axis=1)[:, None] + (y**2).sum(axis=1)[None, :]
    squares -= 2 * x @ y.T
    distance = np.sqrt(3 * np.maximum(squares, 0.0))
    similarity: Array = params.operator_variance + params.long_range_variance * (
        1 + distance
    ) * np.exp(-distance)
    distance *= params.range_ratio
    similarity += params.short_range_variance * (1 + distance) * np.exp(-distance)
    similarity *= np.exp(-distance_by_name)
    similarity += params.kind_variance
    return similarity


def noise_of(params: CovarianceParams, latency_s: Array) -> Array:
    """Return the noise variance of log-latencies, for bricks with these latencies in seconds."""
    noise: Array = params.noise**2 + (_NOISE_S / latency_s) ** 2
    return noise


def by_kind(features: Mapping[str, BrickFeatures], keys: Collection[str]) -> dict[str, list[str]]:
    """Return the bricks ``keys`` grouped by kind."""
    kinds: dict[str, list[str]] = {}
    for key in keys:
        kinds.setdefault(features[key].kind, []).append(key)
    return dict(sorted(kinds.items()))


# Without the factor of all bricks, the variance of a prediction follows from this number of bricks
# of highest covariance. The variance can only be larger than with all of them: the standard
# deviation by 2 % in the median of a thousand random architectures, by 6 % in the 95th percentile.
NEAR = 128

# Bricks whose matrices of so many numbers each are in memory together.
_AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class Interpolation:
    """A Gaussian process whose observations are rows ``at`` of a feature matrix.

    ``noise`` is the variance of each observation, and ``weights`` are the observations' weights in
    a predicted mean. ``lower`` is the Cholesky factor of their covariance matrix; None where only
    the weights were stored.
    """

    params: CovarianceParams
    at: Array
    noise: Array
    weights: Array
    lower: Array | None

    @classmethod
    def fit(
        cls, params: CovarianceParams, at: Array, residuals: Array, noise: Array
    ) -> Interpolation:
        """Fit to ``residuals`` observed at the rows of ``at`` with the variances ``noise``."""
        from scipy.linalg import cho_solve, cholesky  # evaluating what was learned needs neither

        matrix = covariance(at, at, params, lower=True)
        matrix[np.diag_indices_from(matrix)] += noise
        lower = cholesky(matrix, lower=True, overwrite_a=True, check_finite=False)
        weights = cho_solve((lower, True), residuals, check_finite=False)
        return cls(params, at, noise, weights, lower)

    def predict(self, at: Array) -> tuple[Array, Array]:
        """Means and variances of the residuals at the rows of ``at``."""
        between = covariance(at, self.at, self.params)
        explained = self._explained(between) if self.lower is not None else self._near(between)
        # Rounding shows where a brick equals an observed one.
        variances = np.maximum(self.params.prior - explained, 0.0)
        return between @ self.weights, variances

    def _explained(self, between: Array) -> Array:
        """The variances that the observations explain; ``between`` has a row for each brick."""
        from scipy.linalg import solve_triangular

        white = solve_triangular(self.lower, between.T, lower=True, check_finite=False)
        variances: Array = np.einsum("ij,ij->j", white, white)
        return variances

    def _near(self, between: Array) -> Array:
        """A lower bound of the explained variances: by the :data:`NEAR` closest observations."""
        variances = np.empty(len(between))
        for begin in range(0, len(between), _AT_ONCE):
            rows = between[begin : begin + _AT_ONCE]
            near = np.argsort(-rows, axis=1, kind="stable")[:, :NEAR]
            matrices = np.stack([covariance(self.at[n], self.at[n], self.params) for n in near])
            diagonal = np.arange(near.shape[1])
            matrices[:, diagonal, diagonal] += self.noise[near]
            right = np.take_along_axis(rows, near, axis=1)
            solved = np.linalg.solve(matrices, right[:, :, None])[:, :, 0]
            variances[begin : begin + _AT_ONCE] = [
                a @ b for a, b in zip(right, solved, strict=True)
            ]
        return variances
