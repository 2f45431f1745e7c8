"""Probes: what runs around operators, and is not measured with bricks.

A brick is timed by calling the runtime once; inside a model the same nodes share one call. Chains
of trivial nodes of two lengths separate the cost of a call from that of a node: the call cost is
the intercept of latency over length.

In a recorded program every node is a call of its own, and around it run Python and the engine of
automatic differentiation. A tiny program shows what these take: a real step of it, beside the same
calls timed as bricks are, gives the cost around a call in each phase (which is negative where the
engine calls an operator faster than Python does).

A target measures probes like bricks, and the store keeps them under keys of their own. Must not
know how they are measured.
"""

from __future__ import annotations

from bricks.decompose.plan import Plan
from bricks.graph.program_phases import BACKWARD, FORWARD, INFERENCE, OPTIMIZER

SHORT, LONG = 1, 33
PROBES = {length: f"p1-chain{length}" for length in (SHORT, LONG)}

# Of each phase: the key of a real step's seconds per call, and that of its calls timed as bricks.
# Without automatic differentiation the forward pass is another phase.
PHASE_PROBES = {
    phase: (f"p1-{phase}-step", f"p1-{phase}-calls")
    for phase in (INFERENCE, FORWARD, BACKWARD, OPTIMIZER)
}

ALL_PROBES = (*PROBES.values(), *(key for pair in PHASE_PROBES.values() for key in pair))


def call_overhead_s(short_s: float, long_s: float) -> float:
    """The runtime's cost per call, in seconds, from the latencies of the two chains."""
    per_node = (long_s - short_s) / (LONG - SHORT)
    return max(0.0, short_s - SHORT * per_node)


def calls_around(plan: Plan) -> dict[str, int]:
    """The calls of a recorded program in each of :data:`PHASE_PROBES`; empty for other models."""
    if plan.program is None:
        return {}
    inference = plan.program.kind == INFERENCE
    found: dict[str, int] = {}
    for phase in plan.program.phases:
        name = INFERENCE if inference else phase.name
        found[name] = found.get(name, 0) + phase.calls
    return found


def needed_by(plan: Plan) -> tuple[str, ...]:
    """The keys of all that an estimate of ``plan`` is recomposed from: its bricks and probes."""
    return (*plan.keys, *probes_of(plan))


def probes_of(plan: Plan) -> tuple[str, ...]:
    """The keys of the probes that an estimate of ``plan`` needs."""
    pairs = (PHASE_PROBES[phase] for phase in calls_around(plan))
    return (*PROBES.values(), *(key for pair in pairs for key in pair))
