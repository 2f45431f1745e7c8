"""Latencies of batches of a model that is served, from its bricks. Must not know who asks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bricks.compose.queueing.run import run_latency
from bricks.errors import UsageError
from bricks.session.predicting import basis
from bricks.studies.serving.service import BatchLatency, ServiceTimes

if TYPE_CHECKING:
    from bricks.graph.model import Model
    from bricks.session.workspace import Workspace
    from bricks.studies.serving.scenario import Serving
    from bricks.system import Target


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
