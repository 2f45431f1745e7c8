"""The latency of each brick of a plan in some conditions, and the overhead of calls, in seconds.

A latency is measured, predicted or transferred.

Measurements in other conditions are corrected, measurements of other hosts weighted by their
precision, and all latencies shifted so that medians add up.

The call overhead of a runtime, and of the phases of a recorded program, is computed from the
results of probes (:mod:`bricks.samples.call_overhead`). Must not know how probes are measured, nor
how latencies are composed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from bricks.compose.composer import compose
from bricks.compose.estimate import ErrorSource, PhaseShare
from bricks.compose.lanes import CORE, Task
from bricks.compose.recomposition_error import CALL_OVERHEAD_SHARE
from bricks.samples.call_overhead import (
    LONG,
    PHASE_PROBES,
    PROBES,
    SHORT,
    CallCounts,
    call_counts,
    call_overhead_s,
    probes_of,
)
from bricks.samples.correction import Factor
from bricks.samples.measurement import Measurement, round_spread
from bricks.samples.passes import walked_together
from bricks.samples.sensitivity import mean_sensitivity
from bricks.samples.statistics import NORMAL_95, pooled_deviation, pooled_spread, skew_share
from bricks.units.interval import Interval

if TYPE_CHECKING:
    from bricks.compose.basis import Basis, Parts, Results
    from bricks.decompose.plan import Plan
    from bricks.units.sample import Kernel


@dataclass(frozen=True, slots=True)
class BrickLatencies:
    """The latency of each brick of a plan in some conditions of the host, by key, in seconds.

    Each of ``gross_s`` includes one runtime call of ``call_s``; :meth:`without_call` subtracts
    ``in_walk_call_factor`` times its cost. The intervals in ``gross_s`` hold the independent errors
    of each brick. ``shared_s`` is half the width of the error, common to all bricks, of the
    conditions of the host and of corrections to them: for each brick; ``all_shared_s`` is that of
    the sum of all occurrences. ``predicted`` are the keys of unmeasured bricks. ``published`` is
    the weight of other hosts in a brick's latency, from 0 to 1 (not measured here). ``probes`` are
    those of call overhead. ``kernels`` are the device kernels of each brick; a brick without device
    work is absent.
    """

    gross_s: Mapping[str, Interval]
    shared_s: Mapping[str, float]
    all_shared_s: float
    call_s: Interval
    predicted: frozenset[str]
    published: Mapping[str, float]
    in_walk_call_factor: float
    probes: Mapping[str, Measurement] = field(default_factory=dict)
    kernels: Mapping[str, tuple[Kernel, ...]] = field(default_factory=dict)

    def times(self, factor: float) -> BrickLatencies:
        """All of these times ``factor``, but those of kernels."""
        return replace(
            self,
            gross_s={key: of.scaled(factor) for key, of in self.gross_s.items()},
            shared_s={key: factor * half_s for key, half_s in self.shared_s.items()},
            all_shared_s=factor * self.all_shared_s,
            call_s=self.call_s.scaled(factor),
            probes={
                key: replace(m, rounds=tuple(r.times(factor) for r in m.rounds))
                for key, m in self.probes.items()
            },
        )

    def source(self, key: str) -> ErrorSource:
        """The source of a brick's own uncertainty."""
        return ErrorSource.PREDICTED if key in self.predicted else ErrorSource.SAMPLES

    def without_call(self, latency_s: float, call_s: float | None = None) -> float:
        """``latency_s`` minus a call's cost, by default the median cost; at least 0."""
        call_s = self.call_s.value if call_s is None else call_s
        # A view of another value (a Reshape) may take less than the overhead's own uncertainty.
        return max(0.0, latency_s - self.in_walk_call_factor * call_s)

    @property
    def net_s(self) -> dict[str, float]:
        """The contribution of one occurrence of each brick, in seconds."""
        return {key: self.without_call(s.value) for key, s in self.gross_s.items()}

    def net(self, key: str) -> Interval:
        """The contribution of one occurrence of a brick to a model, in seconds."""
        return self.gross_s[key].widened(self.shared_s.get(key, 0.0)).map(self.without_call)


