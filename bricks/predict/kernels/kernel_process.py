"""Interpolates how far calls of one family are from their roofline: a Gaussian process.

The covariance of each family was found once by marginal likelihood on half of the families of
programs and on the sweep. Must not know what durations are used for.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np

from bricks.predict.covariance import CovarianceParams, Interpolation, noise_of

if TYPE_CHECKING:
    from bricks.predict.kernels.device_roofline import StatedCall

Array = np.ndarray


@dataclass(frozen=True)  # without slots, for the cached interpolation
class KernelProcess:
    """The process of one family, factorised when it first predicts.

    ``residuals`` are logarithms of durations over rooflines, observed at the rows of ``at`` with
    the variances ``noise``. No row is there twice.
    """

    params: CovarianceParams
    at: Array
    noise: Array
    residuals: Array

    @classmethod
    def of(
        cls, params: CovarianceParams, calls: Sequence[StatedCall], roof_s: Array, device_s: Array
    ) -> KernelProcess:
        """The process of calls that took ``device_s`` where their roofline is ``roof_s``.

        Observations of equal calls are one, with less noise: predictions stay the same.
        """
        every = call_matrix(calls, roof_s) / _units(params)
        at, places = np.unique(every, axis=0, return_inverse=True)
        places, trust = np.ravel(places), 1 / noise_of(params, device_s)
        noise = 1 / np.bincount(places, trust)
        means = noise * np.bincount(places, trust * np.log(device_s / roof_s))
        return cls(params, at, noise, means)

    def predict(self, calls: Sequence[StatedCall], roof_s: Array) -> tuple[Array, Array]:
        """Logarithms of duration over roofline, and their variances."""
        return self._interpolation.predict(call_matrix(calls, roof_s) / _units(self.params))

    @cached_property
    def _interpolation(self) -> Interpolation:
        return Interpolation.fit(self.params, self.at, self.residuals, self.noise)


def call_matrix(calls: Sequence[StatedCall], roof_s: Array) -> Array:
    """A row for each call: logarithms of sizes, checksums of its state, tags and operator."""
    rows = [
        (
            *call.features.work.sizes,
            math.log2(call.features.work.read_bytes + 64),
            math.log2(call.features.work.written_bytes + 64),
            math.log2(roof),
            *map(_number, (call.state, *call.features.work.tags, call.features.operator)),
        )
        for call, roof in zip(calls, roof_s, strict=True)
    ]
    return np.array(rows, float)


def _number(name: str) -> float:
    return float(crc32(name.encode()))


def _units(params: CovarianceParams) -> Array:
    """The lengths of the sizes; names have none."""
    return np.array([*params.lengths, *(1.0 for _ in params.tag_distances), 1.0])


def _params(
    lengths: tuple[float, ...], tags: tuple[float, ...], variances: tuple[float, float, float],
    noise: float,
) -> CovarianceParams:  # fmt: skip
    """``tags`` begin with the distance between operators; no short range."""
    operator, *others = tags
    kind, own, long_range = variances
    return CovarianceParams(
        lengths=lengths, tag_distances=tuple(others), operator_distance=operator,
        kind_variance=kind, operator_variance=own, long_range_variance=long_range,
        short_range_variance=0.0, range_ratio=1.0, noise=noise,
    )  # fmt: skip


# lengths: of the family's sizes, of bytes read, of bytes written, of the roofline. tags: operator,
# state, and the family's tags.
PARAMS: Mapping[str, CovarianceParams] = {
    "attention": _params(
        (21, 16, 2, 1.4, 15, 12, 4.7),
        (0.32, 0.01, 0.32, 0.55, 0.24),
        (0.069, 0.018, 0.12), 0.02,
    ),
    "attention gradients": _params(
        (6.2, 3.9, 3.9, 4.5, 11, 11, 2.9),
        (0.24, 0.015, 0.24, 0.16, 0.1),
        (0.057, 0.037, 0.17), 0.02,
    ),
    "convolution": _params(
        (16, 6.3, 6.7, 7.3, 5.6, 3.1, 4.8, 12, 19, 3.7),
        (0.5, 0.01, 0.14, 0.076, 0.13, 0.5, 0.5, 0.17, 0.23),
        (0.12, 0.085, 0.85), 0.02,
    ),
    "convolution gradients": _params(
        (11, 28, 8.9, 7.2, 1.4, 6.3, 8.1, 7, 11, 2.7),
        (0.5, 0.01, 0.15, 0.08, 0.068, 0.12, 0.5, 0.39, 0.27),
        (0.081, 0.049, 0.8), 0.02,
    ),
    "foreach": _params(
        (6.8, 7.6, 4.4, 11, 7.5, 3.5),
        (0.067, 0.058, 0.44, 0.5, 0.5),
        (0.077, 0.018, 0.29), 0.1,
    ),
    "gather": _params(
        (5.5, 2.3, 0.24, 3.8, 6.2, 12),
        (0.56, 0.025, 1, 0.5, 0.5),
        (0.074, 0.056, 0.81), 0.054,
    ),
    "normalisation": _params(
        (7.9, 3.2, 2.9, 12, 2.1, 2.6),
        (0.28, 0.01, 0.59, 0.5, 0.46),
        (0.082, 0.033, 0.25), 0.049,
    ),
    "pointwise": _params(
        (6.8, 6.5, 1.9, 4.1, 7.2, 7.6),
        (2, 0.01, 0.22, 0.53, 0.66),
        (0.073, 0.37, 0.021), 0.099,
    ),
    "product": _params(
        (16, 3.5, 18, 4.5, 5.9, 6.7, 19),
        (0.23, 0.048, 0.75, 0.016, 0.7, 0.18),
        (0.067, 0.0098, 0.16), 0.03,
    ),
    "reduction": _params(
        (8.2, 6.1, 2.4, 5.4, 9.3, 6.5),
        (0.3, 0.081, 0.085, 2.8, 0.17),
        (0.065, 0.02, 0.27), 0.029,
    ),
    "resampling": _params(
        (4.8, 5.5, 3.5, 6.9, 3.3, 9.3),
        (1.3, 0.01, 0.5, 0.5, 0.5),
        (0.058, 0.016, 0.17), 0.025,
    ),
    "scatter": _params(
        (13, 8.9, 3.8, 7.6, 13, 9.8),
        (2.3, 0.01, 0.36, 0.5, 0.5),
        (0.095, 0.085, 0.59), 0.037,
    ),
}  # fmt: skip
