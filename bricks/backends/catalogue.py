"""Runtimes that other packages provide: entry points of the group ``bricks.backends``.

The entry point's name is the runtime's name. It refers to a module, or any other object, with two
functions: ``describe()`` returns a :class:`~bricks.backends.base.BackendInfo` and must not import
the runtime; ``create(*, threads, seed, workers, optimization)`` returns a
:class:`~bricks.backends.base.Backend` and is called in the worker process. The names of this
package's own runtimes are reserved. Must not know any runtime.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import Any, Protocol

from bricks.backends.base import Backend, BackendInfo
from bricks.errors import BackendError, BricksError, first_line

GROUP = "bricks.backends"


class Offer(Protocol):
    """The object that an entry point refers to."""

    def describe(self) -> BackendInfo:
        """The facts about the runtime, without importing it."""
        ...

    def create(self, *, threads: int, seed: int, workers: int, optimization: str) -> Backend:
        """The backend; imports the runtime."""
        ...


def names() -> list[str]:
    """The names of the runtimes that other packages provide."""
    return sorted({point.name for point in entry_points(group=GROUP)})


def offer(name: str) -> Offer | None:
    """The entry point's object for the runtime called ``name``; None if no package has one.

    Raises :class:`BackendError` if it cannot be imported, or if two packages provide the name.
    """
    points = list(entry_points(group=GROUP, name=name))
    if len(points) > 1:
        packages = " and ".join(sorted(map(_package, points)))
        raise BackendError(f"the runtime {name!r} comes with {packages}: remove one of them")
    if not points:
        return None
    try:
        found: Offer = points[0].load()
    except Exception as exc:  # importing runs foreign code, which may raise anything
        raise BackendError(
            f"the runtime {name!r} of {_package(points[0])} cannot be imported"
            f" ({first_line(exc)}): install it anew, or remove it"
        ) from exc
    return found


def describe(offer: Offer, name: str) -> BackendInfo:
    """The facts that ``offer`` states about the runtime called ``name``."""
    info = _asked(offer, "describe", name)
    # Keys of measurements contain the name: a different one would mix two runtimes.
    if not isinstance(info, BackendInfo) or info.name != name:
        said = repr(info.name) if isinstance(info, BackendInfo) else type(info).__name__
        raise BackendError(
            f"the runtime {name!r} describes itself as {said}:"
            f" its describe() must give a BackendInfo called {name!r}"
        )
    return info


def create(
    offer: Offer, name: str, *, threads: int, seed: int, workers: int, optimization: str
) -> Backend:
    """The backend that ``offer`` creates."""
    backend: Backend = _asked(
        offer,
        "create",
        name,
        threads=threads,
        seed=seed,
        workers=workers,
        optimization=optimization,
    )
    return backend


def _asked(offer: Offer, function: str, name: str, **arguments: Any) -> Any:
    """The result of one of its functions; any exception of foreign code becomes BackendError."""
    try:
        return getattr(offer, function)(**arguments)
    except BricksError:
        raise
    except Exception as exc:
        raise BackendError(
            f"{function}() of the runtime {name!r} failed: {type(exc).__name__}: {first_line(exc)}"
        ) from exc


def _package(point: EntryPoint) -> str:
    return "a package" if point.dist is None else f"{point.dist.name} {point.dist.version}"
