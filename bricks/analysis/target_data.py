"""Data of one target in a comparison: measured latencies, and their relative uncertainty.

Here so that both targets are treated equally: each in the usual conditions of its host. Reference
kernels are of the runtime, whose versions may be compared, so that they correct nothing between the
two. Must not know the other target.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bricks.analysis.significance import BRICK_DRIFT, MACHINE_DRIFT, degrees_of_freedom
from bricks.compose.basis import Basis
from bricks.compose.recompose import recompose
from bricks.compose.recomposition_error import composition_s
from bricks.samples.correction import Correction
from bricks.samples.measurement import Measurement
from bricks.samples.statistics import (
    NORMAL_95,
    effective_count,
    half_width,
    median,
    pooled_deviation,
)

if TYPE_CHECKING:
    from bricks.compose.basis import Results
    from bricks.compose.estimate import Estimate, IncompleteEstimate
    from bricks.decompose.plan import Plan
    from bricks.predict.prediction import BrickPredictions
    from bricks.samples.sensitivity import Sensitivities
    from bricks.samples.usual_conditions import UsualConditions
    from bricks.system.target import Target

# The relative error of a round, if no brick has two rounds that would show it.
_SINGLE = 0.05


@dataclass(frozen=True, slots=True)
class TargetData:
    """The data of one target: plans by the models' digests, and measurements.

    ``name`` is used in messages. ``predictions`` are of unmeasured bricks. ``conditions`` are those
    that latencies are corrected to, by ``sensitivities``; None: as they were measured.
    """

    name: str
    target: Target
    plans: Mapping[str, Plan]
    results: Results
    predictions: BrickPredictions
    conditions: UsualConditions | None = None
    sensitivities: Sensitivities | None = None


@dataclass(frozen=True, slots=True)
class BrickLatency:
    """The latency of a brick on a target, in seconds, and its relative uncertainty.

    ``independent_sd`` is the standard deviation of its own error.
    """

    latency_s: float
    independent_sd: float
    rounds: int
    disturbed: bool

    @property
    def degrees_of_freedom(self) -> float:
        """The degrees of freedom of its standard deviation, see :class:`LogRatio`."""
        return degrees_of_freedom(1 if self.disturbed else self.rounds)


class TargetLatencies:
    """The measured latencies of a target."""

    def __init__(self, data: TargetData) -> None:
        self.data = data
        keys = {key for plan in data.plans.values() for key in plan.keys}
        parts = {k: m for k in sorted(keys) if isinstance(m := data.results.get(k), Measurement)}
        correction = Correction(data.sensitivities, data.conditions, parts.values())
        corrected = {key: correction.corrected(m) for key, m in parts.items()}
        rounds_s = {key: [r.latency_s for r in m.walked] for key, m in corrected.items()}
        deviation = _SINGLE
        if any(len(of) > 1 for of in rounds_s.values()):
            undisturbed = ([r.latency_s for r in m.undisturbed] for m in corrected.values())
            deviation = pooled_deviation(undisturbed)
        self.latencies = {
            key: self._latency_of(parts[key], of, deviation, correction)
            for key, of in rounds_s.items()
        }

    def _latency_of(
        self,
        part: Measurement,
        rounds_s: list[float],
        deviation: float,
        correction: Correction,
    ) -> BrickLatency:
        factor = correction.factor(part)
        middle_s = median(rounds_s, part.weights)
        sampled = half_width(rounds_s, deviation, part.weights) / NORMAL_95 / middle_s
        return BrickLatency(
            latency_s=middle_s,
            independent_sd=math.hypot(sampled, BRICK_DRIFT, factor.independent_sd),
            rounds=round(effective_count([r.weight for r in part.walked])),
            disturbed=all(r.disturbed for r in part.walked),
        )

    def recomposed(self, plan: Plan) -> Estimate | IncompleteEstimate:
        """The latency of ``plan``."""
        data = self.data
        return recompose(
            Basis(plan, data.results, data.predictions, data.conditions, data.sensitivities)
        )

    def disturbed_share(self, plan: Plan) -> float:
        """The share of the measured part of ``plan`` that has disturbed rounds only."""
        parts = [
            (abs(n), self.latencies[key]) for key, n in plan.counts.items() if key in self.latencies
        ]
        whole_s = sum(n * latency.latency_s for n, latency in parts)
        return sum(n * latency.latency_s for n, latency in parts if latency.disturbed) / (
            whole_s or 1.0
        )

    def deviation(self, plan: Plan, estimate: Estimate, others: Mapping[str, int]) -> float:
        """The uncertainty of an estimate in this comparison, relative to the estimate.

        The error of recomposing is common to both targets, except for bricks that occur more often
        here than among ``others``.
        """
        squares = 0.0
        for key, n in plan.counts.items():
            measured, predicted = self.latencies.get(key), self.data.predictions.of.get(key)
            if measured is not None:
                squares += (n * measured.latency_s * measured.independent_sd) ** 2
            elif predicted is not None:
                squares += (n * predicted.latency_s * predicted.log_sd) ** 2
        more = plan.counts - Counter(others)
        net_s = {s.brick: s.latency_s / s.occurrences for s in estimate.shares if s.occurrences}
        more_s = sum(n * net_s.get(key, 0.0) for key, n in more.items())
        overhead_s = estimate.call_overhead_s
        width_s = composition_s(more_s, sum(more.values()), overhead_s)
        width_s += self.data.predictions.common_s(estimate.predicted_share * estimate.estimate_s)
        open_s = math.sqrt(squares) + width_s / NORMAL_95
        return math.hypot(open_s / estimate.estimate_s, MACHINE_DRIFT)
