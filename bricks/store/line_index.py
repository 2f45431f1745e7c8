"""An index of a published file: its lines, each compressed by itself and found by key.

A published file is one compressed stream, so that reading a line of it unpacks all before it. Its
index is made when the file is first read, and kept as a derived file under the file's digest. It is
never believed: each part has a checksum, and callers rebuild it after :class:`IndexDamaged`.
Must not know what lines mean.

    magic · lines · sections · header · size and SHA-256 of the header

A section is a JSON object from keys to lists that begin with the place and size of a line; the
header is a JSON object with the place, size and SHA-256 of each section.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import zlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, BinaryIO

from bricks.system import derived_files

if TYPE_CHECKING:
    from pathlib import Path

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
        self._header: Mapping[str, tuple[int, int, str]] = self._read_header()

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

    def _read_header(self) -> Mapping[str, tuple[int, int, str]]:
        end = len(self._content) - _FOOTER_BYTES
        footer = self._content[max(0, end) :]
        size = int.from_bytes(footer[:_SIZE_BYTES], "big")
        if self._content[: len(_MAGIC)] != _MAGIC or not 0 < size <= end:
            raise IndexDamaged("it is no index, or of another version")
        content = self._content[end - size : end]
        if hashlib.sha256(content).digest() != footer[_SIZE_BYTES:]:
            raise IndexDamaged("its header was altered")
        header: Mapping[str, tuple[int, int, str]] = json.loads(content)
        return header

    def section(self, name: str) -> Section:
        """The section called ``name``; empty where nothing was added to it."""
        if name not in self._decoded:
            self._decoded[name] = self._read_section(name)
        return self._decoded[name]

    def _read_section(self, name: str) -> Section:
        if name not in self._header:
            return {}
        place, size, digest = self._header[name]
        content = self._content[place : place + size]
        if hashlib.sha256(content).hexdigest() != digest:
            raise IndexDamaged(f"section {name!r} was altered")
        section: Section = json.loads(content)
        return section

    def line(self, entry: list[Any]) -> bytes:
        """The line of an entry of a section."""
        place, size = entry[:2]
        try:
            return zlib.decompress(self._content[place : place + size])  # has a checksum itself
        except zlib.error as exc:
            raise IndexDamaged(f"a line was altered: {exc}") from exc
