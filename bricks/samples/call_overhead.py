"""Probes of call overhead, which measurements of bricks do not contain.

A brick is timed by calling the runtime once; inside a model the same nodes share one call. Chains
of trivial nodes of two lengths separate the cost of a call from the cost of a node: the call cost
is the intercept of latency over length.

In a recorded program every node is a call of its own, with overhead in Python and in the autograd
engine. In each phase this overhead has three parts: a fixed cost, a per-call cost, and a penalty
for code that calls have evicted from the core's caches. Tiny programs measure each part as the
difference between a real step and the same calls timed as bricks. A part may be negative, since the
engine calls an operator faster than Python does.

A target measures probes like bricks, and the store keeps them under keys of their own. Must not
know how probes are measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bricks.graph.call import BACKWARD, EVICTION, FORWARD, INFERENCE, OPTIMIZER, PER_CALL, PER_PHASE

if TYPE_CHECKING:
    from bricks.decompose.plan import Plan

SHORT, LONG = 1, 33
PROBES = {length: f"p1-chain{length}" for length in (SHORT, LONG)}

# By phase and part: the key of real steps, and the key of the same steps without the part.
# Without automatic differentiation the forward pass is another phase.
PHASE_PROBES = {
    phase: {
        part: (f"p1-{phase}{infix}-step", f"p1-{phase}{infix}-calls")
        for part, infix in ((PER_PHASE, "-once"), (PER_CALL, ""), (EVICTION, "-displaced"))
    }
    for phase in (INFERENCE, FORWARD, BACKWARD, OPTIMIZER)
}

# Costs of a device, by name: between two dependent kernels that were launched ahead, a kernel that
# does nothing, from a launch to the begin of its kernel on an idle device, a launch and a wait for
# it, and a wait for an idle device.
DEVICE_PROBES = {
    "gap": "p1-device-gap",
    "kernel": "p1-device-kernel",
    "launch": "p1-device-launch",
    "round trip": "p1-device-round-trip",
    "synchronise": "p1-device-synchronise",
}

ALL_PROBES = (
    *PROBES.values(),
    *(key for parts in PHASE_PROBES.values() for pair in parts.values() for key in pair),
)


@dataclass(frozen=True, slots=True)
class CallCounts:
    """The number of times that each part of the call overhead occurs in a phase."""

    once: int
    calls: int
    displaced: float

    @property
    def times(self) -> Mapping[str, float]:
        """The number of times by part."""
        return {PER_PHASE: self.once, PER_CALL: self.calls, EVICTION: self.displaced}


def call_overhead_s(short_s: float, long_s: float) -> float:
    """The runtime's cost per call, in seconds, from the latencies of the two chains."""
    per_node = (long_s - short_s) / (LONG - SHORT)
    return max(0.0, short_s - SHORT * per_node)


def call_counts(plan: Plan) -> dict[str, CallCounts]:
    """Counts of call overhead in a recorded program by phase; empty for other models.

    An outdated plan lacks the evictions of calls: they count as 0, and its estimate has a gap.
    """
    counts: dict[str, CallCounts] = {}
    for name, phase in plan.memory.overheads:
        before = counts.get(name, CallCounts(1, 0, 0.0))
        calls, displaced = before.calls + phase.calls, before.displaced + (phase.displaced or 0.0)
        counts[name] = CallCounts(1, calls, displaced)
    return counts


def needed_by(plan: Plan) -> tuple[str, ...]:
    """The keys of the bricks and probes that an estimate of ``plan`` needs."""
    return (*plan.keys, *probes_of(plan))


def probes_of(plan: Plan) -> tuple[str, ...]:
    """The keys of the probes that an estimate of ``plan`` needs."""
    pairs = (pair for phase in call_counts(plan) for pair in PHASE_PROBES[phase].values())
    return (*PROBES.values(), *(key for pair in pairs for key in pair))
