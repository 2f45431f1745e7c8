"""One of two targets that are compared: what is measured there, and by how much that is open.

It must not know of the other one, but for the state of the machine in which both are compared.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from bricks.analysis.significance import BRICK_DRIFT, MACHINE_DRIFT, degrees_of_freedom
from bricks.decompose.plan import Plan
from bricks.estimate.estimate import Estimate, IncompleteEstimate
from bricks.estimate.recompose import Results, recompose
from bricks.estimate.uncertainty import composition_s
from bricks.predict.prediction import Predictions
from bricks.samples.machine_state import dominant_state
from bricks.samples.measurement import Measurement, common_state
from bricks.samples.state_correction import StateCorrection
from bricks.samples.statistics import NORMAL_95, half_width, median, pooled_deviation
from bricks.system.target import Target

# A state in which less of a target is known than this is not the one to compare it in.
_MOSTLY = 0.5

# By how much a round is off, relative to it, where no brick has two that would show it.
_SINGLE = 0.05


@dataclass(frozen=True, slots=True)
class TargetData:
    """What is known of one of the two: plans by the models' digests, and what is measured.

    ``name`` is what messages call it. ``predictions`` are of bricks that were never tried.
    """

    name: str
    target: Target
    plans: Mapping[str, Plan]
    results: Results
    predictions: Predictions


@dataclass(frozen=True, slots=True)
class BrickLatency:
    """What a brick takes on a side, in seconds, and by how much that is open, relative to it.

    ``independent_sd`` is a standard deviation that it has for itself, ``shared_sd`` one that it has
    in common with others.
    """

    latency_s: float
    independent_sd: float
    shared_sd: float
    rounds: int
    other_state: bool
    disturbed: bool

    @property
    def degrees_of_freedom(self) -> float:
        """How well it is known how far it is open, see :class:`Change`."""
        return degrees_of_freedom(1 if self.disturbed else self.rounds)


class TargetLatencies:
    """What is measured on a side, in one state of the machine."""

    def __init__(self, data: TargetData, state_s: float | None) -> None:
        self.data = data
        parts = _parts(data)
        # The middle of this side's own rounds: what drifts between the two sides stays in ratios.
        used = [r.state_s for m in parts.values() for r in m.used_rounds(state_s)]
        self.state_s = state_s if state_s is None else dominant_state(used)
        correction = StateCorrection(parts.values(), self.state_s)
        rounds_s = {key: correction.rounds_s(m) for key, m in parts.items()}
        deviation = _SINGLE
        if any(len(of) > 1 for of in rounds_s.values()):
            deviation = pooled_deviation(rounds_s.values())
        self.taken = {
            key: self._taken(parts[key], of, deviation, correction) for key, of in rounds_s.items()
        }

    def _taken(
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
        relative_uncertainty = factor.relative_uncertainty / NORMAL_95
        return BrickLatency(
            latency_s=middle_s * factor.middle,
            independent_sd=math.hypot(
                sampled, BRICK_DRIFT, 0.0 if other_state else relative_uncertainty
            ),
            shared_sd=relative_uncertainty if other_state else 0.0,
            rounds=len(rounds_s),
            other_state=other_state,
            disturbed=all(r.disturbed for r in part.used_rounds(self.state_s)),
        )

    def recomposed(self, plan: Plan) -> Estimate | IncompleteEstimate:
        """The latency of ``plan``."""
        data = self.data
        return recompose(plan, data.results, self.state_s, predictions=data.predictions)

    def disturbed_share(self, plan: Plan) -> float:
        """Which share of what is measured of ``plan`` has no rounds that nobody disturbed."""
        parts = [(abs(n), self.taken[key]) for key, n in plan.counts.items() if key in self.taken]
        whole_s = sum(n * taken.latency_s for n, taken in parts)
        return sum(n * taken.latency_s for n, taken in parts if taken.disturbed) / (whole_s or 1.0)

    def deviation(self, plan: Plan, estimate: Estimate, others: Mapping[str, int]) -> float:
        """By how much an estimate is open against the other side's, relative to it.

        What recomposing is wrong by is wrong on both sides, but for bricks that occur more often
        here than among ``others``.
        """
        squares = common_s = 0.0
        for key, n in plan.counts.items():
            taken, predicted = self.taken.get(key), self.data.predictions.of.get(key)
            if taken is not None:
                squares += (n * taken.latency_s * taken.independent_sd) ** 2
                common_s += abs(n) * taken.latency_s * taken.shared_sd
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
    """The bricks that were measured, of all models."""
    keys = {key for plan in data.plans.values() for key in plan.keys}
    return {k: m for k in sorted(keys) if isinstance(m := data.results.get(k), Measurement)}


def states_of(old: TargetData, new: TargetData) -> tuple[list[float | None], bool]:
    """The state of the machine to speak of on each side; whether these should be one, and are not.

    The reference workload tells one state from another only where host, threads and backend are the
    same: elsewhere it takes another time anyhow, and each side is taken in the state that it has
    most of.
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
    """Which share of the latency of all ``parts`` was measured in a state."""
    every = [(part.latency_s(), part.known_in(state_s)) for part in parts]
    return sum(s for s, known in every if known) / sum(s for s, _ in every)
