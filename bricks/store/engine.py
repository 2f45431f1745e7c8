"""Connections and transactions, and the one place where database errors become StoreError.

Only this module knows what differs between database products: pragmas, locks, file sizes, the
wording of errors. The other modules write SQL that SQLite and PostgreSQL both take. Must not know
the tables.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from sqlalchemy import Connection, Engine, Table, create_engine, event, func, select
from sqlalchemy.dialects import sqlite
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import (
    ArgumentError,
    DBAPIError,
    IntegrityError,
    OperationalError,
    SQLAlchemyError,
)

from bricks.errors import StoreError, first_line
from bricks.store.database_file import (
    DAMAGED,
    FULL,
    LOCKED,
    READONLY,
    file_of,
    is_url,
    refusal,
    sqlite_name,
    sqlite_text,
)
from bricks.store.views import configure

if TYPE_CHECKING:
    from sqlalchemy.dialects import postgresql

_logger = logging.getLogger(__name__)

# A writer that waits for so many seconds says so.
MOMENT_S = 1.0

# An arbitrary number: PostgreSQL's advisory lock of processes that change the schema.
_SCHEMA_LOCK = 0x627269636B73

_AS_URL = "write it as postgresql+psycopg://user:password@host:port/database"

# Seconds until a server that does not answer counts as out of reach, unless the URL says otherwise.
_CONNECT_TIMEOUT_S = 10

# By the SQLSTATE that the server sends, or by its first two characters, which are its class.
_POSTGRESQL_ERRORS = {
    "42501": "cannot be used by this user: let somebody grant the right to create and write tables",
    "25006": "cannot be written, the server only lets read: give the server that takes writes",
    "53100": FULL,
    "53300": "cannot be reached, the server has too many connections: try again later",
    "55P03": LOCKED,
    "40": "was written by somebody else at the same moment: run the same command again",
    "57": "was ended by the server: run the same command again to go on",
}


def locate(location: str | Path) -> URL:
    """The database URL of ``location``; the folder of a path is created."""
    if is_url(location):
        return _url(str(location))
    file = file_of(location)
    folder = file.parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        raise StoreError(
            f"the cache folder {folder} cannot be created ({exc.strerror}): give another --cache"
        ) from exc
    return URL.create("sqlite", database=str(file))


def _url(location: str) -> URL:
    # Not shown whole: it may contain a password, which cannot be removed from an invalid URL.
    scheme = location.partition("://")[0]
    try:
        url = make_url(location)
    except (ArgumentError, ValueError) as exc:
        raise StoreError(f"the cache URL {scheme}://… cannot be read: {_AS_URL}") from exc
    if scheme in ("postgresql", "postgres"):
        return url.set(drivername="postgresql+psycopg")
    if scheme not in ("sqlite", "postgresql+psycopg"):
        raise StoreError(f"a cache cannot be kept on {scheme}://…: give a folder, or {_AS_URL}")
    return url


def file_at(url: URL) -> Path | None:
    """The database file of ``url`` that may be written; None if there is none."""
    if url.get_backend_name() != "sqlite" or not url.database or url.query:
        return None
    return Path(url.database)


def label_of(url: URL) -> str:
    """The database's name in messages: its file, or its URL without secrets."""
    if url.get_backend_name() == "sqlite" and url.database:
        return url.database
    # Passwords may be among the options, too.
    return url.set(query={}).render_as_string(hide_password=True)


def connect(url: URL, busy_timeout_s: float) -> Engine:
    """An engine that begins reading and writing transactions as this package needs."""
    if url.get_backend_name() == "postgresql":
        return _connect_postgresql(url, busy_timeout_s)
    label = label_of(url)
    try:
        engine = create_engine(url)
    except (ArgumentError, ImportError) as exc:
        raise StoreError(f"the cache {label}: {first_line(exc)}") from exc

    @event.listens_for(engine, "connect")
    def on_connect(connection: Any, _record: object) -> None:
        configure(connection, busy_timeout_s)

    @event.listens_for(engine, "begin")
    def on_begin(connection: Connection) -> None:
        # A transaction that reads first and writes later could not wait for another writer:
        # SQLite would refuse the upgrade at once. So writers take the lock when they begin.
        if connection.get_execution_options().get("bricks_writes", False):
            _begin_writing(connection, label, busy_timeout_s)
        else:
            connection.exec_driver_sql("BEGIN")

    return engine


