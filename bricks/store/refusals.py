"""What the cache says when its database refuses: a line for each error of SQLite.

Separate from the engine, so that reading a file needs no library but SQLite's driver. Must not know
the tables.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from bricks.errors import CacheDamaged, CacheLocked, DiskFull, StoreError, first_line

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
