"""The phases of traced steps: forward pass, backward pass, optimiser, and the calls in each.

What a phase takes beyond its calls is spent in Python and in the autograd engine. Must not know
what calls compute.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise

from bricks.backends.profiler_trace import TracedPhase
from bricks.backends.torch.kineto.trace_file import ANNOTATIONS, CALLS, TraceEvent, TraceFile
from bricks.graph.program_phases import BACKWARD, FORWARD, INFERENCE, OPTIMIZER

STEP = "ProfilerStep#"
_ENGINE, _OPTIMIZER = "autograd::engine::evaluate_function", "Optimizer.step#"


def steps_of(file: TraceFile) -> list[TraceEvent]:
    """The steps of the profiler's schedule in order."""
    return [event for event in file.of([ANNOTATIONS]) if event.name.startswith(STEP)]


def traced_phases(file: TraceFile, calls: Sequence[TraceEvent]) -> Iterator[TracedPhase]:
    """Yield the phases of each step; ``calls`` are in order of their begin.

    A step whose optimiser begins before its backward pass has ended is left out, and a phase
    without calls.
    """
    backward = [e.begin_us for e in file.of([CALLS]) if e.name.startswith(_ENGINE)]
    optimizer = [e.begin_us for e in file.of([ANNOTATIONS]) if e.name.startswith(_OPTIMIZER)]
    begins = [call.begin_us for call in calls]
    spent_us = [0.0, *accumulate(call.end_us - call.begin_us for call in calls)]
    for step in steps_of(file):
        bounds = _bounds(step, _inside(backward, step), _inside(optimizer, step))
        for (name, begin_us), (_, end_us) in pairwise(bounds):
            first, last = bisect_left(begins, begin_us), bisect_left(begins, end_us)
            if last > first:
                within_us = spent_us[last] - spent_us[first]
                taken_s = 1e-6 * (end_us - begin_us)
                yield TracedPhase(name, taken_s, 1e-6 * within_us, last - first)


def _inside(times_us: Sequence[float], step: TraceEvent) -> Sequence[float]:
    return times_us[bisect_left(times_us, step.begin_us) : bisect_left(times_us, step.end_us)]


def _bounds(
    step: TraceEvent, backward_us: Sequence[float], optimizer_us: Sequence[float]
) -> list[tuple[str, float]]:
    """The begin of each phase of a step by name, and its end; empty if they are out of order."""
    optimizer = min(optimizer_us, default=math.inf)
    if any(begin_us > optimizer for begin_us in backward_us):
        return []
    begins = [(INFERENCE if not backward_us and not optimizer_us else FORWARD, step.begin_us)]
    begins += [(BACKWARD, begin_us) for begin_us in backward_us[:1]]
    begins += [(OPTIMIZER, begin_us) for begin_us in optimizer_us[:1]]
    return [*begins, ("", step.end_us)]
