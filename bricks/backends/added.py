"""Runtimes that other packages bring: entry points of the group ``bricks.backends``.

The entry point's name is that of the runtime. It leads to a module, or any other object, with two
functions: ``describe()``, a :class:`~bricks.backends.base.BackendInfo`, which must not import the
runtime, and ``create(*, threads, seed, workers, optimization)``, a
:class:`~bricks.backends.base.Backend`, called in the worker process. Names of the runtimes that
come with this package are taken. Must not know any runtime.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import Any, Protocol

from bricks._version import warn_of_renaming
from bricks.backends.base import Backend, BackendInfo
from bricks.errors import BackendError, BricksError, first_line

GROUP = "bricks.backends"


class Offer(Protocol):
    """What an entry point leads to."""

    def describe(self) -> BackendInfo:
        """What is known of the runtime without importing it."""
        ...

    def create(self, *, threads: int, seed: int, workers: int, optimization: str) -> Backend:
        """The backend itself."""
        ...


def names() -> list[str]:
    """The names that other packages have given to runtimes."""
    return sorted({point.name for point in entry_points(group=GROUP)})


def offer(name: str) -> Offer | None:
    """What leads to the runtime called ``name``; None if no package has one.

    Raises :class:`BackendError` if it cannot be imported, or comes with two packages.
    """
    points = list(entry_points(group=GROUP, name=name))
    if len(points) > 1:
        packages = " and ".join(sorted(map(_package, points)))
        raise BackendError(f"the runtime {name!r} comes with {packages}: remove one of them")
    if not points:
        return None
    try:
        found: Offer = points[0].load()
    except Exception as exc:  # whatever a module does as it is imported
        raise BackendError(
            f"the runtime {name!r} of {_package(points[0])} cannot be imported"
            f" ({first_line(exc)}): install it anew, or remove it"
        ) from exc
    return found


def describe(offer: Offer, name: str) -> BackendInfo:
    """What ``offer`` says of the runtime called ``name``."""
    info = _asked(offer, "describe", name)
    # The name is in the keys of all that is measured: another one would mix two runtimes.
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
    """The backend that ``offer`` makes."""
    backend: Backend = _asked(
        offer,
        "create",
        name,
        threads=threads,
        seed=seed,
        workers=workers,
        optimization=optimization,
    )
    if not hasattr(backend, "sign_sensitive") and hasattr(backend, "minds_signs"):
        warn_of_renaming(f"minds_signs of the runtime {name!r}", "sign_sensitive")
        backend.sign_sensitive = backend.minds_signs  # type: ignore[method-assign]
    return backend


def _asked(offer: Offer, function: str, name: str, **arguments: Any) -> Any:
    """What one of its functions gives; all that foreign code may raise is one error."""
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
