"""Performance construction: a model's latency from its plan and its bricks' measurements.

Sequential construction as in DLBricks (Li et al., ICPE 2020, section 3.2): runtimes execute a
model's layers one after another, so latencies add up. The cost of a runtime call is subtracted from
each brick and added once. Where bricks overlap, their shared layers are subtracted (see
``decompose.overlap``). Parallel construction is in :mod:`bricks.compose.schedule`. Must not know
how measurements came about.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from bricks.compose.estimate import Estimate, Gap, IncompleteEstimate, PhaseShare, Share
from bricks.compose.lanes import longest_chain_s
from bricks.compose.occurrences import occurrence_tasks
from bricks.compose.schedule import Construction, longest_s, schedule
from bricks.compose.uncertainty import (
    AROUND_SHARE,
    CACHED_NODES,
    OTHER_HOST_SHARE,
    HalfWidth,
    Source,
    Uncertainty,
    cache_state_s,
    calls_s,
)
from bricks.decompose.plan import Plan
from bricks.predict.prediction import Predictions
from bricks.samples.call_overhead import (
    LONG,
    PHASE_PROBES,
    PROBES,
    SHORT,
    Around,
    around_of,
    call_overhead_s,
    probes_of,
)
from bricks.samples.measurement import Failure, Measurement, common_state, round_spread
from bricks.samples.state_correction import Factor, StateCorrection
from bricks.samples.state_model import StateModel
from bricks.samples.statistics import (
    NORMAL_95,
    pooled_deviation,
    pooled_spread,
    skew_share,
)
from bricks.units.interval import Interval

Results = Mapping[str, Measurement | Failure]

# The cost of a call in a walk, relative to the probes, which run again and again and so find the
# runtime's code and data cached. So do light bricks, which are run once before each sample; heavy
# ones do not. Chosen on one half of the zoo's families; benchmarks/accuracy.py reports the best
# factor for all families but one, and estimates without the factor.
IN_WALK_CALL_FACTOR = 1.0


def state_of(
    plan: Plan,
    results: Results,
    whole: Measurement | None = None,
    predictions: Predictions | None = None,
) -> float | None:
    """The machine state in which most of ``plan``'s latency is measured or predicted.

    With ``whole``, the choice is among the states of that measurement.
    """
    parts = _parts(plan, results) | _predicted_parts(plan, results, predictions or Predictions())
    anchors = parts.values() if whole is None else [whole]
    return common_state(anchors, parts, plan.counts)


def all_known_in(
    plan: Plan, results: Results, predictions: Predictions, state_s: float | None
) -> bool:
    """Whether nothing of ``plan`` must be corrected from another machine state."""
    parts = _parts(plan, results) | _predicted_parts(plan, results, predictions)
    return all(part.known_in(state_s) for part in parts.values())


@dataclass(frozen=True, slots=True)
class Latencies:
    """The latency of each brick of a plan in one machine state, by key, in seconds.

    All of ``spreads`` include a ``call`` of the runtime; :meth:`net_s` subtracts
    ``in_walk_call_factor`` times its cost. They hold the errors that each brick has of its own.
    ``shared_s`` is half the width of the interval of the error that corrections from another state
    have in common, for each brick of which one was applied, and ``all_shared_s`` that of the sum of
    all occurrences. ``predicted`` are the bricks that were not measured, ``other_state`` those that
    were measured in another state only. ``published`` is, of each brick of which other hosts tell
    something, how much of its latency they tell: 1 where it was not measured here.
    """

    spreads: Mapping[str, Interval]
    shared_s: Mapping[str, float]
    all_shared_s: float
    call: Interval
    predicted: frozenset[str]
    other_state: frozenset[str]
    published: Mapping[str, float]
    in_walk_call_factor: float

    def source(self, key: str) -> Source:
        """What the uncertainty of a brick's latency is due to."""
        if key in self.predicted:
            return Source.PREDICTED
        return Source.OTHER_STATE if key in self.other_state else Source.SAMPLES

    def net_s(self, latency_s: float, call_s: float | None = None) -> float:
        """``latency_s`` without the call, which costs ``call_s``, or by default its median."""
        call_s = self.call.value if call_s is None else call_s
        # A view of another value (a Reshape) may take less than the overhead's own uncertainty.
        return max(0.0, latency_s - self.in_walk_call_factor * call_s)

    @property
    def middles_s(self) -> dict[str, float]:
        """The contribution of one occurrence of each brick, in seconds."""
        return {key: self.net_s(s.value) for key, s in self.spreads.items()}

    def net(self, key: str) -> Interval:
        """The contribution of one occurrence of a brick to a model."""
        return self.spreads[key].widened(self.shared_s.get(key, 0.0)).map(self.net_s)


