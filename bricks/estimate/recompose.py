"""Performance construction: a model's latency from its plan and its bricks' measurements.

Sequential construction as in DLBricks (Li et al., ICPE 2020, section 3.2): runtimes execute a
model's layers one after another, so latencies add up. What a call of the runtime costs is taken
out of each brick and added once. Where bricks overlap, the layers that they share are taken away
(see ``decompose.overlap``). Parallel construction is in :mod:`bricks.estimate.schedule`. It must
not know how measurements came about.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from bricks.decompose.plan import Plan
from bricks.estimate.estimate import Estimate, Gap, IncompleteEstimate, Share
from bricks.estimate.schedule import Construction, length_s, longest_s, schedule
from bricks.estimate.uncertainty import composition_s
from bricks.measure.measurement import Failure, Measurement, common_state
from bricks.measure.probes import LONG, PROBES, SHORT, call_overhead_s
from bricks.measure.statistics import Spread, median, spread

Results = Mapping[str, Measurement | Failure]

# What a call costs in a walk, relative to the probes, which run again and again and so find all of
# the runtime's own code and data near. Chosen once, on a session over the zoo;
# benchmarks/accuracy.py reports what is best for all families but one, and estimates without it.
WALKED_CALL = 1.3


def round_spread(measurement: Measurement, state_s: float | None = None) -> Spread:
    """Median and interval over rounds: samples of one round are not independent.

    Of the rounds of ``state_s``, if there are enough, else of the state most rounds are of.
    """
    return spread([median(r.samples) for r in measurement.used_rounds(state_s)])


def state_of(plan: Plan, results: Results, whole: Measurement | None = None) -> float | None:
    """The state of the machine in which most is known of what ``plan`` needs.

    With ``whole``, among the states in which that was measured.
    """
    parts = {key: m for key in plan.keys if isinstance(m := results.get(key), Measurement)}
    anchors = parts.values() if whole is None else [whole]
    return common_state(anchors, parts, plan.counts)


def recompose(
    plan: Plan,
    results: Results,
    state_s: float | None = None,
    *,
    walked_call: float = WALKED_CALL,
    construction: Construction | None = None,
) -> Estimate | IncompleteEstimate:
    """The latency of ``plan`` from ``results`` by key, the probes' among them.

    ``state_s`` is the state of the machine to speak of; if None, the one most is known in. A brick
    that was not measured in that state counts with what it took in another; then its interval
    reaches to where it would be if it changed as much as the machine's reference does.
    ``walked_call`` times what the probes say is taken out of each brick. ``construction`` tells how
    occurrences are run side by side; if None, they follow one another.

    The intervals of bricks are added up as they are, not in quadrature: a machine's drift moves
    all bricks together, so their errors do not cancel. To that comes what recomposing itself may
    be wrong by. Of a brick that is taken away, more makes less: its interval is added all the same.
    What occurrences that run side by side do to each other (caches, memory, clock) no measurement
    of bricks shows: so a parallel estimate's interval reaches from what no schedule can beat to
    where nothing overlaps.
    """
    counts = plan.counts
    gaps = [gap for key, n in counts.items() if (gap := _gap(key, n, results)) is not None]
    probe_gaps = [g for key in PROBES.values() if (g := _gap(key, 0, results)) is not None]
    overhead = Spread(0.0, 0.0, 0.0, 0) if probe_gaps else _overhead(results)
    overhead_s = overhead.median_s
    state_s = state_of(plan, results) if state_s is None else state_s
    parts = {key: m for key in counts if isinstance(m := results.get(key), Measurement)}
    spreads = {key: _spread_in(m, state_s) for key, m in parts.items()}

    def net(latency_s: float) -> float:
        # A view of another value (a Reshape) may take less than the overhead's own uncertainty.
        return max(0.0, latency_s - walked_call * overhead_s)

    known = {key: counts[key] * net(s.median_s) for key, s in spreads.items()}
    total = sum(known.values(), 0.0)
    shares = tuple(
        Share(key, counts[key], known[key], known[key] / total if total else 0.0)
        for key in sorted(known, key=lambda k: -known[k])
    )
    if gaps or probe_gaps:
        covered = sum(occurrence.brick in spreads for occurrence in plan.occurrences)
        coverage = covered / max(1, len(plan.occurrences))
        every = (*gaps, *probe_gaps)
        return IncompleteEstimate(plan.model, plan.granularity, total, coverage, every, shares)
    low, high = overhead.low_s, overhead.high_s
    for key, s in spreads.items():  # the more a call costs, the less is left for a brick
        least = counts[key] * max(0.0, s.low_s - walked_call * overhead.high_s)
        most = counts[key] * max(0.0, s.high_s - walked_call * overhead.low_s)
        low, high = low + min(least, most), high + max(least, most)
    gross_s = sum(map(abs, known.values()))
    composition = composition_s(gross_s, sum(map(abs, counts.values())), overhead_s)
    middles = {key: net(s.median_s) for key, s in spreads.items()}
    path = critical_path(plan, middles)
    if construction is not None:
        total = length_s(schedule(plan, construction, middles))
        calls = walked_call * overhead.high_s
        lows = {key: max(0.0, s.low_s - calls) for key, s in spreads.items()}
        spread_out_s = (low - overhead.low_s) / construction.workers
        low = overhead.low_s + max(critical_path(plan, lows), spread_out_s)
        high = overhead.high_s + longest_s(plan, construction, high - overhead.high_s)
    return Estimate(
        model=plan.model,
        granularity=plan.granularity,
        estimate_s=overhead_s + max(0.0, total),
        low_s=max(0.0, low - composition),
        high_s=high + composition,
        critical_path_s=overhead_s + path,
        call_overhead_s=overhead_s,
        other_state_share=sum(abs(s.share) for s in shares if not parts[s.brick].known_in(state_s)),
        shares=shares,
        workers=1 if construction is None else construction.workers,
    )


def _spread_in(measurement: Measurement, state_s: float | None) -> Spread:
    found = round_spread(measurement, state_s)
    own_s = measurement.state_s
    if measurement.known_in(state_s) or state_s is None or own_s is None:
        return found
    factor = state_s / own_s
    low_s, high_s = found.low_s * min(1.0, factor), found.high_s * max(1.0, factor)
    return replace(found, low_s=low_s, high_s=high_s)


def critical_path(plan: Plan, latency_s: Mapping[str, float]) -> float:
    """The latency of the longest chain of dependent occurrences, in seconds.

    What bricks share is taken away from the one that begins with it.
    """
    net_s = [o.times * latency_s[o.brick] for o in plan.occurrences]
    for i, occurrence in enumerate(plan.occurrences):
        if occurrence.repeats is not None:
            net_s[i + 1] = max(0.0, net_s[i + 1] + net_s[i])
            net_s[i] = 0.0
    # Occurrences stand in execution order: what one needs comes before it.
    before_s = [0.0] * len(net_s)
    for producer, consumer in sorted(plan.edges()):
        before_s[consumer] = max(before_s[consumer], before_s[producer] + net_s[producer])
    return max((before + own for before, own in zip(before_s, net_s, strict=True)), default=0.0)


def _overhead(results: Results) -> Spread:
    found = {n: results[key] for n, key in PROBES.items()}
    chains = {n: round_spread(m) for n, m in found.items() if isinstance(m, Measurement)}
    short, long = chains[SHORT], chains[LONG]
    overhead_s = call_overhead_s(short.median_s, long.median_s)
    low_s = max(0.0, overhead_s - (short.median_s - short.low_s))
    return Spread(overhead_s, low_s, overhead_s + (short.high_s - short.median_s), short.count)


def _gap(key: str, occurrences: int, results: Results) -> Gap | None:
    match results.get(key):
        case None:
            return Gap(key, occurrences, "not measured on this target")
        case Failure(reason=reason):
            return Gap(key, occurrences, reason)
        case _:
            return None
