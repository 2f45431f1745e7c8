"""Studies of other packages, and the description of a study that its command is made from.

Packages offer studies as entry points of the group ``bricks.studies``. Must not know any study, nor
import the modules that answer it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any

from bricks.errors import BricksError

if TYPE_CHECKING:
    from bricks.studies.study import Study

GROUP = "bricks.studies"


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyPage:
    """The page of a server that asks a study: its ``path``, and the ``question`` as its title.

    ``fields`` are the titles of the options that the page asks for, by name. A server runs no code
    of its users and reads none of their files, so only options that need neither may be among them.
    ``subjects`` returns the values that the study's argument may have, and ``accepts`` tells of
    others whether they are known too. ``defaults`` are typed values of options, by name, that the
    page starts with.
    """

    path: str
    question: str
    fields: Mapping[str, str]
    subjects: Callable[[], Sequence[str]]
    accepts: Callable[[str], bool] = lambda subject: False
    defaults: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyOffer:
    """A study called ``name``, which is the word of its command too.

    ``help`` is whole sentences, the last of which is ``Example: bricks …``; ``options`` is the
    dataclass of its options (see :mod:`bricks.studies.options`), and ``load`` imports the study.
    ``runtime`` is the default one; None: the default of models. ``threads`` computes the default
    number of threads from the options; None: one for each core. ``needs_cache`` is called with the
    options, and is true if they name an entry of an existing cache. With ``checks``, the command
    has an option ``--check``; a study ``of_models`` has a field ``model`` in its options, and takes
    options of granularity, optimisation and effort. ``without`` are names of settings of all
    studies that this one lacks. ``page`` is its page on a server, None for none.
    """

    name: str
    help: str
    options: type
    load: Callable[[], Callable[..., Study[Any, Any, Any, Any]]]
    runtime: str | None = None
    threads: Callable[[Any], int | None] = lambda options: None
    needs_cache: Callable[[Any], bool] = lambda options: False
    checks: bool = False
    of_models: bool = False
    without: frozenset[str] = frozenset()
    page: StudyPage | None = None


def names() -> list[str]:
    """The names of all studies that other packages offer; none is imported."""
    return sorted(entry.name for entry in entry_points(group=GROUP))


def offer(name: str) -> StudyOffer | None:
    """The study ``name`` of another package; None if no package has it.

    A package that cannot be loaded has an offer whose ``load`` raises :class:`BricksError`.
    """
    for entry in entry_points(group=GROUP, name=name):
        try:
            loaded = entry.load()
            if not isinstance(loaded, StudyOffer):
                raise TypeError("it is no StudyOffer")
        except Exception as exc:  # of any kind: it is code of others
            return _broken(entry, exc)
        return loaded
    return None


@dataclass(frozen=True, slots=True)
class _NoOptions:
    """The options of a study that cannot be loaded."""


def _broken(entry: EntryPoint, exc: Exception) -> StudyOffer:
    def load() -> type[Study[Any, Any, Any, Any]]:
        raise BricksError(
            f"study {entry.name!r} ({entry.value}) cannot be loaded ({exc}): repair its package"
        ) from exc

    help_ = f"It cannot be loaded. Example: bricks {entry.name}"
    return StudyOffer(name=entry.name, help=help_, options=_NoOptions, load=load)