def latencies(
    plan: Plan,
    results: Results,
    state_s: float | None = None,
    *,
    predictions: Predictions | None = None,
    states: StateModel | None = None,
    in_walk_call_factor: float = IN_WALK_CALL_FACTOR,
) -> Latencies:
    """The latencies of ``plan``'s measured or predicted bricks; see :func:`recompose`."""
    predictions = predictions or Predictions()
    parts, predicted = _parts(plan, results), _predicted_parts(plan, results, predictions)
    counts = plan.counts
    if state_s is None:
        state_s = state_of(plan, results, predictions=predictions)
    correction = StateCorrection(parts.values(), state_s, states, predicted.values())
    factors = {key: correction.factor(m) for key, m in (parts | predicted).items()}
    spreads = _spreads(parts, correction, factors)
    published = {key: 1.0 for key, m in parts.items() if m.published}
    for key in parts.keys() & predictions.prior.keys():
        spreads[key], published[key] = predictions.prior[key].beside(spreads[key])
    for key in predicted:
        own = replace(factors[key], shared_sd=0.0)
        spreads[key] = _translated(predictions.of[key].spread(), own)
    spreads = _added_up(spreads, counts, parts, predictions, state_s)
    shared_s = {
        key: NORMAL_95 * factor.shared_sd * spreads[key].value
        for key, factor in factors.items()
        if factor.shared_sd > 0
    }
    probed = all(isinstance(results.get(key), Measurement) for key in PROBES.values())
    return Latencies(
        spreads,
        shared_s,
        all_shared_s=NORMAL_95
        * correction.shared_s(
            (m, counts[key] * spreads[key].value) for key, m in (parts | predicted).items()
        ),
        call=call_cost(results) if probed else Interval.exact(0.0),
        predicted=frozenset(predicted),
        other_state=frozenset(k for k, m in (parts | predicted).items() if not m.known_in(state_s)),
        published=published,
        in_walk_call_factor=in_walk_call_factor,
    )


@dataclass(frozen=True, slots=True)
class Basis:
    """All inputs of a model's estimate; :func:`recompose` describes each of them."""

    plan: Plan
    results: Results
    predictions: Predictions = field(default_factory=Predictions)
    construction: Construction | None = None
    state_s: float | None = None
    states: StateModel | None = None

    def estimate(self) -> Estimate | IncompleteEstimate:
        """The model's latency."""
        return recompose(
            self.plan,
            self.results,
            self.state_s,
            predictions=self.predictions,
            states=self.states,
            construction=self.construction,
        )


def gaps(plan: Plan, results: Results, predicted: Collection[str]) -> tuple[Gap, ...]:
    """The bricks and probes without a measurement or a prediction.

    A plan of an earlier version that does not tell how often a probe counts has a gap too.
    """
    wanted = (*plan.counts.items(), *((key, 0) for key in probes_of(plan)))
    found = (_gap(key, n, results) for key, n in wanted if key not in predicted)
    untold: tuple[Gap, ...] = ()
    if plan.memory.outdated:
        untold = (Gap(plan.model, 0, "its plan is of an earlier version: decompose it again"),)
    return (*(gap for gap in found if gap is not None), *untold)


