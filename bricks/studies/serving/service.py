"""Latencies of batches of any size of a model that is served: from its bricks at some sizes.

Between these sizes, they are interpolated. Must not know how estimates are made, nor how queries
arrive.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from bricks.compose.estimate import provenance_facts
from bricks.compose.queueing.idle import NO_IDLE_PENALTY, IdleModel, ServerState
from bricks.compose.queueing.run import RunLatency, RunSampler, run_latency
from bricks.compose.queueing.simulation import rate
from bricks.errors import UsageError
from bricks.session.predicting import basis
from bricks.units.curve import Curve
from bricks.units.draws import VALUE, Draw, Drawn, outermost, stratified
from bricks.units.facts import with_ends
from bricks.units.interval import Interval

if TYPE_CHECKING:
    from bricks.compose.queueing.batching import BatchSeconds
    from bricks.graph.model import Model
    from bricks.session.workspace import Workspace
    from bricks.studies.serving.scenario import Serving
    from bricks.system import Target
    from bricks.system.limits import Quota

# Costs of batches that are drawn once and reused cyclically.
_DRAWS = 1 << 16


@dataclass(frozen=True, slots=True)
class BatchLatency:
    """The latency of a batch of ``size`` samples.

    A batch takes ``idle_penalty`` of its latency longer on an idle processor; None: that was not
    measured.
    """

    FACTS: ClassVar = (
        ("size", "batch"), with_ends("run.latency_s", "latency_s"), "throughput",
        *provenance_facts("run.provenance"), ("idle_penalty", "asleep_share"),
    )  # fmt: skip

    size: int
    run: RunLatency
    idle_penalty: float | None = None

    def in_state(self, state: ServerState | None) -> BatchLatency:
        """This batch in a server with ``state``; None: a server does not change its latency."""
        if state is None:
            return replace(self, idle_penalty=0.0)
        draws = len(self.run.factors)
        looped_s = self.run.latency_s.scaled(state.factor.value)
        in_server_s = state.factor.scaled(self.run.latency_s.value)
        latency_s = Interval.deviating(looped_s.value, (looped_s, in_server_s)).positive()
        square = looped_s.half_width**2 + in_server_s.half_width**2
        own = self.run.own_share * looped_s.half_width**2 + in_server_s.half_width**2
        run = replace(
            self.run,
            latency_s=latency_s,
            factors=np.resize(state.spread, draws),
            own_share=own / square if square else 0.0,
        )
        return BatchLatency(self.size, run, state.idle_penalty)

    @property
    def throughput(self) -> Interval:
        """Samples a second of one instance that runs these batches back to back."""
        return self.run.mean_s.map(lambda seconds: rate(self.size, seconds))


@dataclass(frozen=True, slots=True)
class BusyInstances:
    """How much longer batches take on ``instances`` that are all busy than on one by itself.

    ``one`` and ``all`` are seconds of a batch by its size.
    """

    instances: int
    one: Curve
    all: Curve

    def slowdown(self, size: int, busy: int, draw: Draw) -> float:
        """The factor of a batch of ``size`` while ``busy`` instances run, as drawn.

        It is interpolated between one instance and all.
        """
        ratio = draw.of(self.all.at(size)) / draw.of(self.one.at(size))
        return 1.0 + (ratio - 1.0) * (busy - 1) / (self.instances - 1)


@dataclass(frozen=True)  # without slots, for the cached curve
class ServiceTimes:
    """Latencies of batches of ascending sizes from 1 on; sizes between are interpolated.

    ``idle_model`` gives the idle depth of the processor. ``busy`` says how instances slow each
    other down; None: that was not measured, or there is one. ``quota`` stops the only instance on a
    system with less than one processor.
    """

    batches: Sequence[BatchLatency]
    idle_model: IdleModel = NO_IDLE_PENALTY
    busy: BusyInstances | None = None
    quota: Quota | None = None

    @cached_property
    def curve(self) -> Curve:
        """Seconds of a batch by its size."""
        return Curve.through((batch.size, batch.run.latency_s) for batch in self.batches)

    @property
    def interpolation_error(self) -> float:
        """The worst error of a size that is interpolated from its neighbours, relative to it."""
        return self.curve.error

    def latency(self, size: int) -> Interval:
        """The latency of a batch of ``size``, at most the largest size."""
        return self.curve.at(size)

    def latency_s(self, size: int, draw: Draw) -> float:
        """The latency of a batch of ``size`` in seconds, as drawn; as of the next larger size."""
        place = bisect_left(self.curve.sizes, size)
        return draw.of(self.latency(size), place, self.batches[place].run.own_share)

    @cached_property
    def draws(self) -> Drawn[Draw]:
        """The draws of latencies that give the ends of what rises with the latency of each size."""
        sizes = [batch.size for batch in self.batches]
        every = stratified(len(sizes))
        return outermost(every, lambda draw: [self.latency_s(size, draw) for size in sizes])

    def with_busy(self, instances: int, at_once: ServiceTimes) -> ServiceTimes:
        """These times, of which ``at_once`` are those while all ``instances`` are busy."""
        return replace(self, busy=BusyInstances(instances, self.curve, at_once.curve))

    def _slowdowns(self, serving: Serving, draw: Draw) -> list[list[float]]:
        """Factors of batches by their size and by the number of busy instances, both from 0 on."""
        numbers = range(serving.instances + 1)
        if self.busy is None:
            return [[1.0 for _ in numbers] for _ in range(serving.max_batch + 1)]
        sizes = range(1, serving.max_batch + 1)
        every = [[self.busy.slowdown(size, busy, draw) for busy in numbers] for size in sizes]
        return [[], *every]

    def sampler(self, serving: Serving, draw: Draw, *, seed: int) -> BatchSeconds:
        """A function that samples the seconds of single batches, the server's own costs included.

        Their median latencies are those of ``draw``. The same ``seed`` gives batches of the same
        number the same noise, so that draws and rates can be compared.
        """
        runs = RunSampler({batch.size: batch.run for batch in self.batches}, seed)
        sizes = range(1, serving.max_batch + 1)
        medians_s = [0.0, *(self.latency_s(size, draw) for size in sizes)]
        own_s: list[float] = serving.drawn_batch_costs_s(_DRAWS).tolist()
        requests_s = [0.0, *(size * serving.request_s for size in sizes)]
        places = [0, *map(runs.place, sizes)]
        penalties = [batch.idle_penalty or 0.0 for batch in self.batches]

        slowdowns = self._slowdowns(serving, draw)

        def batch_s(size: int, number: int, sleep: float, busy: int) -> float:
            place = places[size]
            factor = runs.factor(place, number) * (1 + penalties[place] * sleep)
            factor *= slowdowns[size][busy]
            return medians_s[size] * factor + requests_s[size] + own_s[number % _DRAWS]

        return batch_s

    def drawn_s(self, serving: Serving, draw: Draw, *, count: int, seed: int) -> np.ndarray:
        """Seconds of batches on an active processor: shape ``(serving.max_batch, count)``.

        The row of a size has what :meth:`sampler` gives for batches numbered from 0 on.
        """
        runs = RunSampler({batch.size: batch.run for batch in self.batches}, seed)
        own_s = np.resize(serving.drawn_batch_costs_s(_DRAWS), count)
        return np.stack(
            [
                self.latency_s(size, draw) * runs.factors(runs.place(size), count)
                + size * serving.request_s
                + own_s
                for size in range(1, serving.max_batch + 1)
            ]
        )

    def capacity_qps(self, serving: Serving, draw: Draw = VALUE) -> float:
        """The capacity of ``serving`` in samples a second: all instances are busy, batches full."""
        size = serving.max_batch
        larger = self.batches[bisect_left(self.curve.sizes, size)]
        run_s = self.latency_s(size, draw) * float(larger.run.factors.mean())
        run_s *= self._slowdowns(serving, draw)[size][serving.instances]
        work_s = run_s + serving.batch_s + size * serving.request_s
        batch_s = work_s if self.quota is None else self.quota.mean_s(work_s)
        return serving.instances * size / batch_s


def read_sizes(
    workspace: Workspace,
    name: str,
    sizes: Sequence[int],
    shapes: Mapping[str, Sequence[int | None]] | None,
    values: Mapping[str, Any] | None,
) -> dict[int, Model]:
    """The model called ``name`` with batches of each of ``sizes``."""
    return {size: workspace.read(name, batch=size, shapes=shapes, values=values) for size in sizes}


def service_times(
    workspace: Workspace, models: Mapping[int, Model], target: Target
) -> ServiceTimes:
    """Latencies on ``target`` of ``models``, by the size of their batch; nothing is measured.

    Raises :class:`~bricks.errors.BricksError` where there is no estimate.
    """
    return ServiceTimes(
        [batch_latency(workspace, size, model, target) for size, model in models.items()],
        quota=target.system.quota,
    )


def batch_latency(workspace: Workspace, size: int, model: Model, target: Target) -> BatchLatency:
    """The latency on ``target`` of ``model`` with a batch of ``size``; nothing is measured.

    Raises :class:`~bricks.errors.BricksError` where there is no estimate.
    """
    known = basis(workspace, model, measure=False, target=target)
    which = f"{model.name} with a batch of {size} on {target.system.name}"
    return BatchLatency(size, run_latency(known, which, seed=workspace.options.seed))


def most_instances(target: Target) -> int:
    """How many instances have a core for each thread; 1 where cores are unknown."""
    cores = available_cores(target)
    return 1 if cores is None else cores // target.runtime.threads


def available_cores(target: Target) -> int | None:
    """The physical cores that a quota leaves to threads, at least 1; None if unknown."""
    cores = target.system.identity.get("physical_cores")
    if cores is None or target.system.identity.get("cpu_quota") is None:
        return cores
    return min(int(cores), target.system.most_threads)


def refuse_crowding(target: Target, serving: Serving) -> None:
    """:class:`UsageError` if instances would have to share cores: bricks were measured without."""
    cores = available_cores(target)
    threads = target.runtime.threads
    if serving.instances > 1 and cores is not None and serving.instances * threads > cores:
        raise UsageError(
            f"{serving.instances} instances with --threads {threads} need"
            f" {serving.instances * threads} cores, and {target.system.name} has {cores}: give"
            f" --instances {max(1, cores // threads)}"
        )
