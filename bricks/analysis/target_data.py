"""Data of one target in a comparison: measured latencies, and their relative uncertainty.

Here so that both targets are treated equally. Must not know the other target, except for the
machine state in which both are compared.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bricks.analysis.significance import BRICK_DRIFT, MACHINE_DRIFT, degrees_of_freedom
from bricks.compose.basis import Basis
from bricks.compose.recompose import recompose
from bricks.compose.recomposition_error import composition_s
from bricks.samples.machine_state import dominant_state
from bricks.samples.measurement import Measurement, common_state
from bricks.samples.state_correction import StateCorrection
from bricks.samples.statistics import NORMAL_95, half_width, median, pooled_deviation

if TYPE_CHECKING:
    from bricks.compose.estimate import Estimate, IncompleteEstimate
    from bricks.compose.parts import Results
    from bricks.decompose.plan import Plan
    from bricks.predict.prediction import BrickPredictions
    from bricks.samples.state_model import StateModel
    from bricks.system.target import Target

# A state that covers less of a target than this is not used to compare it.
_MOSTLY = 0.5

# The relative error of a round, if no brick has two rounds that would show it.
_SINGLE = 0.05


@dataclass(frozen=True, slots=True)
class TargetData:
    """The data of one target: plans by the models' digests, and measurements.

    ``name`` is used in messages. ``predictions`` are of unmeasured bricks. ``states`` is the model
    of its machine states; None if all measurements are in one state.
    """

    name: str
    target: Target
    plans: Mapping[str, Plan]
    results: Results
    predictions: BrickPredictions
    states: StateModel | None = None


@dataclass(frozen=True, slots=True)
class BrickLatency:
    """The latency of a brick on a target, in seconds, and its relative uncertainty.

    ``independent_sd`` is the standard deviation of its own error, ``shared_sd`` that of the error
    it shares with other bricks.
    """

    latency_s: float
    independent_sd: float
    shared_sd: float
    rounds: int
    other_state: bool
    disturbed: bool

    @property
    def degrees_of_freedom(self) -> float:
        """The degrees of freedom of its standard deviation, see :class:`LogRatio`."""
        return degrees_of_freedom(1 if self.disturbed else self.rounds)


class TargetLatencies:
    """The measured latencies of a target, in one machine state."""

    def __init__(self, data: TargetData, state_s: float | None) -> None:
        self.data = data
        parts = _parts(data)
        # The median of this target's own rounds: drift between the two targets stays in ratios.
        used = [r.state_s for m in parts.values() for r in m.used_rounds(state_s)]
        self.state_s = state_s if state_s is None else dominant_state(used)
        correction = StateCorrection(parts.values(), self.state_s, data.states)
        rounds_s = {key: correction.rounds_s(m) for key, m in parts.items()}
        deviation = _SINGLE
        if any(len(of) > 1 for of in rounds_s.values()):
            deviation = pooled_deviation(rounds_s.values())
        self.latencies = {
            key: self._latency_of(parts[key], of, deviation, correction)
            for key, of in rounds_s.items()
        }

    def _latency_of(
        self,
        part: Measurement,
        rounds_s: list[float],
        deviation: float,
        correction: StateCorrection,
    ) -> BrickLatency:
        factor = correction.factor(part)
        middle_s = median(rounds_s)
        sampled = half_width(rounds_s, deviation) / NORMAL_95 / middle_s
        other_state = not part.known_in(self.state_s)
        return BrickLatency(
            latency_s=middle_s,
            independent_sd=math.hypot(sampled, BRICK_DRIFT, factor.independent_sd),
            shared_sd=factor.shared_sd,
            rounds=len(rounds_s),
            other_state=other_state,
            disturbed=all(r.disturbed for r in part.used_rounds(self.state_s)),
        )

    def recomposed(self, plan: Plan) -> Estimate | IncompleteEstimate:
        """The latency of ``plan``."""
        data = self.data
        return recompose(
            Basis(
                plan, data.results, self.state_s, predictions=data.predictions, states=data.states
            )
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
        squares = common_s = 0.0
        for key, n in plan.counts.items():
            measured, predicted = self.latencies.get(key), self.data.predictions.of.get(key)
            if measured is not None:
                squares += (n * measured.latency_s * measured.independent_sd) ** 2
                common_s += abs(n) * measured.latency_s * measured.shared_sd
            elif predicted is not None:
                squares += (n * predicted.latency_s * predicted.log_sd) ** 2
        more = plan.counts - Counter(others)
        net_s = {s.brick: s.latency_s / s.occurrences for s in estimate.shares if s.occurrences}
        more_s = sum(n * net_s.get(key, 0.0) for key, n in more.items())
        overhead_s = estimate.call_overhead_s
        width_s = composition_s(more_s, sum(more.values()), overhead_s)
        width_s += self.data.predictions.common_s(estimate.predicted_share * estimate.estimate_s)
        open_s = math.sqrt(squares) + common_s + width_s / NORMAL_95
        return math.hypot(open_s / estimate.estimate_s, MACHINE_DRIFT)


def _parts(data: TargetData) -> dict[str, Measurement]:
    """The measured bricks of all models."""
    keys = {key for plan in data.plans.values() for key in plan.keys}
    return {k: m for k in sorted(keys) if isinstance(m := data.results.get(k), Measurement)}


def states_of(old: TargetData, new: TargetData) -> tuple[list[float | None], bool]:
    """The machine state of each target; whether the states should be equal, and are not.

    The reference workload distinguishes states only where host, threads and backend are the same:
    otherwise its latency differs anyhow, and each target is compared in its most frequent state.
    """
    sides = [_parts(old), _parts(new)]
    own = [common_state(parts.values(), parts, {}) if parts else None for parts in sides]
    if not _same_kind(old.target, new.target) or None in own:
        return own, False
    every = {f"{i} {key}": m for i, parts in enumerate(sides) for key, m in parts.items()}
    shared = common_state(every.values(), every, {})
    if all(_known_share(parts.values(), shared) >= _MOSTLY for parts in sides):
        return [shared, shared], False
    return own, True


def _same_kind(one: Target, other: Target) -> bool:
    a, b = one.runtime, other.runtime
    return one.system.key == other.system.key and (a.backend, a.threads) == (b.backend, b.threads)


def _known_share(parts: Iterable[Measurement], state_s: float | None) -> float:
    """The share of the latency of all ``parts`` that was measured in a state."""
    every = [(part.latency_s(), part.known_in(state_s)) for part in parts]
    return sum(s for s, known in every if known) / sum(s for s, _ in every)
