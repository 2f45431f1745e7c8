"""Measures how pauses, threads and clients of a server lengthen the runs of bricks.

Passes of bricks in a server take turns with passes back to back. Nothing is stored. Must not know
what is predicted from them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from bricks.compose.queueing.idle import NO_IDLE_PENALTY, ServerRuns, fit_server_state
from bricks.compose.queueing.spread import single_runs_s
from bricks.errors import WorkerError
from bricks.session.whole_models import served_walk

if TYPE_CHECKING:
    from bricks.graph.model import Model
    from bricks.measure.served import Samples
    from bricks.session.workspace import Workspace
    from bricks.studies.serving.service import ServiceTimes

# Bricks are served in place of the model for these seconds, within these numbers of passes. At half
# of the server's capacity, pauses between runs have all relevant lengths.
_SERVING_S, _FEWEST_PASSES, _MOST_PASSES = 8.0, 80, 400
_UTILISATION = 0.5
# At a lower rate than this, pauses last until the deepest idle state.
_RARE_QPS = 10.0
# Turns of passes in a server and back to back. A host changes within seconds, so passes back to
# back take these seconds of a turn too, within these numbers of passes.
_TURNS = 8
_LOOPED_S, _FEWEST_LOOPED, _MOST_LOOPED = 0.5, 5, 200
# A processor recovers from idling in some ten milliseconds: longer runs hardly have a penalty.
_LONG_RUN_S = 0.1

_Collected = defaultdict[str, list[float]]


def in_server(
    workspace: Workspace, models: Mapping[int, Model], times: ServiceTimes, qps: float | None = None
) -> ServiceTimes:
    """``times`` of ``models``, by batch size, corrected to runs in a server.

    A server runs the bricks of each model at random arrivals, ``qps`` a second or at half of its
    capacity, in turn with passes back to back. So runs contain the cost of pauses, threads and
    clients. Batches of long runs are not corrected. The result is not stored.
    """
    short = [batch for batch in times.batches if batch.run.latency_s.value <= _LONG_RUN_S]
    # A quota stops passes in a server and back to back, by itself: their ratio tells nothing.
    throttled = workspace.target.system.quota is not None
    if throttled or not workspace.setup.info.timed:
        short = []
    idle_model, states = None, {}
    for done, batch in enumerate(short):
        workspace.progress("measuring bricks in a server", done / len(short))
        most_qps = _UTILISATION / batch.run.latency_s.value
        rate_qps = min(max(qps or most_qps, _RARE_QPS), most_qps)
        runs = _served_runs(workspace, models[batch.size], batch.run.latency_s.value, rate_qps)
        states[batch.size] = state = fit_server_state(runs, idle_model)
        idle_model = state.idle_model
    batches = [batch.in_state(states.get(batch.size)) for batch in times.batches]
    return replace(times, batches=batches, idle_model=idle_model or NO_IDLE_PENALTY)


def _served_runs(workspace: Workspace, model: Model, latency_s: float, qps: float) -> ServerRuns:
    """Runs of the bricks of ``model`` in a server with ``qps`` arrivals a second.

    A run takes about ``latency_s`` seconds.
    """
    count = min(_MOST_PASSES, max(_FEWEST_PASSES, int(_SERVING_S * qps))) // _TURNS
    looped_count = min(_MOST_LOOPED, max(_FEWEST_LOOPED, int(_LOOPED_S / latency_s)))
    counts = workspace.plans.decompose(model).plan.counts
    idle_s, in_server_s, looped = list[float](), _Collected(list), _Collected(list)
    with workspace.timing(), served_walk(workspace, model) as served:
        for turn in range(_TURNS):
            _collect(served.looped(looped_count), looped)
            passes = served.passes(qps, count, seed=_TURNS * workspace.options.seed + turn)
            idle_s += passes[0]
            _collect(passes[1], in_server_s)
        timed = served.timed_counts
    run_s, looped_s = (single_runs_s(of, counts, timed).tolist() for of in (in_server_s, looped))
    return ServerRuns(idle_s, run_s, looped_s, _TURNS)


def _collect(samples: Samples, to: _Collected) -> None:
    """Append the seconds of further passes by brick."""
    if not samples:
        raise WorkerError("none of the model's bricks runs in a server")
    for key, seconds in samples.items():
        to[key] += seconds
