"""The catalogue of runtimes: entry points of the group ``bricks.backends``, and their versions.

The entry point's name is the runtime's name, and it leads to an
:class:`~bricks.backends.offer.Offer`. The names of this package's own runtimes are reserved. In a
worker's environment packages need not be installed, so a worker gets the entry point's location
(``module:attribute``) from its parent. Versions other than the installed one have an environment
each (:class:`RuntimeVersion`). Must not know any runtime.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any

from bricks.backends.offer import BackendInfo, Offer
from bricks.backends.quantising import Quantiser
from bricks.errors import BackendError, BricksError, UsageError, first_line, suggestion
from bricks.system.accelerator import CPU, DEVICES

if TYPE_CHECKING:
    from bricks.graph.form import ModelForm
    from bricks.system.version_environments import VersionEnvironment

GROUP = "bricks.backends"

_SIGN = "=="
_VERSION = re.compile(r"\d[\w.+!-]*")


def built_in() -> tuple[str, ...]:
    """Return the names of this package's own runtimes, in the order of lists."""
    own = {point.name for point in _points() if _own(point)}
    return tuple(sorted(own, key=lambda name: offer(name).order))


def names() -> tuple[str, ...]:
    """Return the names of all runtimes: this package's own, then sorted ones of others."""
    own = built_in()
    return (*own, *sorted({point.name for point in _points()}.difference(own)))


def location(name: str) -> str:
    """Return the location of a runtime's offer, ``module:attribute``.

    Empty where no package of this environment has one.
    """
    return _point(name).value if name in names() else ""


def offer(name: str, location: str = "") -> Offer:
    """Load the offer of the runtime ``name``, from ``location`` if it is not empty.

    Raises :class:`UsageError` if no package has one, and :class:`BackendError` if it cannot be
    imported, is no :class:`~bricks.backends.offer.Offer`, or two packages provide the name.
    """
    point = EntryPoint(name, location, GROUP) if location else _point(name)
    try:
        loaded = point.load()
    except Exception as exc:  # importing runs foreign code, which may raise anything
        raise BackendError(
            f"the runtime {name!r} of {_package(point)} cannot be imported"
            f" ({first_line(exc)}): install it anew, or remove it"
        ) from exc
    if not isinstance(loaded, Offer) or loaded.name != name:
        title = repr(loaded.name) if isinstance(loaded, Offer) else type(loaded).__name__
        raise BackendError(
            f"the runtime {name!r} of {_package(point)} is offered as {title}:"
            f" its entry point must lead to a bricks.backends.Offer called {name!r}"
        )
    return loaded


def offers() -> Iterator[Offer]:
    """Yield all offers that can be imported, in the order of :func:`names`."""
    for name in names():
        with suppress(BackendError):
            yield offer(name)


def default(accepts: ModelForm) -> str:
    """Return the name of the default runtime for models of the form ``accepts``."""
    return _first(lambda offer: offer.default and offer.accepts is accepts)


def unneeded() -> str:
    """Return the name of a runtime without installation, for workers that need no other."""
    return _first(lambda offer: not offer.computes)


def quantiser() -> str:
    """Return the name of the first runtime with a tool that quantises models."""
    return _first(lambda offer: isinstance(offer, Quantiser))


def _first(suits: Callable[[Offer], bool]) -> str:
    for candidate in offers():
        if suits(candidate):
            return candidate.name
    raise BackendError(
        "the runtimes that come with bricks are not found: install it with pip, whose entry points"
        " lead to them"
    )


def on_device(name: str, device: str, location: str = "", python: str | None = None) -> Offer:
    """Return the offer of the runtime ``name`` on a device, in ``python`` of the user if any.

    See :meth:`~bricks.backends.offer.Offer.on` and :meth:`~bricks.backends.offer.Offer.in_python`.
    """
    if device not in DEVICES:
        raise UsageError(f"there is no device {device!r}: give {' or '.join(DEVICES)}")
    found = offer(name, location)
    if python is not None:
        found = found.in_python(python)
    if device == CPU:
        return found
    placed: Offer = asked(found, "on", device=device)
    return placed


def describe(name: str, device: str = CPU, python: str | None = None) -> BackendInfo:
    """Return the facts about the runtime ``name`` on a device, without importing it.

    ``python`` is the path of the user's Python that runs it, or ``bricks`` for the installed one.
    Raises :class:`BackendError` if the runtime is not installed; the message says how to fix it.
    """
    placed = on_device(name, device, python=python)
    info = _checked(name, asked(placed, "describe"))
    if info.note is not None or python is not None or placed.package is None:
        return info
    from bricks.backends.users_python import passed_over

    return replace(info, note=passed_over(placed.package))


