"""Shell completion at Tab: models, systems, and the values of options.

A shell runs this at every press of Tab, so nothing heavy is imported, and nothing waits; if the
cache or the zoo cannot be read, nothing is offered and no error is printed. Names come from files
and from other hosts, and some shells evaluate the offered words: only plain names are offered, and
the shell's own file completion handles the others. Must not change anything.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import typer

Completer = Callable[[typer.Context, str], list[str]]
# With a description of each; some shells show it.
Explained = Callable[[typer.Context, str], list[tuple[str, str]]]

# Names without characters that are special to a shell.
_PLAIN = re.compile(r"~?[\w./%+,@-]+", re.ASCII)

# The database of a cache. It is read directly, because importing the store would make Tab too slow;
# see store/schema.py. It is opened as immutable: so no lock is taken and no file is left beside it,
# and rows that another process is writing are offered later.
_DATABASE = "bricks.sqlite"
_NAMES = "SELECT coalesce(given_name, name), key FROM systems"

# The kind of such programs in the zoo; see graph/call.py.
_TRAINING_STEP = "training step"

_MODEL_FILES = (".onnx", ".zip")


def values(described: Mapping[str, str]) -> Explained:
    """Offers the values of an option, with a description of each in ``described``."""

    def complete(context: typer.Context, incomplete: str) -> list[tuple[str, str]]:
        return [(name, what) for name, what in described.items() if name.startswith(incomplete)]

    return complete


def runtimes(context: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Offers the runtimes of installed packages, with their summaries."""
    from bricks.backends import offers

    named = [(offer.name, offer.summary) for offer in offers() if _plain(offer.name)]
    return [(name, summary) for name, summary in named if name.startswith(incomplete)]


def names(known: Callable[[typer.Context], Iterable[str]]) -> Completer:
    """Offers ``known`` values; nothing if they cannot be read."""

    def complete(context: typer.Context, incomplete: str) -> list[str]:
        try:
            candidates = sorted(set(known(context)))
        except Exception:  # of any kind: a shell would print it into the line being typed
            return []
        return [name for name in candidates if name.startswith(incomplete) and _plain(name)]

    return complete


def _zoo(context: typer.Context) -> list[str]:
    from bricks.zoo import entries, programs

    return [entry.name for entry in (*entries(), *programs())]


def _trainable(context: typer.Context) -> list[str]:
    from bricks.zoo import trainings

    return [*trainings(), *_training_steps(context)]


def _training_steps(context: typer.Context) -> list[str]:
    from bricks.zoo import programs

    return [entry.name for entry in programs() if entry.kind == _TRAINING_STEP]


def _frameworks(context: typer.Context) -> list[str]:
    from bricks.zoo import entries

    return [entry.framework for entry in entries()]


def _recipes(context: typer.Context) -> list[str]:
    from bricks.zoo import zoo_folder
    from bricks.zoo.recipes import recipes

    return recipes(zoo_folder())


def _systems(context: typer.Context) -> Iterator[str]:
    """Names of systems in the cache of the command line, or in the default cache.

    Nothing for a cache on a database server.
    """
    cache = str(context.params.get("cache") or os.environ.get("BRICKS_CACHE") or "cache")
    file = Path(cache).expanduser() / _DATABASE
    if "://" in cache or not file.is_file():
        return
    import sqlite3  # here, since the help of commands needs none

    address = f"file:{quote(str(file.absolute()))}?immutable=1"
    with closing(sqlite3.connect(address, uri=True)) as connection:
        for name, key in connection.execute(_NAMES).fetchall():
            yield name if _plain(name) else key


zoo_models = names(_zoo)
zoo_frameworks = names(_frameworks)
zoo_recipes = names(_recipes)
systems = names(_systems)
trainable = names(_trainable)
training_steps = names(_training_steps)


def models(context: typer.Context, incomplete: str) -> list[str]:
    """Offers models: those of the zoo, and files and folders that may contain some."""
    return [*zoo_models(context, incomplete), *_files(incomplete)]


def decoders(context: typer.Context, incomplete: str) -> list[str]:
    """Offers decoders: published architectures, those of the zoo, and files and folders."""
    from bricks.architectures.published import PUBLISHED

    known = [name for name in PUBLISHED if name.startswith(incomplete)]
    return [*known, *models(context, incomplete)]


def _files(incomplete: str) -> list[str]:
    """Paths with this beginning: folders, and files that commands accept as models.

    Shells put a space behind a single offer; so if a single folder matches, its contents are
    offered too, and people can continue. If some names must not be offered, none is: then shells
    complete files themselves.
    """
    try:
        paths = list(_paths(incomplete))
        if len(paths) == 1 and paths[0].endswith(os.sep):
            paths += [path for path in _paths(paths[0]) if _plain(path)]
    except (OSError, RuntimeError):  # no such folder, or no home directory
        return []
    return paths if all(map(_plain, paths)) else []


def _paths(incomplete: str) -> Iterator[str]:
    before, separator, beginning = incomplete.rpartition(os.sep)
    prefix = before + separator
    for path in sorted(Path(prefix or ".").expanduser().iterdir()):
        name = path.name
        hidden = name.startswith(".") and not beginning.startswith(".")
        if hidden or not name.startswith(beginning):
            continue
        if path.is_dir():
            yield f"{prefix}{name}{os.sep}"
        elif path.suffix.lower() in _MODEL_FILES:
            yield prefix + name


def _plain(name: str) -> bool:
    return _PLAIN.fullmatch(name) is not None


def joined(words: str, position: str) -> tuple[str, str]:
    """Join ``--option``, ``=`` and ``value`` of bash to two words; also their new position.

    To bash ``=`` is a word of its own, which the parser of completions would take for a value.
    """
    line, number = words.split("\n"), int(position)
    kept = [n for n, word in enumerate(line) if word != "=" or n >= number]
    return "\n".join(line[n] for n in kept), str(number - (len(line) - len(kept)))
