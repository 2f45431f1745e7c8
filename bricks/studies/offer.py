"""Studies by name: what a command has to know of one before it is asked.

Those of this package are found, and those that other packages offer as entry points of the group
``bricks.studies``. Must not know any of them, nor import what one needs to answer.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from bricks.errors import BricksError
from bricks.session.defaults import RUNTIME
from bricks.studies.study import Study

GROUP = "bricks.studies"

# What a package of studies calls its offers.
OFFERS = "OFFERS"


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyOffer:
    """A study called ``name``, which is the word of its command too.

    ``help`` is whole sentences, the last of which is ``Example: bricks …``; ``options`` is the
    dataclass of its options (see :mod:`bricks.studies.options`), and ``load`` imports the study.
    ``runtime`` is the one that answers unless another is named, and ``threads`` tells from the
    options how many it has unless they are given; None: one for each core. ``needs_cache`` tells
    from the options whether they name what only an existing cache has. With ``checks``, the
    command has an option ``--check``; a study ``of_models`` has a field ``model`` in its options,
    and takes how that is cut and optimised; ``without`` are the names of options of all studies
    that this one lacks.
    """

    name: str
    help: str
    options: type
    load: Callable[[], Callable[..., Study[Any, Any, Any, Any]]]
    runtime: str = RUNTIME
    threads: Callable[[Any], int | None] = lambda options: None
    needs_cache: Callable[[Any], bool] = lambda options: False
    checks: bool = False
    of_models: bool = False
    without: frozenset[str] = frozenset()


def offers() -> Iterator[StudyOffer]:
    """All studies that there are; one that cannot be loaded says so when it is asked."""
    yield from _own()
    for entry in sorted(entry_points(group=GROUP), key=lambda each: each.name):
        yield _of_others(entry)


def _of_others(entry: EntryPoint) -> StudyOffer:
    try:
        found = entry.load()
        if not isinstance(found, StudyOffer):
            raise TypeError("it is no StudyOffer")
    except Exception as exc:  # of any kind: it is code of others
        return _broken(entry, exc)
    return found


@dataclass(frozen=True, slots=True)
class _Nothing:
    """There are no options."""


def _broken(entry: EntryPoint, exc: Exception) -> StudyOffer:
    def load() -> type[Study[Any, Any, Any, Any]]:
        raise BricksError(
            f"study {entry.name!r} ({entry.value}) cannot be loaded ({exc}): repair its package"
        ) from exc

    help_ = f"It cannot be loaded. Example: bricks {entry.name}"
    return StudyOffer(name=entry.name, help=help_, options=_Nothing, load=load)


def _own() -> Iterator[StudyOffer]:
    import bricks.studies as package

    for found in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        if found.ispkg:
            yield from getattr(import_module(found.name), OFFERS, ())
