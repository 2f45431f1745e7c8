"""The index of a folder of published measurements: which files there are, and of which targets.

Separate because what is published is known without reading any of the files. Must not know what
files contain.
"""

from __future__ import annotations

import json
import lzma
import os
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bricks.errors import StoreError, first_line, later_format
from bricks.store import records

if TYPE_CHECKING:
    from bricks.system.target import Target

INDEX, FORMAT, VERSION = "index.json", "bricks-published", 1

# An installed package has the files next to this module, a checkout in the folder of caches.
_PACKAGED = Path(__file__).with_name("published_results")
_CHECKOUT = Path(__file__).resolve().parents[2] / "cache" / "published"

# A path that is not a folder, for a session without published measurements.
NO_FOLDER = Path(os.devnull)

# What decoding raises where something is no index, or no file of results.
DAMAGE = (
    *(ArithmeticError, AttributeError, LookupError, TypeError, ValueError),
    *(EOFError, OSError, lzma.LZMAError, zlib.error),
)


def folder() -> Path:
    """The folder of published files."""
    chosen = os.environ.get("BRICKS_PUBLISHED")
    if chosen:
        return Path(chosen).expanduser()
    return _PACKAGED if (_PACKAGED / INDEX).is_file() else _CHECKOUT


@dataclass(frozen=True, slots=True)
class LearnedFile:
    """A file of what was learned from a published one, whose digest is ``learned_from``."""

    file: str
    sha256: str
    learned_from: str

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> LearnedFile:
        """The inverse of :meth:`to_json`; errors of :data:`DAMAGE` for invalid data."""
        return cls(_file_name(data["file"]), str(data["sha256"]), str(data["learned_from"]))

    def to_json(self) -> dict[str, Any]:
        """A JSON object."""
        return {"file": self.file, "sha256": self.sha256, "learned_from": self.learned_from}


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """One published file, as the index describes it; ``about`` is what its page shows.

    ``learned`` is what was learned from it, where that is kept.
    """

    file: str
    sha256: str
    targets: tuple[Target, ...]
    about: Mapping[str, Any]
    learned: LearnedFile | None = None

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> IndexEntry:
        """The inverse of :meth:`to_json`; errors of :data:`DAMAGE` for invalid data."""
        system = records.system_of(data["system"])
        targets = tuple(records.target_of(target, system) for target in data["targets"])
        learned = LearnedFile.of(data["learned"]) if "learned" in data else None
        name, about = _file_name(data["file"]), dict(data["about"])
        return cls(name, str(data["sha256"]), targets, about, learned)

    def to_json(self) -> dict[str, Any]:
        """A JSON object."""
        return {
            "file": self.file,
            "sha256": self.sha256,
            "system": self.targets[0].system.to_json(),
            "targets": [{"key": t.key, "runtime": t.runtime.to_json()} for t in self.targets],
            "about": dict(self.about),
            **({} if self.learned is None else {"learned": self.learned.to_json()}),
        }


def _file_name(name: Any) -> str:
    """A name that leads to no other folder; ValueError for others."""
    if Path(str(name)).name != str(name):
        raise ValueError(f"{name!r} is no name of a file")
    return str(name)


def read_index(place: Path) -> list[IndexEntry]:
    """The entries of a folder's index, none where there is no index; StoreError if damaged."""
    path = place / INDEX
    try:
        data = json.loads(path.read_bytes())
        name, version = data["format"]["name"], int(data["format"]["version"])
        if name != FORMAT:
            raise ValueError("it is no index of published results")
        if version > VERSION:
            raise StoreError(later_format(path, version, VERSION))
        return [IndexEntry.of(entry) for entry in data["files"]]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except StoreError:
        raise
    except DAMAGE as exc:
        raise StoreError(
            f"{path} is damaged ({first_line(exc, 120)}): install bricks again"
        ) from exc


def write_index(place: Path, entries: Sequence[IndexEntry]) -> None:
    """Write a folder's index, sorted by file."""
    files = [entry.to_json() for entry in sorted(entries, key=lambda entry: entry.file)]
    data = {"format": {"name": FORMAT, "version": VERSION}, "files": files}
    part = place / (INDEX + ".part")
    part.write_text(json.dumps(data, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    part.replace(place / INDEX)
