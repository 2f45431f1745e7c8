"""Predicts a scenario: batches from bricks, then a server that is simulated on their latencies.

Missing bricks are measured first, of all sizes of a batch at once. Must not know how results are
shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from bricks import backends
from bricks.errors import UsageError
from bricks.graph.model import Model
from bricks.measure.served import Batching, ServedModel
from bricks.scenarios.idle import (
    AWAKE,
    LONG_S,
    PausedRuns,
    Waking,
    fitted_share,
    fitted_waking,
)
from bricks.scenarios.outcome import scenario_of
from bricks.scenarios.result import ScenarioResult
from bricks.scenarios.run import run_latency
from bricks.scenarios.scenario import ScenarioKind, ScenarioLoad, Serving
from bricks.scenarios.service import BatchLatency, ServiceTimes, batch_sizes
from bricks.session.bench import Bench
from bricks.system import Target

# Pauses before a run, in seconds, and how often each is tried.
_PAUSES_S = (3e-3, 1e-2, 3e-2)
_REPEATS = 11
# A processor wakes within some ten milliseconds: a run that takes longer than this hardly notices.
_LONG_RUN_S = 0.1


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
    waking = AWAKE
    if measure and load.kind is ScenarioKind.SERVER:
        latencies_s = {batch.size: batch.seconds.value for batch in batches}
        waking, asleep = measured_waking(bench, models, latencies_s)
        batches = [replace(batch, asleep_share=asleep[batch.size]) for batch in batches]
    times = ServiceTimes(batches, waking)
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


def measured_waking(
    bench: Bench, models: Mapping[int, Model], latencies_s: Mapping[int, float]
) -> tuple[Waking, dict[int, float]]:
    """How the processor sleeps, and how much longer whole ``models`` run on one that does.

    Models are by the size of their batch, from 1 on, as are the ``latencies_s`` that are expected
    of them. They are run for it, because bricks are measured one after another, and models differ
    in how much sleep costs them; those that take long hardly notice it, and are left out. The
    result is not stored.
    """
    asleep = dict.fromkeys(models, 0.0)
    short = {size: model for size, model in models.items() if latencies_s[size] <= _LONG_RUN_S}
    if 1 not in short or not backends.describe(bench.runtime.backend).timed:
        return AWAKE, asleep
    bench.progress("measuring runs after pauses", 0.0)
    with bench.timing(), ServedModel(bench.worker(), Batching(max(short), 0.0, 1)) as served:
        served.load(short)
        found = {
            size: PausedRuns(*served.time_after_pauses(size, LONG_S, _PAUSES_S, _REPEATS))
            for size in short
        }
    waking, asleep[1] = fitted_waking(found[1])
    for size, runs in found.items():
        if size > 1:
            asleep[size] = fitted_share(runs, waking)
    return waking, asleep


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
    run = run_latency(bench, model, f"with a batch of {size}", target, measure=measure)
    return BatchLatency(size, run.seconds, run.factors, run.provenance)
