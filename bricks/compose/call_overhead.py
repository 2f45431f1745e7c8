"""Call overhead of a runtime, and of the phases of a recorded program, in seconds.

Computed from the results of probes (:mod:`bricks.samples.call_overhead`). Must not know how probes
are measured.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from bricks.compose.composer import compose
from bricks.compose.estimate import PhaseShare
from bricks.compose.lanes import Task
from bricks.compose.occurrences import CORE
from bricks.compose.recomposition_error import CALL_OVERHEAD_SHARE
from bricks.samples.call_overhead import (
    LONG,
    PHASE_PROBES,
    PROBES,
    SHORT,
    CallCounts,
    call_counts,
    call_overhead_s,
)
from bricks.samples.measurement import Measurement, round_spread
from bricks.units.interval import Interval

if TYPE_CHECKING:
    from bricks.compose.parts import Results
    from bricks.decompose.plan import Plan


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