def recompose(
    plan: Plan,
    results: Results,
    state_s: float | None = None,
    *,
    predictions: Predictions | None = None,
    states: StateModel | None = None,
    in_walk_call_factor: float = IN_WALK_CALL_FACTOR,
    construction: Construction | None = None,
) -> Estimate | IncompleteEstimate:
    """The latency of ``plan`` from ``results`` by key, the probes' among them.

    The estimate is for the machine state ``state_s``; if None, for the state in which most is
    known. A brick that was not measured in that state counts with its latency in another state,
    corrected as ``states`` says (see :mod:`bricks.samples.state_model`), or if None, by what
    ``plan``'s own bricks show. A brick that was never measured counts
    with its latency in ``predictions``; one with a prior there, with that and its measurement; one
    that failed is a gap, unless it is unmeasurable and predicted. ``in_walk_call_factor`` times the
    probes' call cost is subtracted from each brick. ``construction`` says how occurrences run in
    parallel; if None, they run one after another.

    Bricks vary by themselves, so that their medians do not add up to the median of a run: each
    counts with what one of many runs takes (:func:`bricks.samples.statistics.skew_share`).

    The sampling errors of different bricks are independent, and so is most of the error of their
    corrections between machine states: they add up as squares do. So do the errors that all bricks
    have in common, which have causes of their own: those of predictions, of corrections, of other
    hosts, and of recomposing itself, with the cost of calls in it. Measurements of bricks do not
    show how occurrences that run in parallel affect each other (caches, memory, clock): so a
    parallel estimate's interval reaches from the bound that no schedule can beat to the latency
    without any overlap.
    """
    counts, predictions = plan.counts, predictions or Predictions()
    found = latencies(
        plan,
        results,
        state_s,
        predictions=predictions,
        states=states,
        in_walk_call_factor=in_walk_call_factor,
    )
    spreads, overhead = found.spreads, found.call
    predicted, other_state = found.predicted, found.other_state
    middles = found.middles_s
    known = {key: counts[key] * middle for key, middle in middles.items()}
    total = sum(known.values(), 0.0)
    shares = tuple(
        Share(
            key,
            counts[key],
            known[key],
            known[key] / total if total else 0.0,
            predicted=key in predicted,
            published=found.published.get(key) == 1.0,
        )
        for key in sorted(known, key=lambda k: -known[k])
    )
    measured = spreads.keys() - predicted
    covered = [occurrence.brick in measured for occurrence in plan.occurrences]
    coverage = sum(covered) / len(covered) if covered else 1.0
    if missing := gaps(plan, results, predicted):
        return IncompleteEstimate(plan.model, plan.granularity, total, coverage, missing, shares)

    gross_s = sum(map(abs, known.values()))
    weight_bound_s = sum(abs(known[key]) for key in plan.weight_bound)
    long = {o.brick for o in plan.occurrences if o.nodes >= CACHED_NODES}
    stretch_s = sum(abs(known[key]) for key in sorted(long))
    predicted_s = sum((abs(known[key]) for key in sorted(predicted)), 0.0)
    published_s = sum(abs(s) * found.published.get(key, 0.0) for key, s in known.items())
    interval = _sampled(found, counts)
    path = critical_path(plan, middles)
    if construction is not None:
        interval = _parallel(plan, construction, found, interval)
        total = schedule(plan, construction, middles).end_s
    around = {phase: cost_around(results, phase, a) for phase, a in around_of(plan).items()}
    phases = _phases(plan, middles, around)
    around_s = sum(each.around_s for each in phases)
    estimate_s = overhead.value + max(0.0, total + around_s)
    calls = _calls(plan, construction)
    errors = (
        {Source.PREDICTED: predictions.common_s(predicted_s)},
        {Source.OTHER_STATE: found.all_shared_s},
        {Source.OTHER_HOST: OTHER_HOST_SHARE * published_s},
        {
            Source.RECOMPOSITION: cache_state_s(gross_s, weight_bound_s, stretch_s),
            Source.CALLS: calls_s(calls, overhead.value)
            + _call_uncertain_s(found, counts)
            + _around_uncertain_s(around),
        },
    )
    middle_s = estimate_s if construction is None else None
    interval = interval.shifted(around_s).widened(middle_s, errors).positive(estimate_s)
    return Estimate(
        model=plan.model,
        granularity=plan.granularity,
        estimate_s=estimate_s,
        low_s=interval.low_s,
        high_s=interval.high_s,
        critical_path_s=overhead.value + path,
        call_overhead_s=overhead.value,
        other_state_share=sum(abs(s.share) for s in shares if s.brick in other_state),
        predicted_share=predicted_s / gross_s if gross_s else 0.0,
        published_share=published_s / gross_s if gross_s else 0.0,
        coverage=coverage,
        shares=shares,
        uncertainty=interval.uncertainty,
        workers=1 if construction is None else construction.workers,
        phases=phases,
        unmeasurable=predictions.unmeasurable & predicted,
    )


def _calls(plan: Plan, construction: Construction | None) -> int:
    """How many calls the cost of one may be off in: each occurrence, with workers each node.

    Workers hand each other nodes, and not stretches of them.
    """
    return sum(map(abs, plan.counts.values())) if construction is None else plan.nodes


