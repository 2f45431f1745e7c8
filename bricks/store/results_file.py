"""Results in a file that travels: JSON Lines, with a digest at the end, perhaps compressed.

The first line names the format, the last one gives the number of records before it and the SHA-256
of every byte before it; so a file that was cut off or changed is refused as a whole, before any
record of it is used. A file whose name ends in .gz or .xz is written compressed with gzip or xz,
which takes half of gzip's bytes; reading recognises them by the first bytes. docs/formats.md
describes the format for other programs. Must not know any table.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import lzma
import os
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

from bricks.errors import ModelError, StoreError, first_line, later_format

FORMAT, VERSION = "bricks-results", 1

# No line is longer: a brick's model holds no weights.
MAX_LINE_BYTES = 64 << 20

# The first bytes of compressed files, and the ends of their names.
_GZIP, _XZ = b"\x1f\x8b", b"\xfd7zXZ\x00"
GZIPPED, XZIPPED = ".gz", ".xz"

# What decompressing may take: a file can demand any amount. Written files need 9 MiB.
_MAX_XZ_BYTES = 64 << 20

# A record: its kind, and its facts as plain JSON.
Record = tuple[str, dict[str, Any]]

# The kinds of records in their order in a file: each refers to nothing that comes later.
KINDS = ("system", "network", "target", "brick", "plan", "measurement")


def write(path: Path, records: Iterable[Record], *, package: str) -> int:
    """Write a file, atomically; returns the number of records."""
    part = path.with_name(path.name + ".part")
    digest, count = hashlib.sha256(), 0

    def put(file: IO[bytes], kind: str, data: object) -> None:
        line = json.dumps({kind: data}, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        encoded = line.encode() + b"\n"
        digest.update(encoded)
        file.write(encoded)

    try:
        with part.open("wb") as plain, _written(path, plain) as file:
            put(file, "format", {"name": FORMAT, "version": VERSION, "package": package})
            for kind, data in records:
                put(file, kind, data)
                count += 1
            put(file, "end", {"records": count, "sha256": digest.hexdigest()})
        os.replace(part, path)
    except OSError as exc:
        raise StoreError(f"{path} cannot be written ({exc.strerror}): give another file") from exc
    finally:
        part.unlink(missing_ok=True)
    return count


@contextmanager
def _written(path: Path, plain: BinaryIO) -> Iterator[IO[bytes]]:
    """A file to write the lines at ``path`` to, compressed reproducibly by its suffix."""
    if path.suffix == XZIPPED:
        with lzma.LZMAFile(plain, "wb", preset=6) as packed:
            yield cast(IO[bytes], packed)
        return
    if path.suffix != GZIPPED:
        yield plain
        return
    with gzip.GzipFile("", "wb", 9, plain, mtime=0) as file:
        yield cast(IO[bytes], file)


@contextmanager
def uncompressed(plain: BinaryIO) -> Iterator[IO[bytes]]:
    """The lines of an open file, whether it is compressed or not."""
    begin = plain.read(len(_XZ))
    plain.seek(0)
    if begin == _XZ:
        yield cast(IO[bytes], io.BufferedReader(_Unpacked(plain), 1 << 20))
        return
    if not begin.startswith(_GZIP):
        yield plain
        return
    with gzip.GzipFile(fileobj=plain) as file:
        yield cast(IO[bytes], file)


class _Unpacked(io.RawIOBase):
    """The decompressed content of an xz file, in a limited amount of memory.

    Raises EOFError for one that is cut off. It can only be sought from its beginning.
    """

    def __init__(self, plain: BinaryIO) -> None:
        self._plain = plain
        self._unpacker = lzma.LZMADecompressor(lzma.FORMAT_XZ, _MAX_XZ_BYTES)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        """Only to its beginning."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Begin again."""
        if offset or whence:
            raise io.UnsupportedOperation("compressed data can only be read from the beginning")
        self._plain.seek(0)
        self._unpacker = lzma.LZMADecompressor(lzma.FORMAT_XZ, _MAX_XZ_BYTES)
        return 0

    def readinto(self, buffer: Any) -> int:
        while not self._unpacker.eof:
            packed = self._plain.read(1 << 16) if self._unpacker.needs_input else b""
            if not packed and self._unpacker.needs_input:
                raise EOFError("compressed data are cut off")
            unpacked = self._unpacker.decompress(packed, len(buffer))
            if unpacked:
                buffer[: len(unpacked)] = unpacked
                return len(unpacked)
        return 0


@contextmanager
def reading(path: Path) -> Iterator[Iterator[Record]]:
    """The records of a file that is whole; :class:`StoreError` for any other, before the first.

    An error that the caller raises because a record makes no sense becomes a StoreError too.
    """
    try:
        with path.open("rb") as plain, uncompressed(plain) as file:
            count = _checked(path, file)
            file.seek(0)
            yield map(_record, islice(lines(path, file), 1, count + 1))
    except EOFError as exc:
        raise StoreError(f"{path} is cut off, nothing was imported: export it again") from exc
    except (gzip.BadGzipFile, zlib.error, lzma.LZMAError) as exc:
        raise StoreError(
            f"{path} was changed after it was written, nothing was imported: export it again"
        ) from exc
    except OSError as exc:
        raise StoreError(f"{path} cannot be read ({exc.strerror}): give another file") from exc
    except (ModelError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as exc:
        problem = f"it lacks {exc}" if isinstance(exc, KeyError) else first_line(exc)
        raise StoreError(f"{path} is refused, nothing was imported: {problem}") from exc


def _checked(path: Path, file: IO[bytes]) -> int:
    """The number of records of a file that is as it was written."""
    every = lines(path, file)
    first = next(every, b"")
    check_format(path, first)
    digest, last, count = hashlib.sha256(first), b"", -1
    for line in every:
        digest.update(last)
        last, count = line, count + 1
    end = _end(last)
    if end is None:
        raise StoreError(f"{path} is cut off, nothing was imported: export it again")
    if end != (count, digest.hexdigest()):
        raise StoreError(
            f"{path} was changed after it was written, nothing was imported: export it again"
        )
    return count


def check_format(path: Path, line: bytes) -> None:
    """StoreError for a file of another format, or of a later version of this one."""
    try:
        stated = json.loads(line)["format"]
        name, version = stated["name"], int(stated["version"])
    except (ValueError, KeyError, TypeError):
        name, version = None, 0
    if name != FORMAT:
        raise StoreError(f"{path} holds no results: give a file that 'bricks cache export' wrote")
    if version > VERSION:
        raise StoreError(later_format(path, version, VERSION))


def _end(line: bytes) -> tuple[int, str] | None:
    """The number of records and the digest in a last line; None if it is another line."""
    try:
        end = json.loads(line)["end"]
        return int(end["records"]), str(end["sha256"])
    except (ValueError, KeyError, TypeError):
        return None


def lines(path: Path, file: IO[bytes]) -> Iterator[bytes]:
    """The lines of a file; StoreError for one that is too long to be a record."""
    while line := file.readline(MAX_LINE_BYTES + 1):
        if len(line) > MAX_LINE_BYTES:
            raise StoreError(
                f"{path} has a line of more than {MAX_LINE_BYTES >> 20} MiB: it holds no results"
            )
        yield line


def _record(line: bytes) -> Record:
    [(kind, data)] = json.loads(line).items()
    if not isinstance(data, dict):
        raise ValueError(f"a record of kind {kind} is no JSON object")
    return kind, data
