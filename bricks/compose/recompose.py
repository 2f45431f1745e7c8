"""Performance construction: a model's latency from its plan and its bricks' measurements.

Sequential construction as in DLBricks (Li et al., ICPE 2020, section 3.2): runtimes execute a
model's layers one after another, so latencies add up, which is the case of one lane. The cost of a
runtime call is subtracted from each brick and added once. Where bricks overlap, their shared layers
are subtracted (see ``decompose.overlap``). Parallel construction is in
:mod:`bricks.compose.schedule`.

The contributions of bricks to the latency do not depend on the order in which they run. Must not
know how measurements came about.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from bricks.compose.basis import gaps
from bricks.compose.estimate import ErrorSource, Estimate, IncompleteEstimate, PhaseShare, Share
from bricks.compose.interval_width import (
    SourcedInterval,
    critical_path,
    parallel_interval,
    sequential_interval,
)
from bricks.compose.latencies import (
    latencies,
    overheads_uncertain_s,
    phase_overheads,
    phase_shares,
    run_in_conditions,
)
from bricks.compose.recomposition_error import (
    CACHED_NODES,
    OTHER_HOST_SHARE,
    STRETCH_SHARE,
    LimitShares,
    OwnRun,
    cache_state_s,
    calls_s,
)
from bricks.compose.schedule import schedule
from bricks.samples.measurement import round_spread
from bricks.samples.statistics import NORMAL_95

if TYPE_CHECKING:
    from bricks.compose.basis import Basis
    from bricks.compose.latencies import BrickLatencies
    from bricks.compose.recomposition_error import HostError
    from bricks.decompose.plan import Plan
    from bricks.samples.measurement import Measurement
    from bricks.units.interval import Interval


def recompose(basis: Basis) -> Estimate | IncompleteEstimate:
    """The latency of a model's plan from ``basis``, with a 95 % interval and its sources.

    Incomplete where a brick was neither measured nor predicted, or the probes were not measured.
    """
    if basis.device is not None:
        from bricks.compose.device.recompose import recompose_on_device

        return recompose_on_device(basis, basis.device)
    plan = basis.plan
    bricks = Contributions.of(plan, latencies(basis))
    host = None
    if basis.own_runs is not None and basis.construction is None:
        host = basis.own_runs.error(bricks.by_limit(basis), basis.predictions.bias)
        bricks = Contributions.of(plan, bricks.latencies.times(host.factor))
    if missing := gaps(plan, basis.results, bricks.latencies.predicted):
        return IncompleteEstimate(
            plan.model, plan.granularity, bricks.total_s, bricks.coverage, missing, bricks.shares
        )
    overheads = phase_overheads(plan, bricks.latencies.probes)
    phases = phase_shares(plan, bricks.latencies.net_s, overheads)
    seconds = _seconds(basis, bricks, phases, _common_errors(basis, bricks, overheads, host))
    own_runs = None if host is None else host.runs
    estimate = _estimate(basis, bricks, phases, seconds)
    return replace(estimate, own_runs=own_runs, assumed=plan.assumed)


def own_run(basis: Basis, run: Measurement) -> OwnRun | None:
    """What a ``run`` of the whole model says of the host, against the estimate from ``basis``.

    None where that is incomplete. The run's conditions are those of ``basis``.
    """
    estimate = recompose(replace(basis, own_runs=None))
    if not isinstance(estimate, Estimate):
        return None
    run_s = round_spread(run_in_conditions(basis, run))
    of = estimate.uncertainty
    sampled = (
        of.samples_s + of.conditions_s
    ) * of.half_width_s  # parts are in proportion to squares
    sd = math.hypot(math.sqrt(sampled) / estimate.estimate_s, run_s.relative) / NORMAL_95
    shares = Contributions.of(basis.plan, latencies(basis)).by_limit(basis)
    return OwnRun(basis.plan.digest, shares, math.log(run_s.value / estimate.estimate_s), sd)


def _seconds(
    basis: Basis,
    bricks: Contributions,
    phases: Sequence[PhaseShare],
    errors: Sequence[Mapping[ErrorSource, float]],
) -> SourcedInterval:
    """The latency of a run: a call of the runtime, all bricks, and the overhead of phases."""
    plan, known, construction = basis.plan, bricks.latencies, basis.construction
    overhead_s = sum(phase.overhead_s for phase in phases)
    own = sequential_interval(known, plan.counts)
    run_s = _run_s(basis, bricks)
    value_s = known.call_s.value + max(0.0, run_s + overhead_s)
    if construction is None:
        # Off by the same ratio as their sum, all bricks of a run make it as much longer.
        own = own.scaled(run_s / bricks.total_s) if known.kernels and bricks.total_s else own
        return own.shifted(overhead_s).with_value(value_s).widened(errors).positive()
    bounds = parallel_interval(plan, construction, known, own)
    return bounds.shifted(overhead_s).with_value(value_s).with_end_errors(errors).positive()


def _run_s(basis: Basis, bricks: Contributions) -> float:
    """Seconds of a run without its call: the sum on one lane, the composition of several lanes."""
    plan, known = basis.plan, bricks.latencies
    if basis.construction is not None:
        return schedule(plan, basis.construction, known.net_s).end_s
    if known.kernels:
        from bricks.compose.timeline import device_step

        return device_step(basis, known).run.step_s
    return bricks.total_s


def _common_errors(
    basis: Basis,
    bricks: Contributions,
    overheads: Mapping[str, Interval],
    host: HostError | None,
) -> tuple[Mapping[ErrorSource, float], ...]:
    """The independent errors that are common to all bricks, each in seconds by source.

    Their causes: predictions, conditions of the host, other hosts, and recomposition with call
    overhead, of which the ``host`` has shown its own.
    """
    calls = bricks.calls_uncertain_s() + overheads_uncertain_s(overheads)
    conditions = {ErrorSource.CONDITIONS: bricks.latencies.all_shared_s}
    others = {ErrorSource.OTHER_HOST: OTHER_HOST_SHARE * bricks.published_s}
    if host is not None:
        run_s = bricks.gross_s + bricks.latencies.call_s.value
        return (
            {ErrorSource.PREDICTED: host.predicted * run_s},
            {ErrorSource.RECOMPOSITION: host.recomposition * run_s + bricks.stretches_state_s},
            {ErrorSource.CALLS: host.overhead * run_s + calls},
            conditions,
            others,
        )
    # Workers exchange single nodes, not stretches of nodes.
    plan, alone = basis.plan, basis.construction is None
    uncertain = sum(map(abs, plan.counts.values())) if alone else plan.nodes
    calls += calls_s(uncertain, bricks.latencies.call_s.value)
    return (
        {ErrorSource.PREDICTED: basis.predictions.common_s(bricks.predicted_s)},
        conditions,
        others,
        {ErrorSource.RECOMPOSITION: bricks.cache_state_s, ErrorSource.CALLS: calls},
    )


def _estimate(
    basis: Basis, bricks: Contributions, phases: tuple[PhaseShare, ...], interval: SourcedInterval
) -> Estimate:
    plan, call_s, gross_s = basis.plan, bricks.latencies.call_s.value, bricks.gross_s
    return Estimate(
        model=plan.model,
        granularity=plan.granularity,
        estimate_s=interval.seconds.value,
        low_s=interval.seconds.low,
        high_s=interval.seconds.high,
        critical_path_s=call_s + critical_path(plan, bricks.latencies.net_s),
        call_overhead_s=call_s,
        predicted_share=bricks.predicted_s / gross_s if gross_s else 0.0,
        published_share=bricks.published_s / gross_s if gross_s else 0.0,
        coverage=bricks.coverage,
        shares=bricks.shares,
        uncertainty=interval.uncertainty,
        workers=1 if basis.construction is None else basis.construction.workers,
        phases=phases,
        unmeasurable=basis.predictions.unmeasurable & bricks.latencies.predicted,
        watched_s=0.0 if basis.conditions is None else basis.conditions.watched_s,
    )


@dataclass(frozen=True, slots=True)
class Contributions:
    """Seconds of all occurrences of each brick of ``plan`` by key, call overhead subtracted.

    Negative for a brick whose latency is subtracted more often than it is added.
    """

    plan: Plan
    latencies: BrickLatencies
    seconds: Mapping[str, float]

    @classmethod
    def of(cls, plan: Plan, latencies: BrickLatencies) -> Contributions:
        """The contributions of all bricks of ``plan`` in ``latencies``."""
        counts = plan.counts
        seconds = {key: counts[key] * s for key, s in latencies.net_s.items()}
        return cls(plan, latencies, seconds)

    @property
    def total_s(self) -> float:
        """Seconds of all bricks one after another."""
        return sum(self.seconds.values(), 0.0)

    @property
    def gross_s(self) -> float:
        """The sum of absolute contributions, those of subtracted bricks included."""
        return sum(map(abs, self.seconds.values()))

    @property
    def predicted_s(self) -> float:
        """Absolute seconds of bricks that were not measured."""
        return self._absolute_s(sorted(self.latencies.predicted))

    @property
    def published_s(self) -> float:
        """Absolute seconds that come from measurements of other hosts."""
        published = self.latencies.published
        return sum(abs(s) * published.get(key, 0.0) for key, s in self.seconds.items())

    @property
    def cache_state_s(self) -> float:
        """Half the width of the interval, in seconds, that is due to the state of the caches."""
        weight_bound_s = self._absolute_s(self.plan.weight_bound)
        return cache_state_s(self.gross_s, weight_bound_s) + self.stretches_state_s

    @property
    def stretches_state_s(self) -> float:
        """The part of it that is due to long stretches of tiny nodes."""
        long = sorted({o.brick for o in self.plan.occurrences if o.nodes >= CACHED_NODES})
        return STRETCH_SHARE * self._absolute_s(long)

    def by_limit(self, basis: Basis) -> LimitShares:
        """The shares of a run by what decides them, see :class:`LimitShares`."""
        run_s, known = self.total_s + self.latencies.call_s.value, self.latencies
        if run_s <= 0:
            return LimitShares(1.0, 0.0, 0.0, 0.0, 0.0, 0.0)
        limited = np.zeros(3)
        for key, seconds in self.seconds.items():
            if key not in known.predicted:
                of = basis.sensitivities
                limited += seconds / run_s * np.array([1, 0, 0] if of is None else of.limits(key))
        arithmetic, memory, calls = limited.tolist()
        occurrences = sum(map(abs, self.plan.counts.values()))
        return LimitShares(
            arithmetic=arithmetic,
            memory=memory,
            calls=calls,
            overhead=occurrences * known.call_s.value / run_s,
            weights=self._absolute_s(self.plan.weight_bound) / run_s,
            predicted=self.predicted_s / run_s,
        )

    @property
    def coverage(self) -> float:
        """The share of the occurrences whose brick is measured."""
        measured = self.latencies.gross_s.keys() - self.latencies.predicted
        covered = [occurrence.brick in measured for occurrence in self.plan.occurrences]
        return sum(covered) / len(covered) if covered else 1.0

    @property
    def shares(self) -> tuple[Share, ...]:
        """The share of each brick, the largest first."""
        counts, total_s, published = self.plan.counts, self.total_s, self.latencies.published
        return tuple(
            Share(
                key,
                counts[key],
                self.seconds[key],
                self.seconds[key] / total_s if total_s else 0.0,
                predicted=key in self.latencies.predicted,
                published=published.get(key) == 1.0,
            )
            for key in sorted(self.seconds, key=lambda k: -self.seconds[k])
        )

    def calls_uncertain_s(self) -> float:
        """Half the width of the interval, in seconds, that is due to the call cost's error."""
        known, call_s = self.latencies, self.latencies.call_s
        bricks = [(n, known.gross_s[key].value) for key, n in self.plan.counts.items()]
        ends_s = [
            cost_s + sum(n * known.without_call(gross_s, cost_s) for n, gross_s in bricks)
            for cost_s in (call_s.low, call_s.value, call_s.high)
        ]
        return (max(ends_s) - min(ends_s)) / 2

    def _absolute_s(self, keys: Iterable[str]) -> float:
        return sum((abs(self.seconds[key]) for key in keys), 0.0)