def _phases(
    plan: Plan, middles: Mapping[str, float], around: Mapping[str, Interval]
) -> tuple[PhaseShare, ...]:
    """The phases of a recorded program with what runs around their calls; empty for others."""
    every = around_of(plan)
    found, begin = [], 0
    for name, phase in plan.memory.overheads:
        mine = plan.occurrences[begin : begin + phase.occurrences]
        begin += phase.occurrences
        # Where a phase is interrupted, each part of it has its share.
        around_s = around[name].value * phase.calls / max(1, every[name].calls)
        bricks_s = sum(o.times * middles[o.brick] for o in mine)
        found.append(PhaseShare(phase.name, phase.calls, max(0.0, bricks_s + around_s), around_s))
    return tuple(found)


def _around_uncertain_s(around: Mapping[str, Interval]) -> float:
    """Half the width that costs around calls add: programs differ in what they do there."""
    return sum(cost.half_width + AROUND_SHARE * abs(cost.value) for cost in around.values())


def _parts(plan: Plan, results: Results) -> dict[str, Measurement]:
    """The measured bricks."""
    return {key: m for key in plan.counts if isinstance(m := results.get(key), Measurement)}


def _predicted_parts(
    plan: Plan, results: Results, predictions: Predictions
) -> dict[str, Measurement]:
    """The predicted bricks, in the form of measurements."""
    tried = results.keys() - predictions.unmeasurable
    found = (plan.counts.keys() & predictions.of.keys()) - tried
    return {key: predictions.of[key].measurement(key, predictions.state_s) for key in sorted(found)}


@dataclass(frozen=True, slots=True)
class _Interval:
    """An interval in seconds, and the sources of its width."""

    low_s: float
    high_s: float
    uncertainty: Uncertainty

    def shifted(self, by_s: float) -> _Interval:
        """The same width elsewhere."""
        return replace(self, low_s=self.low_s + by_s, high_s=max(0.0, self.high_s + by_s))

    def positive(self, middle_s: float) -> _Interval:
        """The interval of a latency, which is positive, around ``middle_s``.

        More than half of the latency below it is a width of the logarithm, and leaves some.
        """
        below_s = middle_s - self.low_s
        if below_s <= middle_s / 2:
            return replace(self, low_s=max(0.0, self.low_s))
        low_s = middle_s / 2 * math.exp(1.0 - 2.0 * below_s / middle_s) if middle_s else 0.0
        return _Interval(low_s, self.high_s, self.uncertainty.scaled_to((self.high_s - low_s) / 2))

    def widened(
        self, middle_s: float | None, errors: Sequence[Mapping[Source, float]]
    ) -> _Interval:
        """Wider around ``middle_s`` by independent errors, the parts of each by source in seconds.

        Errors add up as squares do, also to what the interval has; the parts of one add up. None:
        the interval lies between bounds, each of which is off by the errors.
        """
        squares = {s: part_s * self.half_s for s, part_s in self.uncertainty.by_source.items()}
        for parts_s in errors:
            error_s = sum(parts_s.values())
            for source, part_s in parts_s.items():
                squares[source] += part_s * error_s
        more_s = math.sqrt(sum(sum(parts_s.values()) ** 2 for parts_s in errors))
        if middle_s is None:
            low_s, high_s = self.low_s - more_s, self.high_s + more_s
        else:
            low_s = middle_s - math.hypot(middle_s - self.low_s, more_s)
            high_s = middle_s + math.hypot(self.high_s - middle_s, more_s)
        return _Interval(low_s, high_s, Uncertainty.of(squares).scaled_to((high_s - low_s) / 2))

    @property
    def half_s(self) -> float:
        """Half its width."""
        return (self.high_s - self.low_s) / 2


def _sampled(found: Latencies, counts: Mapping[str, int]) -> _Interval:
    """What samples and predictions say, if all bricks run one after another."""
    spreads, net, call, middles = found.spreads, found.net_s, found.call, found.middles_s

    below, above = HalfWidth(), HalfWidth()
    for key, s in spreads.items():
        n, source = counts[key], found.source(key)
        less, more = middles[key] - net(s.low), net(s.high) - middles[key]
        for width, one_s in ((below, less if n > 0 else more), (above, more if n > 0 else less)):
            width.add(source, abs(n) * one_s)
    middle_s = call.value + sum((counts[key] * m for key, m in middles.items()), 0.0)
    below_s, above_s = below.by_source, above.by_source
    parts = {s: (below_s[s] + above_s[s]) / 2 for s in Source}
    return _Interval(middle_s - below.total_s, middle_s + above.total_s, Uncertainty.of(parts))