def _connect_postgresql(url: URL, busy_timeout_s: float) -> Engine:
    usual = {"connect_timeout": _CONNECT_TIMEOUT_S, "application_name": "bricks"}
    # Connections lie idle while bricks are timed: one that broke meanwhile is replaced.
    options = {name: value for name, value in usual.items() if name not in url.query}
    try:
        engine = create_engine(url, pool_pre_ping=True, connect_args=options)
    except ImportError as exc:
        raise StoreError(
            f"the cache {label_of(url)} needs a driver that is not installed: "
            "pip install 'onnx-bricks[postgresql]'"
        ) from exc

    @event.listens_for(engine, "begin")
    def on_begin(connection: Connection) -> None:
        if connection.get_execution_options().get("bricks_writes", False):
            connection.exec_driver_sql(f"SET LOCAL lock_timeout = {int(busy_timeout_s * 1000)}")
        else:  # all of a transaction sees one moment, as with SQLite
            connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")

    return engine


def _begin_writing(connection: Connection, label: str, busy_timeout_s: float) -> None:
    """Take the lock of writers, within ``busy_timeout_s``; say so if another process has it."""
    driver = connection.connection.driver_connection
    assert driver is not None, "the connection is open"
    deadline = time.monotonic() + busy_timeout_s
    moment_s, said = min(MOMENT_S, busy_timeout_s), False
    while True:
        driver.execute(f"PRAGMA busy_timeout = {int(moment_s * 1000)}").close()
        try:
            driver.execute("BEGIN IMMEDIATE").close()
            return
        except sqlite3.OperationalError as exc:
            moment_s = deadline - time.monotonic()
            if not sqlite_name(exc).startswith("SQLITE_BUSY") or moment_s <= 0 or said:
                raise
            _logger.warning("waiting for another process, which is writing to the cache %s", label)
            said = True
        finally:
            driver.execute(f"PRAGMA busy_timeout = {int(busy_timeout_s * 1000)}").close()


def frozen(url: URL, refused: StoreError) -> tuple[URL, str] | None:
    """A read-only URL of a cache that ``refused`` to open, and the error text of writes.

    None if there is no such URL. SQLite creates files next to the database even to read a
    write-ahead log; in a folder without write permission, the database is opened as immutable.
    Raises StoreError if a log with newer data lies next to it.
    """
    name = sqlite_name(refused.__cause__ and origin(refused.__cause__))
    unwritable = name.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM"))
    path = file_at(url)
    if path is None:
        return None
    if not (unwritable or name == "SQLITE_IOERR_SHMSIZE") or not os.access(path, os.R_OK):
        return None
    if not path.is_file():
        return None
    log = Path(f"{path}-wal")
    if log.exists() and log.stat().st_size:
        raise StoreError(
            f"the cache {path} cannot be read where nothing can be written, for {log.name} holds "
            "what is newest: copy the folder to where there is room, and give the copy as --cache"
        ) from refused
    text = READONLY if unwritable else FULL
    query = {"immutable": "1", "uri": "true"}
    return URL.create("sqlite", database=f"file:{quote(str(path))}", query=query), text


def prefer_write_ahead_log(engine: Engine, busy_timeout_s: float) -> None:
    """Let readers of a new SQLite file go on while a process writes; does nothing for servers.

    SQLite keeps the mode in the file, so one call is enough, when the file is known to be a cache.
    """
    if engine.dialect.name != "sqlite":
        return
    deadline = time.monotonic() + busy_timeout_s
    connection = engine.raw_connection()
    try:
        while True:
            try:
                connection.cursor().execute("PRAGMA journal_mode = WAL").close()
                return
            except sqlite3.OperationalError as exc:
                # SQLite's own busy timeout does not cover this switch: two processes that make
                # a cache at the same moment would see each other's lock as an error at once.
                if exc.sqlite_errorname != "SQLITE_BUSY" or time.monotonic() > deadline:
                    raise
            time.sleep(0.01)
    finally:
        connection.close()