def latencies(basis: Basis) -> BrickLatencies:
    """The latencies of the measured or predicted bricks of ``basis``.

    Latencies of bricks vary independently, so their medians do not add up to the median of a run:
    each brick counts with a value between its median and its mean
    (:func:`bricks.samples.statistics.skew_share`).
    """
    taken, counts = basis.parts, basis.plan.counts
    correction = basis.correction
    factors = {key: correction.factor(m) for key, m in taken.all.items()}
    parts = replace(taken, measured={k: correction.corrected(m) for k, m in taken.measured.items()})
    own_s, published = _own(basis, parts, factors)
    gross_s = _added_up(own_s, basis, parts)
    every = [(m, counts[key] * gross_s[key].value) for key, m in taken.all.items()]
    shared = NORMAL_95 * correction.shared_sd(every)
    probes = {
        key: correction.corrected(probe)
        for key in probes_of(basis.plan)
        if isinstance(probe := basis.results.get(key), Measurement)
    }
    return BrickLatencies(
        gross_s,
        {key: shared * gross_s[key].value for key in gross_s} if shared else {},
        all_shared_s=shared * abs(sum(part_s for _, part_s in every)),
        call_s=(
            call_cost(probes) if probes.keys() >= set(PROBES.values()) else Interval.exact(0.0)
        ),
        probes=probes,
        predicted=frozenset(parts.predicted),
        published=published,
        in_walk_call_factor=basis.in_walk_call_factor,
        kernels={key: of for key, m in parts.measured.items() if (of := m.kernels)},
    )


def run_in_conditions(basis: Basis, run: Measurement) -> Measurement:
    """A ``run`` of the whole model, as if it had been measured in the conditions of ``basis``."""
    if basis.sensitivities is None:
        return run
    parts = [
        (basis.sensitivities.of(key, m.latency_s), basis.plan.counts[key] * m.latency_s)
        for key, m in basis.parts.all.items()
    ]
    return basis.correction.corrected(run, mean_sensitivity(parts))


def _own(
    basis: Basis, parts: Parts, factors: Mapping[str, Factor]
) -> tuple[dict[str, Interval], dict[str, float]]:
    """Each brick's latency with its independent error, and the weight of other hosts in it."""
    latencies, predictions = _sampled(parts.measured, factors), basis.predictions
    published = {key: 1.0 for key, m in parts.measured.items() if m.published}
    for key in parts.measured.keys() & predictions.prior.keys():
        latencies[key], published[key] = predictions.prior[key].combined_with(latencies[key])
    for key in parts.predicted:
        latencies[key] = _translated(predictions.of[key].spread(), factors[key])
    return latencies, published


def _sampled(
    measured: Mapping[str, Measurement], factors: Mapping[str, Factor]
) -> dict[str, Interval]:
    """Median and interval of each measured brick; few rounds take the deviation of all bricks."""
    rounds_s = {key: [r.latency_s for r in m.walked] for key, m in measured.items()}
    deviation = pooled_deviation([r.latency_s for r in m.undisturbed] for m in measured.values())
    errors = {key: Factor(1.0, factors[key].independent_sd) for key in measured}
    return {
        key: _translated(pooled_spread(rounds_s[key], deviation, m.weights), errors[key])
        for key, m in measured.items()
    }


