"""The tables of the cache; :mod:`bricks.store.layout` has the version of their layout.

The layout is a format: other versions of the package, and other programs, read it. It is here by
itself so that it can be read as a whole. It must not know how it is queried or migrated.

JSON is kept as text that Python writes and reads: the same bytes on every database, and the order
of keys (which is meaning in a brick's inputs) survives. Nothing is pickled.
"""

from sqlalchemy import (
    BigInteger,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)
from sqlalchemy.types import TypeEngine

from bricks.store.layout import INFO_TABLE

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
    Column("samples", Text, nullable=False),  # JSON list of raw samples, see round_records.py
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
