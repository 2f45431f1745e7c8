"""Indexes of published measurements: the files of a folder, and the lines of one file.

The first says which files there are, and of which targets: what is published is known without
reading any of them.

The second has the lines of one file, each compressed by itself and found by key: a published file
is one compressed stream, so that reading a line of it unpacks all before it. The index is made when
the file is first read, and kept as a derived file under the file's digest. It is never believed:
each part has a checksum, and callers rebuild it after :class:`IndexDamaged`.

    magic · lines · sections · header · size and SHA-256 of the header

A section is a JSON object from keys to lists that begin with the place and size of a line; the
header is a JSON object with the place, size and SHA-256 of each section. Must not know what lines
contain.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import mmap
import os
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from bricks.errors import StoreError, first_line, later_format
from bricks.store import records
from bricks.system import derived_files

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


_MAGIC = b"bricks-lines 1\n"
_SIZE_BYTES, _DIGEST_BYTES = 8, 32
_FOOTER_BYTES = _SIZE_BYTES + _DIGEST_BYTES

# Lines are unpacked far more often than packed: the level that is fastest.
_LEVEL = 1

# Of each key: the place and size of its line, and facts that are known without unpacking it.
Section = dict[str, list[Any]]


class IndexDamaged(Exception):
    """Raised for an index that is cut off, altered, or of another version."""


class IndexWriter:
    """Writes an index: lines one by one, then :meth:`finish`."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._place = file.write(_MAGIC)
        self._sections: dict[str, Section] = {}

    def add(self, section: str, key: str, line: bytes, *facts: Any) -> None:
        """Add a line under ``key``, with facts that JSON can hold; it replaces an earlier one."""
        place = self._write(zlib.compress(line, _LEVEL))
        self._sections.setdefault(section, {})[key] = [*place, *facts]

    def finish(self) -> None:
        """Write the sections and the header."""
        header = {}
        for name, section in self._sections.items():
            content = json.dumps(section, separators=(",", ":"), allow_nan=False).encode()
            header[name] = [*self._write(content), hashlib.sha256(content).hexdigest()]
        content = json.dumps(header).encode()
        self._write(content)
        self._write(len(content).to_bytes(_SIZE_BYTES, "big") + hashlib.sha256(content).digest())

    def _write(self, content: bytes) -> tuple[int, int]:
        place, size = self._place, self._file.write(content)
        self._place += size
        return place, size


class LineIndex:
    """An index in memory or in a mapped file; a section is decoded when it is first asked for.

    All methods raise :class:`IndexDamaged`.
    """

    def __init__(self, content: bytes | mmap.mmap) -> None:
        self._content = content
        self._decoded: dict[str, Section] = {}
        end = len(content) - _FOOTER_BYTES
        footer = content[max(0, end) :]
        size = int.from_bytes(footer[:_SIZE_BYTES], "big")
        if content[: len(_MAGIC)] != _MAGIC or not 0 < size <= end:
            raise IndexDamaged("it is no index, or of another version")
        text = content[end - size : end]
        if hashlib.sha256(text).digest() != footer[_SIZE_BYTES:]:
            raise IndexDamaged("its header was altered")
        self._header: Mapping[str, tuple[int, int, str]] = json.loads(text)

    @classmethod
    def open(cls, path: Path) -> LineIndex:
        """The index in a file."""
        try:
            with path.open("rb") as file:
                content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as exc:  # no file, or an empty one
            raise IndexDamaged(str(exc)) from exc
        derived_files.note_use(path)
        return cls(content)

    def section(self, name: str) -> Section:
        """The section called ``name``; empty where nothing was added to it."""
        if name not in self._decoded:
            section: Section = {}
            if name in self._header:
                place, size, digest = self._header[name]
                content = self._content[place : place + size]
                if hashlib.sha256(content).hexdigest() != digest:
                    raise IndexDamaged(f"section {name!r} was altered")
                section = json.loads(content)
            self._decoded[name] = section
        return self._decoded[name]

    def line(self, entry: list[Any]) -> bytes:
        """The line of an entry of a section."""
        place, size = entry[:2]
        try:
            return zlib.decompress(self._content[place : place + size])  # has a checksum itself
        except zlib.error as exc:
            raise IndexDamaged(f"a line was altered: {exc}") from exc
