"""Profiles several runs of a whole model, in the worker, and returns a typical run.

It must not know how the profile is used; see ``samples.profile``.
"""

from __future__ import annotations

from dataclasses import astuple

from bricks.backends.base import ProfiledModel
from bricks.samples.profile import NodeRun, TypicalRun

# The first runs allocate memory and fill the caches. A slow model gets the fewest runs.
WARM_UPS, RUNS, MIN_RUNS, ENOUGH_S = 2, 9, 3, 5.0
# A loop can have a great many inner nodes: more than these are counted only.
MAX_INNER = 1000


def typical_run(profiled: ProfiledModel) -> TypicalRun:
    """The nodes of the run with the median latency, and the latencies of all runs in seconds."""
    for _ in range(WARM_UPS):
        profiled.sample()
    runs_s: list[float] = []
    while len(runs_s) < (RUNS if sum(runs_s) < ENOUGH_S else MIN_RUNS):
        runs_s.append(profiled.sample())
    typical = sorted(range(len(runs_s)), key=lambda run: runs_s[run])[(len(runs_s) - 1) // 2]
    events = profiled.runs()[WARM_UPS + typical]
    nodes, inner = [], 0
    for event in events:
        inner += event.inner
        if not event.inner or inner <= MAX_INNER:
            nodes.append(NodeRun(*astuple(event)))
    return TypicalRun(tuple(runs_s), typical, tuple(nodes), max(0, inner - MAX_INNER))
