"""One connection to a cache: transactions, write permission, and integrity.

A transaction does its whole work or, after an error, nothing. Every error of the database becomes a
StoreError of one line. Must not know the tables.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Connection, Engine
from sqlalchemy.engine import URL

from bricks.errors import CacheDamaged, StoreError
from bricks.store import engine as transactions
from bricks.store.integrity import integrity_problems, refuse_truncated
from bricks.store.migrations import prepare


class Database:
    """A database that holds a cache of the current schema; make one with ``open``.

    ``label`` is its name in messages.
    """

    def __init__(self, engine: Engine, label: str, unwritable: str | None = None) -> None:
        """Wrap an engine whose database is prepared; ``unwritable`` says why nothing is written."""
        self.label = label
        self._engine = engine
        self._unwritable = unwritable
        self._sound = False  # whether the whole file was checked, and no damage found

    @classmethod
    def open(cls, location: str | Path, *, busy_timeout_s: float, make: bool) -> Database:
        """Open the cache at ``location``; see :meth:`bricks.Store.open`."""
        url = transactions.locate(location)
        label = transactions.label_of(url)
        try:
            return cls(_prepared(url, label, busy_timeout_s, make), label)
        except StoreError as refused:
            frozen = transactions.frozen(url, refused)
            if frozen is None:
                raise
            url, unwritable = frozen
            return cls(_prepared(url, label, busy_timeout_s, make), label, unwritable)

    def close(self) -> None:
        """Close all connections."""
        with transactions.translated(self.label):
            self._engine.dispose()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A transaction that only reads: one consistent view."""
        with transactions.translated(self.label), transactions.reading(self._engine) as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction that writes; StoreError where nothing can be written."""
        if self._unwritable is not None:
            raise transactions.refusal(self.label, self._unwritable)
        with transactions.translated(self.label), transactions.writing(self._engine) as connection:
            yield connection

    def refuse_damage(self) -> None:
        """Raise CacheDamaged if the file is damaged; reads it whole, but a sound one only once.

        Writes of this and other processes go through SQLite's transactions, which leave it whole.
        """
        if self._sound:
            return
        with self.reading() as connection:
            for problem in integrity_problems(connection):
                raise CacheDamaged(
                    f"the cache {self.label} is damaged ({problem}): run 'bricks cache verify'"
                )
        self._sound = True


def _prepared(url: URL, label: str, busy_timeout_s: float, make: bool) -> Engine:
    refuse_truncated(url)
    engine = transactions.connect(url, busy_timeout_s)
    try:
        with transactions.translated(label):
            prepare(engine, label, busy_timeout_s, make)
    except BaseException:
        engine.dispose()
        raise
    return engine
