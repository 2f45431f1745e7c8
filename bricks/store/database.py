"""One database that holds a cache: transactions, write permission, and integrity.

A transaction does its whole work or, after an error, nothing. Every error of the database becomes a
StoreError of one line. A cache in a file is read by SQLite's driver (:mod:`bricks.store.views`);
SQLAlchemy is imported when something is written, or for a server. Must not know the tables.
"""

from __future__ import annotations

import sqlite3
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING

from bricks.errors import CacheDamaged, StoreError
from bricks.store import layout
from bricks.store.database_file import (
    driver_errors,
    ends_in_header,
    file_of,
    integrity_problems,
    is_cut_off,
    is_url,
    refusal,
    refuse_truncated,
)
from bricks.store.views import CacheView, ConnectionView, SqliteFile

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from sqlalchemy import Connection, Engine
    from sqlalchemy.engine import URL


class Database:
    """A database that holds a cache of the current schema; make one with ``open``.

    ``label`` is its name in messages.
    """

    def __init__(self, location: str | Path, busy_timeout_s: float, *, make: bool) -> None:
        """Callers want ``open``."""
        self._location = location
        self._busy_timeout_s = busy_timeout_s
        self._make = make
        self._file: SqliteFile | None = None
        self._opened: Engine | None = None
        self._opening = Lock()
        self._unwritable: str | None = None  # why nothing is written
        self._sound = False  # whether the whole file was checked, and no damage found
        self.label = str(location)

    @classmethod
    def open(cls, location: str | Path, *, busy_timeout_s: float, make: bool) -> Database:
        """Open the cache at ``location``; see :meth:`bricks.Store.open`."""
        database = cls(location, busy_timeout_s, make=make)
        if not is_url(location) and _is_current(path := file_of(location), busy_timeout_s):
            database.label = str(path)
            database._file = SqliteFile(path, busy_timeout_s)
        else:
            database._engine()
        return database

    def _engine(self) -> Engine:
        """SQLAlchemy's engine of the database, which is made current or refused at first."""
        with self._opening:
            if self._opened is None:
                from bricks.store import engine as transactions

                url = transactions.locate(self._location)
                self.label = transactions.label_of(url)
                try:
                    self._opened = _prepared(url, self.label, self._busy_timeout_s, self._make)
                except StoreError as refused:
                    frozen = transactions.frozen(url, refused)
                    if frozen is None:
                        raise
                    url, self._unwritable = frozen
                    self._opened = _prepared(url, self.label, self._busy_timeout_s, self._make)
            return self._opened

    def close(self) -> None:
        """Close all connections."""
        if self._file is not None:
            self._file.close()
        if self._opened is not None:
            from bricks.store import engine as transactions

            with transactions.translated(self.label):
                self._opened.dispose()

    @contextmanager
    def viewing(self) -> Iterator[CacheView]:
        """A transaction that only reads, by statements of text: one consistent view."""
        if self._file is not None:
            with driver_errors(self.label), self._file.reading() as view:
                yield view
        else:
            with self.reading() as connection:
                yield ConnectionView(connection)

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A transaction of SQLAlchemy that only reads: one consistent view."""
        from bricks.store import engine as transactions

        engine = self._engine()
        with transactions.translated(self.label), transactions.reading(engine) as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction that writes; StoreError where nothing can be written."""
        from bricks.store import engine as transactions

        engine = self._engine()
        if self._unwritable is not None:
            raise refusal(self.label, self._unwritable)
        with transactions.translated(self.label), transactions.writing(engine) as connection:
            yield connection

    def refuse_damage(self) -> None:
        """Raise CacheDamaged if the file is damaged; reads it whole, but a sound one only once.

        Writes of this and other processes go through SQLite's transactions, which leave it whole.
        """
        if self._sound:
            return
        with self.viewing() as view:
            for problem in integrity_problems(view):
                raise CacheDamaged(
                    f"the cache {self.label} is damaged ({problem}): run 'bricks cache verify'"
                )
        self._sound = True


def _is_current(path: Path, busy_timeout_s: float) -> bool:
    """Whether a file is a cache of the current layout that its driver can read as it is.

    Anything else is opened by SQLAlchemy, which makes it current, or says what is wrong.
    """
    statement = f"SELECT value FROM {layout.INFO_TABLE} WHERE name = 'schema_version'"
    file = SqliteFile(path, busy_timeout_s)
    try:
        if not path.is_file():
            return False
        with file.reading() as view:
            if is_cut_off(view, path):
                return False
            return [row.value for row in view.rows(statement)] == [str(layout.SCHEMA_VERSION)]
    except (OSError, StoreError, sqlite3.Error, UnicodeDecodeError):
        return False
    finally:
        file.close()


def _prepared(url: URL, label: str, busy_timeout_s: float, make: bool) -> Engine:
    from bricks.store import engine as transactions
    from bricks.store.schema import prepare

    path = transactions.file_at(url)
    if path is not None and ends_in_header(path):  # SQLite takes such a file for an empty one
        refuse_truncated(path)
    engine = transactions.connect(url, busy_timeout_s)
    try:
        with transactions.translated(label):
            prepare(engine, label, busy_timeout_s, make)
        if path is not None:
            with transactions.translated(label), transactions.reading(engine) as connection:
                cut_off = is_cut_off(ConnectionView(connection), path)
            if cut_off:
                engine.dispose()
                refuse_truncated(path)
    except BaseException as error:
        engine.dispose()
        if isinstance(error, StoreError) and path is not None:
            refuse_truncated(path)
        raise
    return engine
