"""Which system, instances and batches keep a bound at a rate, and how many hosts that takes.

Nothing is measured. Must not know how results are shown.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from bricks.compose.estimate import Provenance, provenance_facts
from bricks.compose.queueing.batching import batch_sizes
from bricks.errors import BricksError
from bricks.session.workspace import Workspace
from bricks.studies.serving.batches import known_times
from bricks.studies.serving.outcome import highest_qps, scenario_of
from bricks.studies.serving.result import ScenarioResult
from bricks.studies.serving.scenario import ScenarioLoad, Serving
from bricks.studies.serving.service import ServiceTimes
from bricks.system import Target
from bricks.units.cases import high_of
from bricks.units.facts import with_ends


@dataclass(frozen=True, slots=True)
class ServingAdvice:
    """The best way to serve ``model`` on a target: the fewest ``hosts``, then the most headroom.

    ``result`` is the scenario of one host with its part of the load. ``hosts`` and ``result`` are
    None if no rate meets the SLO. ``cost_per_hour`` is the cost of all hosts, None without a price.
    """

    FACTS: ClassVar = (
        "model", ("target.system.name", "system"), ("target.system.key", "system_key"),
        ("target.runtime.threads", "threads"), ("target.runtime.version", "runtime_version"),
        ("result.serving.instances", "instances"), ("result.serving.max_batch", "max_batch"),
        "hosts", "keeps", with_ends("result.latencies.counted_s", "counted_s"),
        with_ends("result.max_qps", "max_qps"), ("result.utilisation.value", "utilisation"),
        *provenance_facts("provenance"), "cost_per_hour", "cost_per_million", "error",
    )  # fmt: skip

    model: str
    target: Target
    hosts: int | None
    result: ScenarioResult | None
    cost_per_hour: float | None

    @property
    def keeps(self) -> bool:
        """Whether any rate meets the SLO."""
        return self.result is not None

    @property
    def provenance(self) -> Provenance | None:
        """The provenance of the batch with the largest predicted share, then published share."""
        if self.result is None:
            return None
        known = (batch.run.provenance for batch in self.result.times.batches)
        return max(
            known, key=lambda provenance: (provenance.predicted_share, provenance.published_share)
        )

    @property
    def cost_per_million(self) -> float | None:
        """The cost per million samples."""
        if self.cost_per_hour is None or self.result is None or self.hosts is None:
            return None
        assert self.result.load.qps is not None
        return self.cost_per_hour / (3600 * self.hosts * self.result.load.qps) * 1e6


@dataclass(frozen=True, slots=True)
class NoServingAdvice:
    """Why there is no advice for ``model`` on a target, in one line."""

    LIKE: ClassVar = ServingAdvice

    model: str
    target: Target
    error: str


@dataclass(frozen=True, slots=True)
class ServingAnswer:
    """Advice for models on targets, the best first."""

    FACTS: ClassVar = (
        "scenario", ("load.qps", "qps"), ("load.slo_s", "slo_s"),
        ("load.counted_percentile", "percentile"), "answers",
    )  # fmt: skip

    scenario: str
    load: ScenarioLoad
    answers: tuple[ServingAdvice | NoServingAdvice, ...]


def best_first(advice: ServingAdvice | NoServingAdvice) -> tuple[Any, ...]:
    """The sort key of advice: meeting the SLO first, then by cost if known, then by hosts."""
    target = (advice.target.system.name, advice.target.runtime.threads)
    if isinstance(advice, NoServingAdvice):
        return (advice.model, True, True, True, 0.0, 0, 0.0, *target)
    cost, result = advice.cost_per_hour, advice.result
    counted_s = None if result is None else result.latencies.get("counted_s")
    return (
        advice.model, False, not advice.keeps, cost is None, cost or 0.0, advice.hosts or 0,
        0.0 if counted_s is None else counted_s.value, *target,
    )  # fmt: skip


def advise_serving(
    workspace: Workspace,
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
                times = known_times(workspace, name, largest, target, shapes, values)
            except BricksError as error:
                if largest > 1:
                    largest //= 2
                    continue
                yield NoServingAdvice(name, target, f"{name} on {target.system.name}: {error}")
            else:
                yield _best(name, load, target, times, largest)
            break


def _best(
    name: str, load: ScenarioLoad, target: Target, times: ServiceTimes, largest_batch: int
) -> ServingAdvice:
    total_qps = load.qps
    assert total_qps is not None
    tried = [
        (highest_qps(times, load, serving, high_of), serving)
        for serving in _servings(target, largest_batch)
    ]
    kept = [(qps, serving) for qps, serving in tried if qps > 0]
    if not kept:
        return ServingAdvice(name, target, None, None, None)
    # Of as few hosts as any, the one with the most room; of equals, the smaller batch.
    qps, serving = min(
        kept, key=lambda candidate: (math.ceil(total_qps / candidate[0]), -candidate[0])
    )
    hosts = math.ceil(total_qps / qps)
    share = replace(load, qps=total_qps / hosts)
    price = target.system.price_per_hour
    return ServingAdvice(
        name,
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
