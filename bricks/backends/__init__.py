"""Runtimes, one per package, behind one small interface (:mod:`bricks.backends.base`).

An entry point leads to the :class:`~bricks.backends.offer.Offer` of each, in this package or in
another one (:mod:`bricks.backends.catalogue`). Only ``backends/NAME`` imports
the runtime NAME, and only inside the worker process. Facts that are needed before a worker exists
(the version, which store lookups need) come from package metadata.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bricks.backends.catalogue import (
    asked,
    built_in,
    default,
    describe,
    describe_elsewhere,
    location,
    names,
    offer,
    offers,
    on_device,
    quantiser,
    unneeded,
)
from bricks.backends.offer import BackendInfo, MemoryUse, Offer
from bricks.errors import BackendError
from bricks.system.accelerator import CPU

if TYPE_CHECKING:
    from bricks.backends.base import Backend

__all__ = [
    "BackendInfo",
    "MemoryUse",
    "Offer",
    "built_in",
    "create",
    "default",
    "describe",
    "describe_elsewhere",
    "location",
    "names",
    "offer",
    "offers",
    "on_device",
    "quantiser",
    "unneeded",
]  # fmt: skip


def create(
    name: str,
    *,
    threads: int,
    seed: int,
    workers: int = 1,
    optimization: str = "all",
    location: str = "",
    device: str = CPU,
) -> Backend:
    """Create the backend ``name``; imports its runtime, so call it in the worker process.

    ``workers`` is the number of nodes of a model that may run at the same time, ``optimization`` a
    level of the runtime. ``location`` is that of its offer, for environments without its package.
    ``device`` runs the models: ``cpu`` or ``cuda``.
    """
    from bricks.backends.base import Backend

    backend = asked(
        on_device(name, device, location),
        "create",
        threads=threads,
        seed=seed,
        workers=workers,
        optimization=optimization,
    )
    if not isinstance(backend, Backend):
        raise BackendError(
            f"create() of the runtime {name!r} gives a {type(backend).__name__}:"
            " it must give a bricks.backends.base.Backend"
        )
    return backend
