"""Takes a runtime's profile of a whole model, in the worker: several runs, and reports one of them.

It must not know how the profile is used; see ``samples.profile``.
"""

from __future__ import annotations

from dataclasses import astuple

from bricks.backends.base import ProfiledModel
from bricks.samples.profile import NodeRun, TypicalRun

# The first runs take memory and fill the caches. A model that takes long gets the fewest runs.
WARM_UPS, RUNS, MIN_RUNS, ENOUGH_S = 2, 9, 3, 5.0
# A loop's inner nodes can be countless: more than these nobody reads.
MAX_INNER = 1000


def typical_run(profiled: ProfiledModel) -> TypicalRun:
    """The nodes of the run with the median latency, and the latencies of all runs in seconds."""
    for _ in range(WARM_UPS):
        profiled.sample()
    taken_s: list[float] = []
    while len(taken_s) < (RUNS if sum(taken_s) < ENOUGH_S else MIN_RUNS):
        taken_s.append(profiled.sample())
    typical = sorted(range(len(taken_s)), key=lambda run: taken_s[run])[(len(taken_s) - 1) // 2]
    events = profiled.runs()[WARM_UPS + typical]
    nodes, inner = [], 0
    for event in events:
        inner += event.inner
        if not event.inner or inner <= MAX_INNER:
            nodes.append(NodeRun(*astuple(event)))
    return TypicalRun(tuple(taken_s), typical, tuple(nodes), max(0, inner - MAX_INNER))
