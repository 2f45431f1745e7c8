"""Predicts a scenario: batches from bricks, then a server that is simulated on their latencies.

Missing bricks are measured first, of all sizes of a batch at once. Must not know how results are
shown.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from bricks import backends
from bricks.api.bench import Bench
from bricks.compose.queueing.batching import batch_sizes
from bricks.compose.queueing.idle import AWAKE, ServedRuns, fitted_state
from bricks.compose.queueing.run import run_latency
from bricks.compose.queueing.spread import single_runs_s
from bricks.errors import UsageError, WorkerError
from bricks.graph.model import Model
from bricks.measure.served import Samples
from bricks.studies.serving.outcome import scenario_of
from bricks.studies.serving.result import ScenarioResult
from bricks.studies.serving.scenario import ScenarioKind, ScenarioLoad, Serving
from bricks.studies.serving.service import BatchLatency, ServiceTimes
from bricks.system import Target

# Bricks are served in place of the model for so long, or so often at least and at most. At half
# of what a server can answer, pauses of all lengths that matter come between runs.
_SERVING_S, _FEWEST_PASSES, _MOST_PASSES = 8.0, 80, 400
_UTILISATION = 0.5
# At a lower rate than this, pauses are so long that a processor sleeps.
_RARE_QPS = 10.0
# Bricks run in a server and without one in so many turns; without one, so often in each.
_TURNS, _LOOPED_PASSES = 4, 10
# A processor wakes within some ten milliseconds: a run that takes longer than this hardly notices.
_LONG_RUN_S = 0.1

_Collected = defaultdict[str, list[float]]


def predict_scenario(
    bench: Bench,
    name: str,
    load: ScenarioLoad,
    serving: Serving,
    *,
    shapes: Mapping[str, Sequence[int | None]] | None = None,
    values: Mapping[str, Any] | None = None,
    target: Target | None = None,
    measure: bool = True,
) -> ScenarioResult:
    """Predict the model called ``name`` under ``load``, served by ``serving``.

    ``shapes`` and ``values`` are those of :meth:`Bench.read`, which gets each size of a batch.
    With ``measure``, missing bricks are measured first; nothing can be measured on a ``target``
    other than the bench's. Raises :class:`~bricks.errors.UsageError` where instances need more
    cores than there are, and :class:`~bricks.errors.BricksError` for a model that cannot be
    predicted at some size of a batch.
    """
    target = bench.target if target is None else target
    refuse_crowding(target, serving)
    measure = measure and target.key == bench.target.key
    models = read_sizes(bench, name, batch_sizes(serving.max_batch), shapes, values)
    if measure:
        bench.measure(models.values())
    batches = [_batch(bench, size, model, target, measure) for size, model in models.items()]
    times = ServiceTimes(batches)
    if measure and load.kind is ScenarioKind.SERVER:
        times = in_server(bench, models, times, load.qps)
    return scenario_of(name, target, times, load, serving, seed=bench.options.seed)


def service_times(
    bench: Bench,
    name: str,
    largest_batch: int,
    target: Target,
    shapes: Mapping[str, Sequence[int | None]] | None = None,
    values: Mapping[str, Any] | None = None,
) -> ServiceTimes:
    """Latencies of batches up to ``largest_batch`` on ``target``; nothing is measured.

    Raises :class:`~bricks.errors.BricksError` where there is no estimate.
    """
    models = read_sizes(bench, name, batch_sizes(largest_batch), shapes, values)
    batches = (_batch(bench, size, model, target, False) for size, model in models.items())
    return ServiceTimes(list(batches))


def in_server(
    bench: Bench, models: Mapping[int, Model], times: ServiceTimes, qps: float | None = None
) -> ServiceTimes:
    """``times`` of ``models``, by the size of their batch, as a server has them.

    The bricks of each are run by a server that is asked at random times, ``qps`` a second or at
    half of what it can answer, in turn with runs one after another. So bricks meet pauses, threads
    and whoever asks; runs that take long hardly notice, and stay as they are. The result is not
    stored.
    """
    short = [batch for batch in times.batches if batch.latency_s.value <= _LONG_RUN_S]
    if not backends.describe(bench.runtime.backend).timed:
        short = []
    waking, found = None, {}
    for done, batch in enumerate(short):
        bench.progress("measuring bricks in a server", done / len(short))
        most_qps = _UTILISATION / batch.latency_s.value
        rate_qps = min(max(qps or most_qps, _RARE_QPS), most_qps)
        runs = _served_runs(bench, models[batch.size], rate_qps)
        found[batch.size] = state = fitted_state(runs, waking)
        waking = state.waking
    batches = [batch.in_state(found.get(batch.size)) for batch in times.batches]
    return ServiceTimes(batches, waking or AWAKE)


def _served_runs(bench: Bench, model: Model, qps: float) -> ServedRuns:
    """The bricks of ``model``, run by a server that is asked ``qps`` times a second."""
    count = min(_MOST_PASSES, max(_FEWEST_PASSES, int(_SERVING_S * qps))) // _TURNS
    counts = bench.decompose(model).plan.counts
    idle_s, taken, looped = list[float](), _Collected(list), _Collected(list)
    with bench.timing(), bench.served_walk(model) as served:
        for turn in range(_TURNS):
            _collect(served.looped(_LOOPED_PASSES), looped)
            found = served.passes(qps, count, seed=_TURNS * bench.options.seed + turn)
            idle_s += found[0]
            _collect(found[1], taken)
        places = served.places
    runs_s = (single_runs_s(each, counts, places).tolist() for each in (taken, looped))
    return ServedRuns(idle_s, *runs_s)


def _collect(samples: Samples, to: _Collected) -> None:
    """Add the seconds of further passes to those that there are."""
    if not samples:
        raise WorkerError("none of the model's bricks runs in a server")
    for key, seconds in samples.items():
        to[key] += seconds


def refuse_crowding(target: Target, serving: Serving) -> None:
    """:class:`UsageError` if instances would have to share cores: bricks were measured without."""
    cores = target.system.identity["physical_cores"]
    threads = target.runtime.threads
    if serving.instances > 1 and cores is not None and serving.instances * threads > cores:
        raise UsageError(
            f"{serving.instances} instances with --threads {threads} need"
            f" {serving.instances * threads} cores, and {target.system.name} has {cores}: give"
            f" --instances {max(1, cores // threads)}"
        )


def read_sizes(
    bench: Bench,
    name: str,
    sizes: Sequence[int],
    shapes: Mapping[str, Sequence[int | None]] | None,
    values: Mapping[str, Any] | None,
) -> dict[int, Model]:
    """The model called ``name`` with batches of each of ``sizes``."""
    return {size: bench.read(name, batch=size, shapes=shapes, values=values) for size in sizes}


def _batch(bench: Bench, size: int, model: Model, target: Target, measure: bool) -> BatchLatency:
    basis = bench.basis(model, measure=measure, target=target)
    which = f"{model.name} with a batch of {size} on {target.system.name}"
    run = run_latency(basis, which, seed=bench.options.seed)
    return BatchLatency(size, run.latency_s, run.factors, run.provenance)
