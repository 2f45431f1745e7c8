"""Interpolates how far calls of one family are from their roofline: a Gaussian process.

Must not know what durations are used for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np

from bricks.predict.covariance import CovarianceParams, noise_of
from bricks.predict.interpolation import Interpolation

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
