"""Runtimes, one per package, behind one small interface (:mod:`bricks.backends.base`).

Each is an :class:`~bricks.backends.offer.Offer` that an entry point leads to, whether it comes with
this package or with another one (:mod:`bricks.backends.catalogue`). Only ``backends/NAME`` imports
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
    location,
    names,
    offer,
    offers,
    unneeded,
)
from bricks.backends.offer import BackendInfo, MemoryUse, Offer
from bricks.errors import BackendError

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
    "location",
    "names",
    "offer",
    "offers",
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
) -> Backend:
    """The backend called ``name``; imports its runtime, so call it in the worker process.

    ``workers`` is the number of nodes of a model that it may run at the same time, ``optimization``
    one of its levels. ``location`` is where its offer is, for an environment in which its package
    is not installed.
    """
    from bricks.backends.base import Backend

    backend = asked(
        offer(name, location),
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
