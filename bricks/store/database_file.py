"""The database file of a cache: where it lies, whether it is whole, what SQLite's refusals mean.

A cache lies in a folder with a file of SQLite, or at the URL of a database; a database server has
no file to check. SQLite keeps no checksums: it notices contradictions in its own structure, and a
file that ends too early. ``audit.py`` checks the content of rows. Each error of SQLite becomes a
line that says what to do; separate from the engine, so that reading a file needs no library but
SQLite's driver. Must not know the tables.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from bricks.errors import CacheDamaged, CacheLocked, DiskFull, StoreError, first_line

if TYPE_CHECKING:
    from bricks.store.views import CacheView

FILE_NAME = "bricks.sqlite"


def is_url(location: str | Path) -> bool:
    """Whether a cache is named by the URL of its database."""
    return isinstance(location, str) and "://" in location


def file_of(location: str | Path) -> Path:
    """The database file in a folder."""
    return Path(os.path.expanduser(location)) / FILE_NAME  # pathlib's own raises for unknown users


def exists(location: str | Path) -> bool:
    """Whether a folder has a database file; creates nothing. Always true for URLs."""
    if is_url(location):
        return True
    try:
        return file_of(location).exists()
    except OSError:  # no permission, for example: opening it reports the error
        return True


# No more lines of each table than this: one damaged page causes dozens.
_MAX_LINES = 5

_HEADER_BYTES = 100
_TABLES = "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"
_HEADING = "*** in database main ***"

# What reading a damaged database raises; the last where an error of the driver quotes damaged text.
UNREADABLE = (sqlite3.Error, UnicodeDecodeError)


def ends_in_header(path: Path) -> bool:
    """Whether the database file is not empty, and shorter than its header; does not open it."""
    try:
        return 0 < path.stat().st_size < _HEADER_BYTES
    except OSError:  # opening it reports the error
        return False


def is_cut_off(view: CacheView, path: Path) -> bool:
    """Whether the database file seems shorter than SQLite says; does not open it."""
    log = Path(f"{path}-wal")
    if _size_bytes(log):  # which may hold pages that are still missing in the file
        return False
    (count,), (page_bytes,) = (next(view.rows(f"PRAGMA page_{name}")) for name in ("count", "size"))
    return bool(path.stat().st_size < count * page_bytes and not _size_bytes(log))


def refuse_truncated(path: Path) -> None:
    """Raise CacheDamaged if the database file is shorter than its own header says.

    For a file that SQLite has refused. It must not be read while this process has it open in
    SQLite: closing it would drop the locks that keep other processes from removing its log.
    """
    log = Path(f"{path}-wal")
    try:
        # While there is a log, it may hold pages that are still missing in the file.
        if _size_bytes(log):
            return
        with path.open("rb") as file:
            header = file.read(_HEADER_BYTES)
        size, expected = path.stat().st_size, _expected_bytes(header)
        if size >= expected or _size_bytes(log):
            return
    except OSError:  # opening it reports the error
        return
    of = f"of {expected} bytes" if size >= _HEADER_BYTES else "bytes, within its header"
    reason = f"the file is damaged: it ends after {size} {of}"
    raise CacheDamaged(f"the cache {path} {DAMAGED.replace('the file is damaged', reason)}")


def _size_bytes(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _expected_bytes(header: bytes) -> int:
    """The length in bytes of a database file by its header; 0 if the header does not have it."""
    if not header or not b"SQLite format 3\0".startswith(header[:16]):
        return 0
    if len(header) < _HEADER_BYTES:
        return _HEADER_BYTES
    page_bytes = int.from_bytes(header[16:18], "big")
    # The count is valid only if the last to write it knew of it.
    count = int.from_bytes(header[28:32], "big") if header[24:28] == header[92:96] else 0
    return count * (65536 if page_bytes == 1 else page_bytes)


def integrity_problems(view: CacheView) -> Iterator[str]:
    """The problems that the database itself finds in its file; one line each."""
    if not view.in_file:
        return
    if whole := list(_lines(view, "PRAGMA integrity_check")):
        yield from _of_tables(view) or (f"database: {line}" for line in whole[:_MAX_LINES])
    try:
        for row in view.rows("PRAGMA foreign_key_check"):
            yield f"database: row {row[1]} of {row[0]} refers to a missing row of {row[2]}"
    except UNREADABLE:
        return  # the table that cannot be read was named above


def _of_tables(view: CacheView) -> list[str]:
    """The problems of each table; none where the damage is outside the tables."""
    problems: list[str] = []
    try:
        names = [row.name for row in view.rows(_TABLES)]
    except UNREADABLE:
        return problems
    for name in names:
        lines = list(_lines(view, f'PRAGMA integrity_check("{name}")'))
        if len(lines) > _MAX_LINES:
            lines[_MAX_LINES:] = [f"and {len(lines) - _MAX_LINES} more"]
        if lines:
            lines.append(_readable(view, name))
        problems += [f"database: table {name}: {line}" for line in lines]
    return problems


def _lines(view: CacheView, check: str) -> Iterator[str]:
    """The problems that a check reports, and the error that ends it, if one does."""
    try:
        for row in view.rows(check):
            lines = [line for line in str(row[0]).splitlines() if line not in ("ok", _HEADING)]
            yield from lines
    except UNREADABLE as exc:
        yield first_line(exc)


def _readable(view: CacheView, table: str) -> str:
    """The number of readable rows of a damaged table, in words."""
    count = 0
    try:
        for _ in view.rows(f'SELECT * FROM "{table}" NOT INDEXED'):
            count += 1
    except UNREADABLE:
        return f"only its first {count} rows can be read"
    return f"{count} rows can be read"


def as_far_as_readable(table: str, problems: Iterator[str]) -> Iterator[str]:
    """``problems``, and a last line if the table cannot be read to its end."""
    try:
        yield from problems
    except UNREADABLE as exc:
        yield f"table {table}: it cannot be read to its end ({first_line(exc)})"


MOVE_AWAY = "move it away or give another --cache"
DAMAGED = f"is not a bricks cache any more (the file is damaged): {MOVE_AWAY}"
FULL = "cannot be written, the disk is full: free some space and run again"
LOCKED = "is locked by another process: wait for it to end, or give another --cache"

# What callers may want to catch by itself; everything else is a StoreError.
_TYPES: dict[str, type[StoreError]] = {
    DAMAGED: CacheDamaged,
    FULL: DiskFull,
    LOCKED: CacheLocked,
}
# Extended codes are listed in addition to primary ones if they are more specific.
_TEXTS = {
    "SQLITE_NOTADB": f"is not a bricks cache (not a database): {MOVE_AWAY}",
    "SQLITE_CORRUPT": DAMAGED,
    "SQLITE_FULL": FULL,
    "SQLITE_IOERR_SHMSIZE": FULL,  # no room for the index of the write-ahead log
    "SQLITE_IOERR_WRITE": (
        "cannot be written (input/output error): check the disk, and whether a quota or a limit "
        "to the size of files is reached"
    ),
    "SQLITE_BUSY": LOCKED,
    "SQLITE_LOCKED": LOCKED,
    "SQLITE_READONLY": "cannot be written: check its permissions, or give another --cache",
    "SQLITE_CANTOPEN": "cannot be opened: check its permissions, or give another --cache",
    "SQLITE_PERM": "cannot be opened: check its permissions, or give another --cache",
    "SQLITE_IOERR": "cannot be read or written (input/output error): check the disk",
}
READONLY = _TEXTS["SQLITE_READONLY"]


def refusal(label: str, text: str) -> StoreError:
    """The error ``text`` about the cache ``label``, of the type in ``_TYPES`` for this text."""
    return _TYPES.get(text, StoreError)(f"the cache {label} {text}")


def sqlite_name(exc: BaseException | None) -> str:
    """SQLite's name of an error of its driver; empty for other errors."""
    return getattr(exc, "sqlite_errorname", None) or ""


def sqlite_text(name: str) -> str | None:
    """The text about SQLite's error ``name``; None if there is none."""
    # Extended codes (SQLITE_BUSY_SNAPSHOT) refine a primary one (SQLITE_BUSY).
    for known in (name, "_".join(name.split("_")[:2])):
        if known in _TEXTS:
            return _TEXTS[known]
    return None


@contextmanager
def driver_errors(label: str) -> Iterator[None]:
    """Turn errors of SQLite's driver into a StoreError of one line."""
    try:
        yield
    except sqlite3.Error as exc:
        text = sqlite_text(sqlite_name(exc))
        raise refusal(label, text or f"cannot be read or written: {first_line(exc)}") from exc
    except UnicodeDecodeError as exc:  # the driver's, where an error quotes what is damaged
        raise refusal(label, DAMAGED) from exc
