"""Reading a cache: statements as text, run by SQLite's driver itself, or by SQLAlchemy on a server.

Most answers are read from a cache in a file, and need no more than the driver: importing SQLAlchemy
takes as long as such an answer. Writing, locking and changing the layout are SQLAlchemy's
(:mod:`bricks.store.engine`). Must not know the tables.
"""

from __future__ import annotations

import sqlite3
from collections import namedtuple
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import lru_cache
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from pathlib import Path

    from sqlalchemy import Connection

Key = TypeVar("Key", str, int)

# Statements with more bound values than this are cut into several; databases have limits.
CHUNK = 500

BUSY_TIMEOUT_S = 30.0

# A row: the columns of a statement are its attributes.
Row = Any


class CacheView(Protocol):
    """One consistent view of a cache; see :func:`listed` for statements about many keys."""

    @property
    def in_file(self) -> bool:
        """Whether the cache is a file of SQLite."""

    def rows(self, statement: str, values: Mapping[str, Any] | None = None) -> Iterator[Row]:
        """The rows of ``statement``, in which ``:name`` stands for a value.

        Errors are those of SQLite's driver for a file, of SQLAlchemy for a server.
        """


def chunks(keys: Iterable[Key]) -> Iterator[list[Key]]:
    """The distinct ``keys``, sorted, in lists that fit into one statement.

    Sorted, because two processes that lock rows in the same order cannot deadlock.
    """
    distinct = sorted(set(keys))
    for start in range(0, len(distinct), CHUNK):
        yield distinct[start : start + CHUNK]


def listed(keys: Sequence[Key]) -> tuple[str, dict[str, Key]]:
    """The list that stands after ``IN`` in a statement, and the values of its names."""
    values = {f"k{number}": key for number, key in enumerate(keys)}
    return f"({', '.join(map(':{}'.format, values))})", values


class ConnectionView:
    """Statements within a transaction of SQLAlchemy."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @property
    def in_file(self) -> bool:
        """Whether the cache is a file of SQLite."""
        return self._connection.dialect.name == "sqlite"

    def rows(self, statement: str, values: Mapping[str, Any] | None = None) -> Iterator[Row]:
        """See :class:`CacheView`."""
        from sqlalchemy import text
        from sqlalchemy.exc import DBAPIError

        options = {"yield_per": CHUNK}  # models may be large: they are not read all at once
        try:
            result = self._connection.execute(text(statement), values, execution_options=options)
            with closing(result):
                yield from result
        except DBAPIError as exc:
            if self.in_file and exc.orig is not None:  # as SQLite's driver itself raises it
                raise exc.orig from exc
            raise


class _DriverView:
    """Statements within a transaction of SQLite's driver."""

    in_file = True

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def rows(self, statement: str, values: Mapping[str, Any] | None = None) -> Iterator[Row]:
        return self._connection.execute(statement, values or {})


class SqliteFile:
    """A database file that is only read; each thread that reads at the moment has a connection."""

    def __init__(self, path: Path, busy_timeout_s: float) -> None:
        self._path = path
        self._busy_timeout_s = busy_timeout_s
        self._idle = SimpleQueue[sqlite3.Connection]()

    @contextmanager
    def reading(self) -> Iterator[CacheView]:
        """One consistent view."""
        try:
            connection = self._idle.get_nowait()
        except Empty:
            connection = sqlite3.connect(self._path, check_same_thread=False)
            configure(connection, self._busy_timeout_s)
            connection.row_factory = _row
        try:
            connection.execute("BEGIN")
            yield _DriverView(connection)
            connection.execute("ROLLBACK")  # nothing was written
        except BaseException:
            connection.close()
            raise
        self._idle.put(connection)

    def close(self) -> None:
        """Close the connections."""
        while True:
            try:
                self._idle.get_nowait().close()
            except Empty:
                return


def configure(connection: sqlite3.Connection, busy_timeout_s: float) -> None:
    """Set up a connection of SQLite's driver as this package needs it."""
    # The driver's own idea of when a transaction begins is switched off.
    connection.isolation_level = None
    for pragma in (
        f"busy_timeout = {int(busy_timeout_s * 1000)}",
        "foreign_keys = ON",
        "synchronous = NORMAL",
        "cell_size_check = ON",  # finds damage when a page is read
    ):
        connection.execute(f"PRAGMA {pragma}").close()
    # Text that is not UTF-8 any more is found where its row is checked, by name.
    connection.text_factory = lambda text: text.decode(errors="replace")


def _row(cursor: sqlite3.Cursor, values: tuple[Any, ...]) -> Row:
    names = tuple(column[0] for column in cursor.description)
    return _row_type(names)._make(values)


@lru_cache
def _row_type(names: tuple[str, ...]) -> Any:
    # Names of pragmas' columns and of expressions need not be names of attributes.
    return namedtuple("Row", names, rename=True)
