"""Predicts a scenario: batches from bricks, then a server that is simulated on their latencies.

Missing bricks are measured first, of all sizes of a batch at once. Must not know how results are
shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bricks.errors import ModelError, UsageError
from bricks.estimate.estimate import IncompleteEstimate
from bricks.estimate.figure import Figure
from bricks.graph.model import Model
from bricks.scenarios.outcome import scenario_of
from bricks.scenarios.result import ScenarioResult
from bricks.scenarios.scenario import ScenarioLoad, Serving
from bricks.scenarios.service import BatchLatency, ServiceTimes, batch_sizes
from bricks.scenarios.spread import run_factors
from bricks.session.bench import Bench
from bricks.system import Target


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
    times = ServiceTimes(
        [_batch(bench, size, model, target, measure) for size, model in models.items()]
    )
    return scenario_of(name, target, times, load, serving, seed=bench.options.seed)


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
    estimate = basis.estimate()
    if isinstance(estimate, IncompleteEstimate):
        gap = estimate.gaps[0]
        more = f" (and {len(estimate.gaps) - 1} more)" if len(estimate.gaps) > 1 else ""
        raise ModelError(
            f"{model.name} with a batch of {size} on {target.system.name}: no estimate without"
            f" {gap.brick}: {gap.reason}{more}"
        )
    return BatchLatency(
        size,
        Figure(estimate.estimate_s, estimate.low_s, estimate.high_s),
        run_factors(basis, estimate, seed=bench.options.seed),
        estimate.measured_share,
    )
