"""The tables of the cache, and the migrations of older ones; ``layout.py`` has their version.

The layout is a format: other versions of the package, and other programs, read it. It is here by
itself so that it can be read as a whole.

JSON is kept as text that Python writes and reads: the same bytes on every database, and the order
of keys (which is meaning in a brick's inputs) survives. Nothing is pickled.

An empty database gets the current tables. An older cache is migrated, step by step, in one
transaction: it is either all migrated or untouched. A newer cache, or a database that is none of
ours, is refused and left unchanged. Must not know how the tables are queried.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Double,
    Engine,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Row,
    String,
    Table,
    Text,
    UniqueConstraint,
    inspect,
    select,
    text,
    update,
)
from sqlalchemy.types import TypeEngine

from bricks.errors import StoreError
from bricks.store import layout
from bricks.store.engine import lock_schema, prefer_write_ahead_log, reading, writing
from bricks.store.layout import INFO_TABLE
from bricks.store.rows import checksum

metadata = MetaData()


def _name(length: int) -> TypeEngine[str]:
    """Text that is compared byte by byte, as SQLite does, and not as some language sorts."""
    return String(length).with_variant(String(length, collation="C"), "postgresql")


cache_info = Table(
    INFO_TABLE,
    metadata,
    Column("name", _name(64), primary_key=True),
    Column("value", Text, nullable=False),
)

systems = Table(
    "systems",
    metadata,
    Column("key", _name(64), primary_key=True),
    Column("name", Text, nullable=False),  # after its processor
    Column("identity", Text, nullable=False),  # JSON object
    Column("recorded", Text, nullable=False),  # JSON object
    Column("given_name", Text),  # by a person; null: none was
    Column("price_per_hour", Double),  # of one host, in the user's currency; null: not known
)

# Networks whose collectives are measured: a target's runtime names one by its key.
networks = Table(
    "networks",
    metadata,
    Column("key", _name(64), primary_key=True),
    Column("name", Text, nullable=False),
    Column("identity", Text, nullable=False),  # JSON object
    Column("recorded", Text, nullable=False),  # JSON object
)

targets = Table(
    "targets",
    metadata,
    Column("key", _name(64), primary_key=True),
    Column("system_key", ForeignKey(systems.c.key), nullable=False),
    Column("runtime", Text, nullable=False),  # JSON object
)

bricks = Table(
    "bricks",
    metadata,
    Column("key", _name(128), primary_key=True),
    Column("model", LargeBinary, nullable=False),  # canonical ModelProto without weights
    Column("inputs", Text, nullable=False),  # JSON [[name, [dtype, shape]], …] in canonical order
    Column("weights", Text, nullable=False),
    Column("outputs", Text, nullable=False),
    Column("operators", Text, nullable=False),  # JSON list of names
    Column("flops", BigInteger),  # null: not known
    Column("examples", Text, nullable=False),  # JSON {input: [values]} of inputs that steer shapes
    Column("weight_bytes", BigInteger),  # null: not known (weights of type STRING)
    Column("checksum", BigInteger),  # see rows.py; null: not known
)

# What a runtime executes depends on the target, so a plan belongs to one.
plans = Table(
    "plans",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("digest", _name(128), nullable=False),
    Column("granularity", _name(64), nullable=False),
    Column("target_key", ForeignKey(targets.c.key), nullable=False),
    Column("plan", Text, nullable=False),  # JSON, see Plan.to_json
    Column("wall_s", Double, nullable=False),
    Column("checksum", BigInteger),  # see rows.py; null: not known
    UniqueConstraint("digest", "granularity", "target_key", name="one_plan_per_target"),
)

# brick_key is no foreign key: whole models (m1-…), probes (p1-…) and collectives (c1-…) are
# measured too.
measurements = Table(
    "measurements",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("target_key", ForeignKey(targets.c.key), nullable=False),
    Column("brick_key", _name(128), nullable=False),
    Column("protocol", Integer, nullable=False),
    Column("state", _name(8), nullable=False),
    Column("reason", Text),  # why it failed; null otherwise
    Column("wall_s", Double, nullable=False),
    Column("round_count", Integer, nullable=False),
    # The claim; owner_token is NOBODY when there is none. The lease ends at that Unix time, and,
    # for processes of the same host, at that time of the clock that runs since it started.
    Column("owner_token", _name(64), nullable=False),
    Column("owner_host", Text, nullable=False),
    Column("owner_pid", BigInteger, nullable=False),
    Column("owner_started_s", Double, nullable=False),  # seconds after the host started
    Column("lease_until_s", Double, nullable=False),
    Column("lease_until_monotonic_s", Double, nullable=False),
    UniqueConstraint("target_key", "brick_key", "protocol", name="measured_once_per_target"),
    Index("measurements_by_owner", "owner_token"),
)

# One row per round, so that a walk over many bricks only ever adds rows.
rounds = Table(
    "rounds",
    metadata,
    Column(
        "measurement_id",
        ForeignKey(measurements.c.id, ondelete="CASCADE"),
        primary_key=True,
        autoincrement=False,
    ),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("samples", Text, nullable=False),  # JSON list of raw samples, see records.py
    Column("sample_count", Integer, nullable=False),
    Column("host", Text),  # JSON, see HostConditions.to_json; null: not known
    Column("waited_share", Double),  # of the round's time; null: not known
    Column("device_state", Text),  # JSON, see AcceleratorState.to_json; null: not known
    Column("checksum", BigInteger),  # see rows.py; null: not known
)

# The conditions that a host was watched in, one row for a second: estimates are for usual ones.
watched = Table(
    "watched",
    metadata,
    Column("target_key", ForeignKey(targets.c.key), primary_key=True),
    Column("taken_s", BigInteger, primary_key=True, autoincrement=False),  # Unix time
    Column("host", Text, nullable=False),  # JSON, see HostConditions.to_json
)


Migration = Callable[[Connection], None]


def _rounds_get_conditions(connection: Connection) -> None:
    for column in ("reference_s", "waited_share"):
        connection.execute(text(f"ALTER TABLE rounds ADD COLUMN {column} DOUBLE PRECISION"))


def _rounds_get_an_end(connection: Connection) -> None:
    connection.execute(text("ALTER TABLE rounds ADD COLUMN reference_end_s DOUBLE PRECISION"))
    # Plans now hold which weights and which memory occurrences share: models are decomposed again.
    connection.execute(text("DELETE FROM plans"))


def _rows_get_checksums(connection: Connection) -> None:
    for column in (
        "round_count INTEGER NOT NULL DEFAULT 0",
        "lease_until_monotonic_s DOUBLE PRECISION NOT NULL DEFAULT 0",
    ):
        connection.execute(text(f"ALTER TABLE measurements ADD COLUMN {column}"))
    # Plans now hold assumptions, and the values that steer bricks: models are decomposed again.
    connection.execute(text("DELETE FROM plans"))
    count = "SELECT count(*) FROM rounds WHERE measurement_id = measurements.id"
    connection.execute(text(f"UPDATE measurements SET round_count = ({count})"))
    for table, key, columns in (
        ("bricks", "key", "key model inputs weights outputs operators flops examples"),
        ("plans", "id", "plan wall_s"),
        ("rounds", "measurement_id number", "samples reference_s waited_share reference_end_s"),
    ):
        connection.execute(text(f"ALTER TABLE {table} ADD COLUMN checksum BIGINT"))
        keys, names = key.split(), columns.split()
        rows = connection.execute(text(f"SELECT {', '.join(keys + names)} FROM {table}")).all()
        at = " AND ".join(f"{name} = :{name}" for name in keys)
        update = text(f"UPDATE {table} SET checksum = :checksum WHERE {at}")
        changes = [
            {**dict(zip(keys, row, strict=False)), "checksum": checksum(*row[len(keys) :])}
            for row in rows
        ]
        if changes:
            connection.execute(update, changes)


def _systems_get_names_and_prices(connection: Connection) -> None:
    for column in ("given_name TEXT", "price_per_hour DOUBLE PRECISION"):
        connection.execute(text(f"ALTER TABLE systems ADD COLUMN {column}"))


def _networks_are_kept(connection: Connection) -> None:
    collated = ' COLLATE "C"' if connection.dialect.name == "postgresql" else ""
    connection.execute(
        text(
            f"CREATE TABLE networks (key VARCHAR(64){collated} NOT NULL PRIMARY KEY,"
            " name TEXT NOT NULL, identity TEXT NOT NULL, recorded TEXT NOT NULL)"
        )
    )


def _rounds_get_a_device_state(connection: Connection) -> None:
    connection.execute(text("ALTER TABLE rounds ADD COLUMN device_state TEXT"))


def _rounds_get_host_conditions(connection: Connection) -> None:
    connection.execute(text("ALTER TABLE rounds ADD COLUMN host TEXT"))
    collated = ' COLLATE "C"' if connection.dialect.name == "postgresql" else ""
    connection.execute(
        text(
            f"CREATE TABLE watched (target_key VARCHAR(64){collated} NOT NULL"
            " REFERENCES targets (key), taken_s BIGINT NOT NULL, host TEXT NOT NULL,"
            " PRIMARY KEY (target_key, taken_s))"
        )
    )
    rows = connection.execute(text("SELECT * FROM rounds")).all()
    update = text(
        "UPDATE rounds SET host = :host, checksum = :checksum"
        " WHERE measurement_id = :measurement_id AND number = :number"
    )
    if changes := list(map(_with_host, rows)):
        connection.execute(update, changes)
    for column in ("reference_s", "reference_end_s"):
        connection.execute(text(f"ALTER TABLE rounds DROP COLUMN {column}"))


def _with_host(row: Row[Any]) -> dict[str, Any]:
    """The new columns of a round of version 7; a damaged one keeps its wrong checksum."""
    ends = [s for s in (row.reference_s, row.reference_end_s) if s is not None]
    host = None
    if ends and min(ends) > 0:
        # The workload is now the last of the reference kernels; the first number is the time.
        host = f"[null,null,null,null,null,{sum(ends) / len(ends)!r}]"
    state = [] if row.device_state is None else [row.device_state]
    before = checksum(row.samples, row.reference_s, row.waited_share, row.reference_end_s, *state)
    kept = row.checksum
    if row.checksum == before:
        kept = checksum(row.samples, host, row.waited_share, *state)
    return {
        "host": host, "checksum": kept,
        "measurement_id": row.measurement_id, "number": row.number,
    }  # fmt: skip


# MIGRATIONS[n] turns a cache of version n - 1 into one of version n. Write each with literal SQL or
# with tables of its own, not with schema.py, which moves on. Version 1 was the first.
MIGRATIONS: dict[int, Migration] = {
    2: _rounds_get_conditions,
    3: _rounds_get_an_end,
    4: _rows_get_checksums,
    5: _systems_get_names_and_prices,
    6: _networks_are_kept,
    7: _rounds_get_a_device_state,
    8: _rounds_get_host_conditions,
}


def prepare(engine: Engine, label: str, busy_timeout_s: float, make: bool) -> None:
    """Make the database current; raise StoreError where that isn't possible.

    An empty database gets tables only with ``make``: it may be a cache that was cut off.
    """
    with reading(engine) as connection:
        version = version_of(connection, label)
    if version == layout.SCHEMA_VERSION:
        return
    if version is None:
        if not make:
            raise StoreError(
                f"the cache {label} is empty: nothing was ever kept in it, or its file was cut "
                "off; 'bricks measure' begins it anew"
            )
        prefer_write_ahead_log(engine, busy_timeout_s)
    with writing(engine) as connection:
        lock_schema(connection)
        # Another process may have done it while this one waited for the lock: look again.
        version = version_of(connection, label)
        if version is None:
            metadata.create_all(connection)
            row = {"name": "schema_version", "value": str(layout.SCHEMA_VERSION)}
            connection.execute(cache_info.insert(), row)
        else:
            _migrate(connection, version, label)


def version_of(connection: Connection, label: str) -> int | None:
    """The layout's version, or None for an empty database; StoreError if it isn't a cache."""
    tables = inspect(connection).get_table_names()
    if not tables:
        return None
    if cache_info.name in tables:
        query = select(cache_info.c.value).where(cache_info.c.name == "schema_version")
        value = connection.execute(query).scalar()
        if isinstance(value, str) and value.isdecimal():
            return int(value)
    raise StoreError(
        f"the cache {label} is not a bricks cache (a database of something else): "
        "move it away or give another --cache"
    )


def _migrate(connection: Connection, version: int, label: str) -> None:
    if version > layout.SCHEMA_VERSION:
        raise StoreError(
            f"the cache {label} has schema version {version}, and this bricks knows up to "
            f"{layout.SCHEMA_VERSION}: update bricks, or give another --cache"
        )
    for step in range(version + 1, layout.SCHEMA_VERSION + 1):
        if step not in MIGRATIONS:
            raise StoreError(
                f"the cache {label} has schema version {version}, which this bricks "
                f"(version {layout.SCHEMA_VERSION}) cannot migrate: give another --cache"
            )
        MIGRATIONS[step](connection)
    connection.execute(
        update(cache_info)
        .where(cache_info.c.name == "schema_version")
        .values(value=str(layout.SCHEMA_VERSION))
    )