def lock_schema(connection: Connection) -> None:
    """Let one process at a time change the schema; SQLite admits one writer anyway."""
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_SCHEMA_LOCK})")


def lock_tables(connection: Connection, tables: Iterable[Table]) -> None:
    """Let no other transaction write to ``tables`` until the end; SQLite admits one writer anyway.

    The tables are locked in the order given, which is that of other transactions' writes.
    """
    if connection.dialect.name == "postgresql":
        for table in tables:
            connection.exec_driver_sql(f"LOCK TABLE {table.name} IN SHARE ROW EXCLUSIVE MODE")


@contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """A transaction that only reads: one consistent view."""
    with engine.connect() as connection, connection.begin():
        yield connection


@contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """A transaction that writes everything or, after an exception, nothing."""
    with engine.connect() as plain:
        connection = plain.execution_options(bricks_writes=True)
        with connection.begin():
            yield connection


@contextmanager
def translated(label: str) -> Iterator[None]:
    """Turn the errors of the database and its driver into a StoreError of one line."""
    try:
        yield
    except (SQLAlchemyError, sqlite3.Error) as exc:
        raise refusal(label, _explain(exc)) from exc
    except UnicodeDecodeError as exc:  # the driver's, where an error quotes what is damaged
        raise refusal(label, DAMAGED) from exc


def origin(exc: BaseException) -> BaseException:
    """The driver's own error."""
    return exc.orig if isinstance(exc, DBAPIError) and exc.orig is not None else exc


def _explain(exc: Exception) -> str:
    name = sqlite_name(origin(exc))
    if (known_text := sqlite_text(name)) is not None:
        return known_text
    state = getattr(origin(exc), "sqlstate", None) or ""
    for known in (state, state[:2]):
        if known in _POSTGRESQL_ERRORS:
            return _POSTGRESQL_ERRORS[known]
    if isinstance(exc, OperationalError) and not name and not state:
        return f"cannot be reached: {first_line(origin(exc))}"
    if isinstance(exc, IntegrityError):
        return f"lacks what a new row refers to, was its target saved? ({first_line(origin(exc))})"
    return f"cannot be read or written: {first_line(origin(exc))}"


def insert_or_ignore(connection: Connection, table: Table, rows: list[dict[str, Any]]) -> None:
    """Insert ``rows``; existing rows with the same unique columns are left unchanged."""
    if rows:
        connection.execute(_insert(connection, table).on_conflict_do_nothing(), rows)


def insert_or_replace(
    connection: Connection, table: Table, row: dict[str, Any], unique: Iterable[str]
) -> None:
    """Insert ``row``, or overwrite the one that has the same values in the ``unique`` columns."""
    unique = list(unique)
    statement = _insert(connection, table).values(row)
    changes = {name: statement.excluded[name] for name in row if name not in unique}
    connection.execute(statement.on_conflict_do_update(index_elements=unique, set_=changes))


def _insert(connection: Connection, table: Table) -> sqlite.Insert | postgresql.Insert:
    """An INSERT with ON CONFLICT, which SQLAlchemy has separately for each dialect."""
    if connection.dialect.name == "postgresql":
        from sqlalchemy.dialects import postgresql  # at use: few caches are on a server

        return postgresql.insert(table)
    return sqlite.insert(table)


def row_count(connection: Connection, table: Table) -> int:
    """The number of rows of a table."""
    return int(connection.execute(select(func.count()).select_from(table)).scalar_one())


def size_bytes(connection: Connection) -> int:
    """The size of the database in bytes, including its write-ahead log."""
    if connection.dialect.name == "postgresql":
        query = "SELECT pg_database_size(current_database())"
        return int(connection.exec_driver_sql(query).scalar_one())
    names = [row[2] for row in connection.exec_driver_sql("PRAGMA database_list") if row[2]]
    files = [Path(name + suffix) for name in names for suffix in ("", "-wal")]
    return sum(f.stat().st_size for f in files if f.is_file())
