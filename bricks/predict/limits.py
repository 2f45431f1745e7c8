"""The highest rates that measured bricks of a target reached, which bound predictions.

A kernel that was never measured is predicted from other kernels, and could appear faster than the
machine computes, or than its memory delivers weights. Its latency is bounded by both, as in the
roofline model (Williams, Waterman and Patterson, *Roofline*, 2009), with rates of measured bricks
in place of the manufacturer's peaks. Must not know how latencies are predicted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bricks.predict.features import CONVOLUTION, PRODUCT, BrickFeatures
from bricks.predict.roofline import UNCACHED

Array = np.ndarray

# The least number of measured bricks from which limits follow.
ENOUGH = 300
# Smaller bricks are left out: the timer's error and the caches decide how fast they seem.
_MIN_FLOPS, _MIN_BYTES = 1e7, 2.0**20
# A run reads all weights of these kinds. Other operators may have branches, experts or tables.
_READ_ALL = frozenset({CONVOLUTION, PRODUCT})


@dataclass(frozen=True, slots=True)
class RooflineLimits:
    """Rates of one target: operations a second, and bytes of weights read from memory a second.

    Infinite where too few bricks were measured.
    """

    flops_per_s: float = math.inf
    bytes_per_s: float = math.inf

    @classmethod
    def fit(cls, features: Sequence[BrickFeatures], latency_s: Array) -> RooflineLimits:
        """Return the highest rates of measured bricks, whose latencies are in seconds."""
        if len(features) < ENOUGH:
            return NO_LIMITS
        flops, weights = _flops_and_weight_bytes(features)
        return cls(_highest(flops, latency_s, _MIN_FLOPS), _highest(weights, latency_s, _MIN_BYTES))

    def min_latency_s(self, features: Sequence[BrickFeatures]) -> Array:
        """Return a lower bound of the latency of each brick, in seconds."""
        flops, weights = _flops_and_weight_bytes(features)
        bounds_s: Array = np.maximum(flops / self.flops_per_s, weights / self.bytes_per_s)
        return bounds_s


NO_LIMITS = RooflineLimits()


def _flops_and_weight_bytes(features: Sequence[BrickFeatures]) -> tuple[Array, Array]:
    """Operations, and bytes of uncached weights, of each brick."""
    weights = np.array([t.weight_bytes * _uncached(t) for t in features])
    return np.array([t.flops for t in features]), weights


def _uncached(features: BrickFeatures) -> bool:
    exceeds_caches = features.context.working_set_bytes >= 2.0**UNCACHED
    return exceeds_caches and features.kind in _READ_ALL


def _highest(amounts: Array, latency_s: Array, minimum: float) -> float:
    large = amounts >= minimum
    return float((amounts[large] / latency_s[large]).max()) if large.any() else math.inf