def _added_up(own_s: Mapping[str, Interval], basis: Basis, parts: Parts) -> dict[str, Interval]:
    """``own_s``, shifted so that medians add up to the median of a whole run."""
    counts, predicted = basis.plan.counts, basis.predictions.of
    walks = walked_together({key: (m, counts[key]) for key, m in parts.measured.items()})
    of_predicted = {k: predicted[k].term(counts[k]) for k in own_s if k not in parts.measured}
    share = skew_share([*(walk.term for walk in walks), *of_predicted.values()])
    factors = {key: 1.0 + share * (predicted[key].mean - 1.0) for key in of_predicted}
    for walk in walks:
        way = walk.term.mean_s / walk.term.medians_s - 1.0 if walk.term.medians_s else 0.0
        factors |= dict.fromkeys(walk.keys, walk.factor * (1.0 + share * way))
    return {key: _translated(latency, Factor(factors[key])) for key, latency in own_s.items()}


def _translated(latency: Interval, factor: Factor) -> Interval:
    return latency.times(Interval(factor.middle, factor.low, factor.high))


def call_cost(results: Results) -> Interval:
    """The cost of a runtime call, in seconds, from the probes among ``results``."""
    probes = {n: results[key] for n, key in PROBES.items()}
    chains = {n: round_spread(m) for n, m in probes.items() if isinstance(m, Measurement)}
    short, long = chains[SHORT], chains[LONG]
    overhead_s = call_overhead_s(short.value, long.value)
    return Interval.deviating(overhead_s, [short]).at_least(0.0)


def phase_overheads(plan: Plan, results: Results) -> dict[str, Interval]:
    """The call overhead of each phase of a recorded program, in seconds; empty for others."""
    return {phase: _overhead(results, phase, of) for phase, of in call_counts(plan).items()}


def _overhead(results: Results, phase: str, counts: CallCounts) -> Interval:
    middle_s = half_s = 0.0
    for part, times in counts.times.items():
        probes = [results[key] for key in PHASE_PROBES[phase][part]]
        step, without = (round_spread(m) for m in probes if isinstance(m, Measurement))
        middle_s += times * (step.value - without.value)
        half_s += times * math.hypot(step.half_width, without.half_width)
    return Interval.around(middle_s, half_s)


def overheads_uncertain_s(overheads: Mapping[str, Interval]) -> float:
    """Half the interval's width from call overheads, which differ from program to program."""
    return sum(
        cost.half_width + CALL_OVERHEAD_SHARE * abs(cost.value) for cost in overheads.values()
    )


def phase_shares(
    plan: Plan, net_s: Mapping[str, float], overheads: Mapping[str, Interval]
) -> tuple[PhaseShare, ...]:
    """The share of each phase of a recorded program, call overhead included; empty for others."""
    counts = call_counts(plan)
    shares, begin = [], 0
    for name, phase in plan.memory.overheads:
        own = plan.occurrences[begin : begin + phase.occurrences]
        begin += phase.occurrences
        # A phase may be interrupted: then each part has its share of the overhead.
        overhead_s = overheads[name].value * phase.calls / max(1, counts[name].calls)
        bricks_s = sum(o.sign * net_s[o.brick] for o in own)
        shares.append(
            PhaseShare(phase.name, phase.calls, max(0.0, bricks_s + overhead_s), overhead_s)
        )
    return tuple(shares)


def phase_ends_s(
    plan: Plan, share: PhaseShare, occurrence_s: Mapping[int, float]
) -> dict[int, float]:
    """The end of each occurrence of a phase by position, in seconds since the phase began.

    ``occurrence_s`` are the isolated latencies by position. The phase's call overhead is spread
    over the occurrences by their calls.
    """
    call_s = share.overhead_s / share.calls if share.calls else 0.0
    weights = {
        position: max(0.0, own_s + call_s * plan.occurrences[position].nodes)
        for position, own_s in occurrence_s.items()
    }
    total_s = sum(weights.values())
    scale = share.estimate_s / total_s if total_s else 0.0
    run = compose([Task(CORE, scale * weight_s, share.phase) for weight_s in weights.values()])
    spans = run.by_task
    return {position: spans[i].end_s for i, position in enumerate(weights)}
