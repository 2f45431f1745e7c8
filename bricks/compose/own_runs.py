"""A host's own error of recomposition, from whole models that it ran along with their bricks.

A recomposed latency is off by what no sample of a brick shows: how caches are left, what a call
costs there, by how much predictions are off together. Runs of whole models show it, and a new model
is off as its parts are: the logarithm of run over estimate is linear in the shares of an estimate
that one limit decides (Bayesian linear regression; Gelman et al., *Bayesian Data Analysis*, section
14.8), and what is left of it differs from model to model. Must not know how runs were measured.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bricks.compose.recomposition_error import CALL_SHARE, STATE_SHARE, WEIGHTS_SHARE
from bricks.samples.statistics import NORMAL_95

# What a host is expected to be off by until its runs say otherwise, for an estimate that one part
# makes up: standard deviations of logarithms. Predictions have their own.
_STATE_SD, _CALL_SD, _WEIGHTS_SD = (
    share / NORMAL_95 for share in (STATE_SHARE, CALL_SHARE, WEIGHTS_SHARE)
)

# How much models of one host differ beyond that, as a standard deviation, and the number of runs
# that this counts for. A host of an unknown kind: twice what hosts of the zoo's kinds show.
_MODEL_SD, _FREEDOM = 0.02, 4.0

_ROUNDS = 4  # of learning how much models differ, which converges in two or three

_Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class LimitShares:
    """The shares of an estimate by what decides them, most of which add up to 1.

    ``arithmetic``, ``memory`` and ``calls`` limit measured bricks. ``overhead`` are calls that were
    subtracted, ``weights`` are bricks that mostly read weights. ``predicted`` are bricks that were
    not measured.
    """

    arithmetic: float
    memory: float
    calls: float
    overhead: float
    weights: float
    predicted: float

    @property
    def vector(self) -> _Array:
        """The shares in their order."""
        return np.array(
            [self.arithmetic, self.memory, self.calls, self.overhead, self.weights, self.predicted]
        )


@dataclass(frozen=True, slots=True)
class OwnRun:
    """A whole model that was run along with its bricks on this host.

    ``log_ratio`` is the logarithm of its run over its estimate without any correction, ``sd`` the
    standard deviation that the samples of both leave open.
    """

    digest: str
    shares: LimitShares
    log_ratio: float
    sd: float


@dataclass(frozen=True, slots=True)
class HostError:
    """How much longer a run takes than its recomposed bricks, and how far that is known.

    ``factor`` corrects an estimate. The others are half the widths of intervals, relative to it:
    of the common error of predictions, of the cost of calls, and of all else. ``runs`` is how many
    runs of whole models say so.
    """

    factor: float
    predicted: float
    overhead: float
    recomposition: float
    runs: int


class OwnRuns:
    """The error of recomposition on a host that has run these whole models."""

    def __init__(self, runs: Sequence[OwnRun] = ()) -> None:
        self._runs = tuple(runs)

    def without(self, digest: str) -> OwnRuns:
        """Without the run of one model: a run says nothing of the estimate that it is for."""
        return OwnRuns([run for run in self._runs if run.digest != digest])

    def __len__(self) -> int:
        return len(self._runs)

    def error(self, shares: LimitShares, bias: float) -> HostError:
        """The error of an estimate with these shares.

        ``bias`` is the standard deviation of the error that predictions of one model have in
        common, relative to the predicted part.
        """
        mean, covariance, model_variance = self._learned(bias)
        of = shares.vector
        variance = float(of @ covariance @ of) + model_variance
        predicted = of[5] ** 2 * covariance[5, 5]
        overhead = of[3] ** 2 * covariance[3, 3]
        reach = _reach(_FREEDOM + len(self._runs))
        return HostError(
            factor=math.exp(float(of @ mean)),
            predicted=reach * math.sqrt(predicted),
            overhead=reach * math.sqrt(overhead),
            recomposition=reach * math.sqrt(max(model_variance, variance - predicted - overhead)),
            runs=len(self._runs),
        )

    def _learned(self, bias: float) -> tuple[_Array, _Array, float]:
        """Mean and covariance of each part's error, and the variance between models."""
        sds = (_STATE_SD, _STATE_SD, _STATE_SD, _CALL_SD, _WEIGHTS_SD, max(bias, 1e-6))
        precision, prior = np.diag([sd**-2 for sd in sds]), _MODEL_SD**2
        mean, covariance, model_variance = np.zeros(len(sds)), np.linalg.inv(precision), prior
        if not self._runs:
            return mean, covariance, model_variance
        of = np.array([run.shares.vector for run in self._runs])
        logs = np.array([run.log_ratio for run in self._runs])
        sampled = np.array([run.sd**2 for run in self._runs])
        for _ in range(_ROUNDS):
            weights = 1.0 / (sampled + model_variance)
            covariance = np.linalg.inv(precision + (of.T * weights) @ of)
            mean = covariance @ (of.T @ (weights * logs))
            left = np.maximum(0.0, (logs - of @ mean) ** 2 - sampled)
            model_variance = (_FREEDOM * prior + float(left.sum())) / (_FREEDOM + len(logs))
        return mean, covariance, model_variance


def _reach(freedom: float) -> float:
    """How many standard deviations hold 95 % of a t distribution (Fisher and Cornish, 1960)."""
    z = NORMAL_95
    first, second = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96
    return z + first / freedom + second / freedom**2
