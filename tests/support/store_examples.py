"""Small bricks, plans and targets for the tests of the store; nothing here is a real model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from sqlalchemy import Connection, text

from bricks.decompose.occurrence import Occurrence
from bricks.decompose.plan import Brick, Decomposition, Plan
from bricks.graph.types import TensorType
from bricks.samples.measurement import Round
from bricks.store import Owner, Store
from bricks.store.rows import checksum
from bricks.system.target import Runtime, System, Target

# Where a cache is: a folder, or the URL of a database.
Cache = str | Path

# For tests of what a database itself must do: they run on both kinds in `make test` too.
ON_BOTH = pytest.mark.parametrize("cache", ["sqlite", "postgresql"], indirect=True)


def make_target(name: str = "lab", threads: int = 1) -> Target:
    system = System(name, {"cpu": name, "cores": 4}, {"kernel": "6.1", "note": "größer"})
    return Target(system, Runtime("fake", "1.0", "cpu", threads, "none"))


def make_brick(number: int = 1) -> Brick:
    return Brick(
        key=f"b1-{number:04x}",
        model=b"\x08\x00model\xff" + bytes([number % 256]),
        inputs={"z": TensorType("FLOAT", (1, 3, number)), "a": TensorType("INT64", ())},
        weights={"w": TensorType("FLOAT16", (3, number))},
        outputs={"y": TensorType("FLOAT", (1, 3))},
        operators=("Conv", "com.microsoft.Gelu"),
        flops=None if number == 0 else 6 * number,
    )


def make_decomposition(
    numbers: Sequence[int] = (1, 2, 1), name: str = "net.onnx", digest: str = "d" * 64
) -> Decomposition:
    kind = TensorType("FLOAT", (1, 3))
    plan = Plan(
        model=name,
        digest=digest,
        granularity="executed",
        inputs=(0,),
        outputs=(len(numbers),),
        types=(kind,) * (len(numbers) + 1),
        occurrences=tuple(
            Occurrence(make_brick(n).key, (i,), (i + 1,), 2, 0 if i else None)
            for i, n in enumerate(numbers)
        ),
    )
    return Decomposition(plan, {make_brick(n).key: make_brick(n) for n in numbers}, 0.25)


def keys_up_to(count: int) -> list[str]:
    return [f"b1-{number:04x}" for number in range(count)]


def open_with_target(cache: Cache, *targets: Target, lease_s: float = 600.0) -> Store:
    store = Store.open(cache, lease_s=lease_s)
    for target in targets or (make_target(),):
        store.systems.save_target(target)
    return store


def measure(store: Store, target: Target, keys: Sequence[str], sample_s: float = 0.5) -> None:
    owner = Owner.current()
    store.claims.claim(target.key, keys, owner)
    store.claims.append_rounds(target.key, {key: (Round((sample_s,)), 1.0) for key in keys}, owner)
    store.claims.finish(target.key, keys, owner)


def back_to_version_7(
    connection: Connection, references: Sequence[tuple[float | None, float | None]] = ()
) -> None:
    """Turn a cache into one of version 7, whose rounds had a reference workload before and after.

    ``references`` has both in seconds for each round; without them, no round has any.
    """
    for statement in (
        "DROP TABLE watched",
        "ALTER TABLE rounds DROP COLUMN host",
        "ALTER TABLE rounds ADD COLUMN reference_s DOUBLE PRECISION",
        "ALTER TABLE rounds ADD COLUMN reference_end_s DOUBLE PRECISION",
        "UPDATE bricks_cache_info SET value = '7' WHERE name = 'schema_version'",
    ):
        connection.execute(text(statement))
    rows = connection.execute(text("SELECT * FROM rounds ORDER BY measurement_id, number")).all()
    update = text(
        "UPDATE rounds SET reference_s = :before, reference_end_s = :after, checksum = :checksum"
        " WHERE measurement_id = :measurement AND number = :number"
    )
    for row, (before, after) in zip(rows, references or [(None, None)] * len(rows), strict=True):
        state = [] if row.device_state is None else [row.device_state]
        of_columns = checksum(row.samples, before, row.waited_share, after, *state)
        values = {"before": before, "after": after, "checksum": of_columns}
        at = {"measurement": row.measurement_id, "number": row.number}
        connection.execute(update, values | at)