def describe_elsewhere(name: str) -> BackendInfo:
    """Return the facts about a runtime that runs on other hosts, and may be missing on this one.

    Raises :class:`BackendError` as :func:`describe` if its offer knows none without it.
    """
    return _checked(name, asked(offer(name), "describe_elsewhere"))


def _checked(name: str, info: Any) -> BackendInfo:
    # Keys of measurements contain the name: a different one would mix two runtimes.
    if not isinstance(info, BackendInfo) or info.name != name:
        title = repr(info.name) if isinstance(info, BackendInfo) else type(info).__name__
        raise BackendError(
            f"the runtime {name!r} describes itself as {title}:"
            f" its describe() must give a BackendInfo called {name!r}"
        )
    return info


def asked(offer: Offer, function: str, **arguments: Any) -> Any:
    """Call a function of an offer; exceptions of foreign code become :class:`BackendError`."""
    try:
        return getattr(offer, function)(**arguments)
    except BricksError:
        raise
    except Exception as exc:
        raise BackendError(
            f"{function}() of the runtime {offer.name!r} failed:"
            f" {type(exc).__name__}: {first_line(exc)}"
        ) from exc


def _point(name: str) -> EntryPoint:
    points = [point for point in _points() if point.name == name]
    points = [point for point in points if _own(point)] or points
    if len(points) > 1:
        packages = " and ".join(sorted(map(_package, points)))
        raise BackendError(f"the runtime {name!r} comes with {packages}: remove one of them")
    if not points:
        raise UsageError(f"no runtime is called {name!r}: {suggestion(name, names())}")
    return points[0]


def _points() -> Sequence[EntryPoint]:
    return _installed(tuple(sys.path))


@lru_cache
def _installed(path: tuple[str, ...]) -> Sequence[EntryPoint]:
    """Read the entry points of all packages in the folders of ``path``, once."""
    return tuple(entry_points(group=GROUP))


def _own(point: EntryPoint) -> bool:
    return point.module.startswith(f"{GROUP}.")


def _package(point: EntryPoint) -> str:
    return "a package" if point.dist is None else f"{point.dist.name} {point.dist.version}"


@dataclass(frozen=True, slots=True)
class RuntimeVersion:
    """The runtime ``name`` in ``version``."""

    name: str
    version: str

    @classmethod
    def named(cls, word: str) -> bool:
        """Whether ``word`` is written as a version: ``onnxruntime==1.30.0``."""
        return _SIGN in word

    @classmethod
    def parse(cls, word: str) -> RuntimeVersion:
        """Parse ``NAME==VERSION``; :class:`UsageError` if there is none, or it is too old."""
        name, _, version = (part.strip() for part in word.partition(_SIGN))
        if name not in names():
            raise UsageError(f"no runtime is called {name!r}: {suggestion(name, names())}")
        if not _VERSION.fullmatch(version):
            raise UsageError(f"{word!r} has no version: write it like {name}==1.30.0")
        oldest = offer(name).oldest
        if oldest is not None:
            from bricks.system.version_environments import numbers  # slow import

            if numbers(version) < numbers(oldest):
                raise UsageError(
                    f"{word} is too old to be measured: give {name}=={oldest} or newer"
                )
        return cls(name, version)

    def describe(self, python: str | None = None) -> BackendInfo:
        """The facts about it; :class:`BackendError` unless it is installed.

        All other packages are those of ``python``, a path as in :func:`bricks.backends.describe`.
        """
        info = describe(self.name, python=python)
        if info.version == self.version:
            return info
        environment = self._environment(info)
        if not environment.ready:
            raise BackendError(f"{self.name} {self.version} is not installed: 'bricks diff' does")
        build = None if info.build is None else environment.build
        return replace(info, version=self.version, python=str(environment.python), build=build)

    def check(self) -> None:
        """Raise :class:`UsageError` if it is not here, and other versions cannot be installed."""
        info = describe(self.name)
        if info.version != self.version:
            self._environment(info)

    def install(self, say: Callable[[str], None] = lambda line: None) -> bool:
        """Install it unless it is; return whether it is new. ``say`` receives progress.

        Raises :class:`BackendError` if there is no such version, or it cannot be installed.
        """
        info = describe(self.name)
        return info.version != self.version and self._environment(info).install(say)

    def _environment(self, info: BackendInfo) -> VersionEnvironment:
        from bricks.system.version_environments import VersionEnvironment  # slow import

        package = offer(self.name).package
        if package is None:
            raise UsageError(
                f"versions of {self.name} cannot be installed: only {info.version} is there"
            )
        return VersionEnvironment(package, self.version, info.python)
