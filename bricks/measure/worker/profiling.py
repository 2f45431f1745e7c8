"""Takes a runtime's profile of a whole model, in the worker: several runs, of which one is told.

It must not know what becomes of it; see ``samples.profile``.
"""

from __future__ import annotations

from dataclasses import astuple
from typing import Any

from bricks.backends.base import Profiled

# At first memory is taken and caches fill. Of a model that takes long, the least runs.
WARM_UPS, RUNS, MIN_RUNS, ENOUGH_S = 2, 9, 3, 5.0
# A loop's inner nodes can be countless: so many of them somebody can look at.
MAX_INNER = 1000


def typical_run(profiled: Profiled) -> dict[str, Any]:
    """The nodes of the run in the middle, when runs are ordered by latency; and what all took."""
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
            nodes.append(list(astuple(event)))
    return {
        "runs_s": taken_s,
        "typical": typical,
        "nodes": nodes,
        "omitted": max(0, inner - MAX_INNER),
    }
