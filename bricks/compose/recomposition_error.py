"""The error of recomposing: how a brick's cost in its model differs from its cost when measured.

Samples of bricks cannot show this difference; the errors of comparisons over many models bound it.
A host's own error follows from whole models that it ran along with their bricks.

A recomposed latency is off by what no sample of a brick shows: how caches are left, what a call
costs there, by how much predictions are off together. Runs of whole models show it, and a new model
is off as its parts are: the logarithm of run over estimate is linear in the shares of an estimate
that one limit decides (Bayesian linear regression; Gelman et al., *Bayesian Data Analysis*, section
14.8), and what is left of it differs from model to model. Must not know how runs and samples came
about.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bricks.samples.statistics import NORMAL_95

# Round numbers that held at least 95 % of half of the zoo's families, and of the others too, on two
# Xeon cores (1 % and 0.3 calls held them on two EPYC cores: the wider numbers count).
# benchmarks/accuracy.py reports the share that they hold, and the scale that they would need for
# families that are left out. The first is a share of the latency of all bricks, because of their
# cache state. The second is in calls for each occurrence: the subtracted overhead may be too large
# or too small, since a call costs more when its code and data have left the caches.
STATE_SHARE = 0.035
CALL_SHARE = 1.0
# The third is a share of the latency of bricks that mostly read their weights: where these lie in
# memory is another in each process, and decides how much of them a shared cache keeps. Chosen on
# chains of products of one size (18 of 20 are inside), and holds for all 16 of two sizes:
# research/measuring.md has the figures.
WEIGHTS_SHARE = 0.06

# Twice as much of stretches of tiny nodes (see decompose.stretches) so long that what the runtime
# keeps of them may fit into a core's cache or not: from process to process, a model of 6,000 nodes
# took 2.5 to 6.7 ms. Assumed, not fitted.
STRETCH_SHARE = 0.12
CACHED_NODES = 1 << 10

# The spread between physical hosts of one kind, as half the width of an interval that holds 95 % of
# them, relative to latencies that another host measured. It was chosen before it was compared on 14
# models (research/measuring.md).
OTHER_HOST_SHARE = 0.08

# The same for calls that another host issued to a device: assumed, since the hosts of cards differ,
# and the speed of one changed by up to 1.6 times within minutes.
OTHER_HOST_CALLS_SHARE = 0.4

# The last is for recorded programs, whose call overhead in Python and in the autograd engine
# differs from program to program. A share of its cost that was assumed and never fitted; it is a
# small part of the intervals in benchmarks/torch_steps.py.
CALL_OVERHEAD_SHARE = 0.5


def composition_s(
    total_s: float, occurrences: int, overhead_s: float, weight_bound_s: float = 0.0
) -> float:
    """Half the width, in seconds, that recomposing adds to an estimate's interval.

    ``weight_bound_s`` are the seconds, of ``total_s``, of bricks that mostly read their weights.
    """
    return cache_state_s(total_s, weight_bound_s) + calls_s(occurrences, overhead_s)


def cache_state_s(total_s: float, weight_bound_s: float) -> float:
    """The part of :func:`composition_s` that is due to the state of the caches."""
    return STATE_SHARE * total_s + WEIGHTS_SHARE * weight_bound_s


def calls_s(occurrences: int, overhead_s: float) -> float:
    """The part of :func:`composition_s` that is due to the cost of calls."""
    return CALL_SHARE * overhead_s * occurrences


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
        # What holds 95 % of a t distribution, in standard deviations (Fisher and Cornish, 1960).
        freedom = _FREEDOM + len(self._runs)
        z = NORMAL_95
        first, second = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96
        reach = z + first / freedom + second / freedom**2
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
