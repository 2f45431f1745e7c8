"""What a shell offers when somebody presses Tab: models, systems, and the values of options.

A shell asks for this at every press, so nothing heavy is imported, and nothing waits; where the
cache or the zoo cannot be read, nothing is offered, and nothing is said. Names come from files and
from other hosts, and some shells evaluate what they are offered: only plain ones are, and for all
others a shell knows its own way with files. Must not change anything.
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
# With what is said of each; some shells show it.
Explained = Callable[[typer.Context, str], list[tuple[str, str]]]

# Names without anything that a shell gives a meaning.
_PLAIN = re.compile(r"~?[\w./%+,@-]+", re.ASCII)

# The database of a cache. Read by itself, for importing the store takes longer than people wait for
# a Tab; see store/schema.py. And as a file that nobody changes: so nothing is locked, nor left
# beside it, and what somebody else is writing just now is offered later.
_DATABASE = "bricks.sqlite"
_NAMES = "SELECT coalesce(given_name, name), key FROM systems"

_MODEL_FILES = (".onnx", ".zip")


def values(told: Mapping[str, str]) -> Explained:
    """Offers the values of an option, with what is ``told`` of each."""

    def complete(context: typer.Context, incomplete: str) -> list[tuple[str, str]]:
        return [(name, what) for name, what in told.items() if name.startswith(incomplete)]

    return complete


def names(known: Callable[[typer.Context], Iterable[str]]) -> Completer:
    """Offers what is ``known``; nothing where that cannot be told."""

    def complete(context: typer.Context, incomplete: str) -> list[str]:
        try:
            found = sorted(set(known(context)))
        except Exception:  # whatever it is: a shell would print it amid what is being typed
            return []
        return [name for name in found if name.startswith(incomplete) and _plain(name)]

    return complete


def _zoo(context: typer.Context) -> list[str]:
    from bricks.zoo import entries

    return [entry.name for entry in entries()]


def _frameworks(context: typer.Context) -> list[str]:
    from bricks.zoo import entries

    return [entry.framework for entry in entries()]


def _recipes(context: typer.Context) -> list[str]:
    from bricks.zoo import zoo_folder
    from bricks.zoo.recipes import recipes

    return recipes(zoo_folder())


def _systems(context: typer.Context) -> Iterator[str]:
    """Systems of the cache on the command line, or else of the usual one; none of a server's."""
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


def models(context: typer.Context, incomplete: str) -> list[str]:
    """Offers models: those of the zoo, and files and folders that may hold some."""
    return [*zoo_models(context, incomplete), *_files(incomplete)]


def _files(incomplete: str) -> list[str]:
    """Paths that begin so: folders, and files that commands take for models.

    Shells put a space behind the only one that is offered; so of a folder that is alone, what is in
    it is offered too, and people can go on. Where some may not be offered, none is: then shells
    complete files by themselves.
    """
    try:
        found = list(_paths(incomplete))
        if len(found) == 1 and found[0].endswith(os.sep):
            found += [path for path in _paths(found[0]) if _plain(path)]
    except (OSError, RuntimeError):  # no such folder, or nobody's home
        return []
    return found if all(map(_plain, found)) else []


def _paths(incomplete: str) -> Iterator[str]:
    before, separator, beginning = incomplete.rpartition(os.sep)
    prefix = before + separator
    for found in sorted(Path(prefix or ".").expanduser().iterdir()):
        name = found.name
        hidden = name.startswith(".") and not beginning.startswith(".")
        if hidden or not name.startswith(beginning):
            continue
        if found.is_dir():
            yield f"{prefix}{name}{os.sep}"
        elif found.suffix.lower() in _MODEL_FILES:
            yield prefix + name


def _plain(name: str) -> bool:
    return _PLAIN.fullmatch(name) is not None


def joined(words: str, position: str) -> tuple[str, str]:
    """Bash's words of a line, and which of them is meant, with ``--option=value`` as two words.

    To bash ``=`` is a word of its own, which is taken for a value by what reads this.
    """
    line, number = words.split("\n"), int(position)
    kept = [n for n, word in enumerate(line) if word != "=" or n >= number]
    return "\n".join(line[n] for n in kept), str(number - (len(line) - len(kept)))
