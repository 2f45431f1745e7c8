"""Which system, instances and batches keep a bound at a rate, and how many hosts that takes.

Nothing is measured. Must not know how results are shown.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bricks.api.bench import Bench
from bricks.compose.queueing.batching import batch_sizes
from bricks.errors import BricksError
from bricks.studies.serving.outcome import highest_qps, scenario_of
from bricks.studies.serving.predict import service_times
from bricks.studies.serving.result import ScenarioResult
from bricks.studies.serving.scenario import ScenarioLoad, Serving
from bricks.studies.serving.service import ServiceTimes
from bricks.system import Target
from bricks.units.cases import high_of


@dataclass(frozen=True, slots=True)
class ServingAdvice:
    """How a target serves a model best: the fewest ``hosts``, and then the most room.

    ``result`` is what one host does with its part of the load. ``hosts`` and ``result`` are None if
    the bound is kept at no rate. ``cost_per_hour`` is that of all hosts, None without a price.
    """

    target: Target
    hosts: int | None
    result: ScenarioResult | None
    cost_per_hour: float | None


@dataclass(frozen=True, slots=True)
class NoServingAdvice:
    """Why there is no advice for a target, in one line."""

    target: Target
    error: str


def advise_serving(
    bench: Bench,
    name: str,
    load: ScenarioLoad,
    targets: Sequence[Target],
    *,
    largest_batch: int,
    shapes: Mapping[str, Sequence[int | None]] | None = None,
    values: Mapping[str, Any] | None = None,
) -> Iterator[ServingAdvice | NoServingAdvice]:
    """Advice for the model called ``name`` on each of ``targets``.

    ``load`` has a rate and a bound. All sizes of a batch up to ``largest_batch`` that are powers of
    two are tried, fewer where there is no estimate of larger ones, and numbers of instances up to
    the cores that a target has. A rate counts as kept if it is with all batches at the high end of
    their intervals.
    """
    for target in targets:
        largest = largest_batch
        while True:
            try:
                times = service_times(bench, name, largest, target, shapes, values)
            except BricksError as error:
                if largest > 1:
                    largest //= 2
                    continue
                yield NoServingAdvice(target, str(error))
            else:
                yield _best(name, load, target, times, largest)
            break


def _best(
    name: str, load: ScenarioLoad, target: Target, times: ServiceTimes, largest_batch: int
) -> ServingAdvice:
    wanted_qps = load.qps
    assert wanted_qps is not None
    tried = [
        (highest_qps(times, load, serving, high_of), serving)
        for serving in _servings(target, largest_batch)
    ]
    kept = [(qps, serving) for qps, serving in tried if qps > 0]
    if not kept:
        return ServingAdvice(target, None, None, None)
    # Of as few hosts as any, the one with the most room; of equals, the smaller batch.
    qps, serving = min(kept, key=lambda each: (math.ceil(wanted_qps / each[0]), -each[0]))
    hosts = math.ceil(wanted_qps / qps)
    share = replace(load, qps=wanted_qps / hosts)
    price = target.system.price_per_hour
    return ServingAdvice(
        target,
        hosts,
        scenario_of(name, target, times, share, serving),
        None if price is None else hosts * price,
    )


def _servings(target: Target, largest_batch: int) -> Iterator[Serving]:
    cores = target.system.identity["physical_cores"] or 1
    most = max(1, cores // target.runtime.threads)
    for instances in sorted({*batch_sizes(most)}):
        for batch in batch_sizes(largest_batch):
            yield Serving(max_batch=batch, instances=instances)