def _call_uncertain_s(found: Latencies, counts: Mapping[str, int]) -> float:
    """Half the width that follows from how well the cost of a call is known."""

    def all_s(call_s: float) -> float:
        nets = (n * found.net_s(found.spreads[k].value, call_s) for k, n in counts.items())
        return call_s + sum(nets)

    call = found.call
    ends_s = [all_s(call_s) for call_s in (call.low, call.value, call.high)]
    return (max(ends_s) - min(ends_s)) / 2


def _parallel(
    plan: Plan, construction: Construction, found: Latencies, sequential: _Interval
) -> _Interval:
    """From the bound that no schedule can beat to the latency without any overlap."""
    spreads, call, middles = found.spreads, found.call, found.middles_s
    lows = {
        key: found.net_s(s.low - found.shared_s.get(key, 0.0), call.high)
        for key, s in spreads.items()
    }
    spread_out_s = (sequential.low_s - call.low) / construction.workers
    low_s = call.low + max(critical_path(plan, lows), spread_out_s)
    longest = longest_s(plan, construction, sequential.high_s - call.high)
    high_s = call.high + longest
    # As wide as this it would be if each brick's latency were exact.
    total_s = sum((n * middles[key] for key, n in plan.counts.items()), 0.0)
    best_s = max(critical_path(plan, middles), total_s / construction.workers)
    exact_s = (longest_s(plan, construction, total_s) - best_s) / 2
    workers_s = min(max(0.0, exact_s), (high_s - low_s) / 2)
    others = sequential.uncertainty.scaled_to((high_s - low_s) / 2 - workers_s)
    return _Interval(low_s, high_s, replace(others, workers_s=workers_s))


def _added_up(
    spreads: Mapping[str, Interval],
    counts: Mapping[str, int],
    parts: Mapping[str, Measurement],
    predictions: Predictions,
    state_s: float | None,
) -> dict[str, Interval]:
    """``spreads`` such that their medians add up to the median of a run of the whole."""
    runs = {key: m.runs(state_s) for key, m in parts.items()}
    means = {k: runs[k].mean if k in runs else predictions.of[k].mean for k in spreads}
    share = skew_share(
        runs[key].term(found.value, counts[key])
        if key in runs
        else predictions.of[key].term(counts[key])
        for key, found in spreads.items()
    )
    return {k: _translated(s, Factor(1.0 + share * (means[k] - 1.0))) for k, s in spreads.items()}


def _spreads(
    parts: Mapping[str, Measurement], correction: StateCorrection, factors: Mapping[str, Factor]
) -> dict[str, Interval]:
    """Median and interval of each brick; with few rounds, by the deviation of most bricks."""
    rounds_s = {key: correction.rounds_s(m) for key, m in parts.items()}
    deviation = pooled_deviation(rounds_s.values())
    return {
        key: _translated(pooled_spread(of, deviation), replace(factors[key].reach, shared_sd=0.0))
        for key, of in rounds_s.items()
    }


def _translated(found: Interval, factor: Factor) -> Interval:
    return found.times(Interval(factor.middle, factor.low, factor.high))


def critical_path(plan: Plan, latency_s: Mapping[str, float]) -> float:
    """The latency of the longest chain of dependent occurrences, in seconds.

    Layers shared by two bricks are subtracted from the later one.
    """
    return longest_chain_s(occurrence_tasks(plan, latency_s).tasks)


def call_cost(results: Results) -> Interval:
    """The cost of a runtime call, in seconds, from the probes among ``results``."""
    found = {n: results[key] for n, key in PROBES.items()}
    chains = {n: round_spread(m) for n, m in found.items() if isinstance(m, Measurement)}
    short, long = chains[SHORT], chains[LONG]
    overhead_s = call_overhead_s(short.value, long.value)
    return Interval.deviating(overhead_s, [short]).at_least(0.0)


def cost_around(results: Results, phase: str, around: Around) -> Interval:
    """What runs around the calls of a phase, in seconds, from the probes among ``results``."""
    middle_s = half_s = 0.0
    for part, times in around.times.items():
        found = [results[key] for key in PHASE_PROBES[phase][part]]
        step, without = (round_spread(m) for m in found if isinstance(m, Measurement))
        middle_s += times * (step.value - without.value)
        half_s += times * math.hypot(step.half_width, without.half_width)
    return Interval.around(middle_s, half_s)


def _gap(key: str, occurrences: int, results: Results) -> Gap | None:
    match results.get(key):
        case None:
            return Gap(key, occurrences, "not measured on this target")
        case Failure(reason=reason):
            return Gap(key, occurrences, reason)
        case _:
            return None
