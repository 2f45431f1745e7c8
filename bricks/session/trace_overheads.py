"""Call overhead out of a trace: what its steps take on the host beyond their calls, by phase.

Probes of call overhead are pairs of a real step and of the same calls alone. Steps of a trace are
such pairs. They do not tell a phase's fixed part from the part of each call, so all of it counts
for its calls, and the other pairs have no difference. Must not know what calls compute.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING

from bricks.graph.program_phases import PER_CALL
from bricks.samples.call_overhead import PHASE_PROBES, PROBES
from bricks.samples.measurement import Round
from bricks.units.sample import Sample

if TYPE_CHECKING:
    from bricks.backends.profiler_trace import ProfilerTrace, TracedPhase

# Chains of nodes that take nothing but their own time.
_NODE_S = 1e-9


def overhead_rounds(trace: ProfilerTrace) -> dict[str, list[Round]]:
    """The rounds of the probes of each phase in ``trace``, one for each step; empty without steps.

    A call of the runtime is a call of an operator, so nothing is around it.
    """
    by_phase: dict[str, list[TracedPhase]] = defaultdict(list)
    for phase in trace.phases:
        by_phase[phase.name].append(phase)
    rounds = {key: of for name in by_phase for key, of in _pairs(name, by_phase[name])}
    if not rounds:
        return {}
    return {**rounds, **{key: [_round(n * _NODE_S)] for n, key in PROBES.items()}}


def _pairs(name: str, phases: list[TracedPhase]) -> Iterator[tuple[str, list[Round]]]:
    steps = [_round(phase.taken_s / phase.calls) for phase in phases]
    alone = [_round(phase.in_calls_s / phase.calls) for phase in phases]
    for part, (step, calls) in PHASE_PROBES[name].items():
        yield step, steps if part == PER_CALL else alone[:1]
        yield calls, alone if part == PER_CALL else alone[:1]


def _round(latency_s: float) -> Round:
    return Round.of([Sample(latency_s)])
