"""The latency of each brick of a plan in one machine state: measured, predicted or transferred.

Measurements in other states are corrected, those of other hosts weighed by their certainty, and
all of them shifted so that medians add up. Must not know how latencies are composed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from bricks.compose.basis import Basis
from bricks.compose.call_overhead import call_cost
from bricks.compose.parts import Parts
from bricks.compose.uncertainty import ErrorSource
from bricks.samples.call_overhead import PROBES
from bricks.samples.measurement import Measurement
from bricks.samples.state_correction import Factor, StateCorrection
from bricks.samples.statistics import NORMAL_95, pooled_deviation, pooled_spread, skew_share
from bricks.units.interval import Interval
from bricks.units.sample import Kernel


@dataclass(frozen=True, slots=True)
class BrickLatencies:
    """The latency of each brick of a plan in one machine state, by key, in seconds.

    All of ``gross_s`` include a ``call_s`` of the runtime; :meth:`without_call` subtracts
    ``in_walk_call_factor`` times its cost. They hold the errors that each brick has of its own.
    ``shared_s`` is half the width of the interval of the error that corrections from another state
    have in common, for each brick of which one was applied, and ``all_shared_s`` that of the sum of
    all occurrences. ``predicted`` are the bricks that were not measured, ``other_state`` those that
    were measured in another state only. ``published`` is, of each brick of which other hosts tell
    something, how much of its latency they tell: 1 where it was not measured here. ``kernels`` are
    those that a device runs for each brick; a brick that runs on the host alone has none.
    """

    gross_s: Mapping[str, Interval]
    shared_s: Mapping[str, float]
    all_shared_s: float
    call_s: Interval
    predicted: frozenset[str]
    other_state: frozenset[str]
    published: Mapping[str, float]
    in_walk_call_factor: float
    kernels: Mapping[str, tuple[Kernel, ...]] = field(default_factory=dict)

    def source(self, key: str) -> ErrorSource:
        """What the uncertainty of a brick's latency is due to."""
        if key in self.predicted:
            return ErrorSource.PREDICTED
        return ErrorSource.OTHER_STATE if key in self.other_state else ErrorSource.SAMPLES

    def without_call(self, latency_s: float, call_s: float | None = None) -> float:
        """``latency_s`` without the call, which costs ``call_s``, or by default its median."""
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

    Bricks vary by themselves, so that their medians do not add up to the median of a run: each
    counts with what one of many runs takes (:func:`bricks.samples.statistics.skew_share`).
    """
    parts, state_s, counts = basis.parts, basis.state, basis.plan.counts
    correction = StateCorrection(
        parts.measured.values(), state_s, basis.states, parts.predicted.values()
    )
    factors = {key: correction.factor(m) for key, m in parts.every.items()}
    own_s, published = _own(basis, parts, correction, factors)
    gross_s = _added_up(own_s, basis, parts, state_s)
    shared_s = {
        key: NORMAL_95 * factor.shared_sd * gross_s[key].value
        for key, factor in factors.items()
        if factor.shared_sd > 0
    }
    every = parts.every.items()
    sums = ((m, counts[key] * gross_s[key].value) for key, m in every)
    return BrickLatencies(
        gross_s,
        shared_s,
        all_shared_s=NORMAL_95 * correction.shared_s(sums),
        call_s=_call_cost(basis),
        predicted=frozenset(parts.predicted),
        other_state=frozenset(key for key, m in every if not m.known_in(state_s)),
        published=published,
        in_walk_call_factor=basis.in_walk_call_factor,
        kernels={key: of for key, m in parts.measured.items() if (of := m.kernels(state_s))},
    )


def _own(
    basis: Basis, parts: Parts, correction: StateCorrection, factors: Mapping[str, Factor]
) -> tuple[dict[str, Interval], dict[str, float]]:
    """Each brick's latency with the error that it has of its own; what other hosts tell of it."""
    found, predictions = _sampled(parts.measured, correction, factors), basis.predictions
    published = {key: 1.0 for key, m in parts.measured.items() if m.published}
    for key in parts.measured.keys() & predictions.prior.keys():
        found[key], published[key] = predictions.prior[key].beside(found[key])
    for key in parts.predicted:
        own = replace(factors[key], shared_sd=0.0)
        found[key] = _translated(predictions.of[key].spread(), own)
    return found, published


def _sampled(
    measured: Mapping[str, Measurement],
    correction: StateCorrection,
    factors: Mapping[str, Factor],
) -> dict[str, Interval]:
    """Median and interval of each brick; with few rounds, by the deviation of most bricks."""
    rounds_s = {key: correction.rounds_s(m) for key, m in measured.items()}
    deviation = pooled_deviation(rounds_s.values())
    return {
        key: _translated(pooled_spread(of, deviation), replace(factors[key].reach, shared_sd=0.0))
        for key, of in rounds_s.items()
    }


def _added_up(
    own_s: Mapping[str, Interval], basis: Basis, parts: Parts, state_s: float | None
) -> dict[str, Interval]:
    """``own_s`` such that their medians add up to the median of a run of the whole."""
    counts, predicted = basis.plan.counts, basis.predictions.of
    runs = {key: m.runs(state_s) for key, m in parts.measured.items()}
    means = {k: runs[k].mean if k in runs else predicted[k].mean for k in own_s}
    share = skew_share(
        runs[key].term(found.value, counts[key])
        if key in runs
        else predicted[key].term(counts[key])
        for key, found in own_s.items()
    )
    return {k: _translated(s, Factor(1.0 + share * (means[k] - 1.0))) for k, s in own_s.items()}


def _translated(found: Interval, factor: Factor) -> Interval:
    return found.times(Interval(factor.middle, factor.low, factor.high))


def _call_cost(basis: Basis) -> Interval:
    """The cost of a call; nothing where its probes were not measured, which is a gap."""
    probed = all(isinstance(basis.results.get(key), Measurement) for key in PROBES.values())
    return call_cost(basis.results) if probed else Interval.exact(0.0)
