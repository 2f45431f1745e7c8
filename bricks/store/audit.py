"""Checks of ``verify``: rows against their checksums, their keys and one another.

Each problem is one line that names the row. Nothing is repaired here. Must not know how the key of
a brick is computed; the caller passes ``rekey``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any

from sqlalchemy import Connection, Row, func, select

from bricks.decompose.plan import Brick
from bricks.errors import StoreError
from bricks.store.integrity import UNREADABLE, as_far_as_readable, integrity_problems
from bricks.store.rows import (
    SYSTEM_COLUMNS,
    brick_of,
    checksum_matches,
    decoding,
    network_of,
    plan_of,
    round_of,
    system_of,
    target_of,
    weight_bytes_of,
)
from bricks.store.schema import (
    DONE,
    FAILED,
    OPEN,
    bricks,
    measurements,
    networks,
    plans,
    rounds,
    systems,
    targets,
)
from bricks.system.network import NetworkFingerprint
from bricks.system.target import System, Target

Rekey = Callable[[Brick], str]

# Keys of bricks start so; models and probes, which are measured too, have no row of their own.
BRICK_PREFIX = "b1-"

CHANGED = "it is not as it was written"


def problems(connection: Connection, rekey: Rekey | None) -> Iterator[str]:
    """All problems, one line each; an unreadable row does not hide problems of other rows."""
    yield from integrity_problems(connection)
    known = _known_bricks(connection)
    for table, lines in (
        ("systems", _of_systems(connection)),
        ("networks", _of_networks(connection)),
        ("bricks", _of_bricks(connection, rekey)),
        ("plans", _of_plans(connection, known)),
        ("measurements", _of_measurements(connection, known)),
        ("rounds", _of_rounds(connection)),
    ):
        yield from as_far_as_readable(table, lines)


def _known_bricks(connection: Connection) -> set[str] | None:
    """Keys of all bricks; None if unreadable."""
    try:
        return set(connection.execute(select(bricks.c.key)).scalars())
    except UNREADABLE:
        return None


def _counts(connection: Connection) -> dict[int, int] | None:
    """The number of rounds of each measurement, by row number; None if unreadable."""
    query = select(rounds.c.measurement_id, func.count()).group_by(rounds.c.measurement_id)
    try:
        return {number: count for number, count in connection.execute(query)}
    except UNREADABLE:
        return None


def _of_systems(connection: Connection) -> Iterator[str]:
    of_systems = select(systems).order_by(systems.c.key)
    yield from _of_keys(connection.execute(of_systems), "system", system_of, "its identity does")
    query = select(targets, *SYSTEM_COLUMNS).join(systems).order_by(targets.c.key)
    facts = "its system and runtime do"
    yield from _of_keys(connection.execute(query), "target", target_of, facts)


def _of_networks(connection: Connection) -> Iterator[str]:
    rows = connection.execute(select(networks).order_by(networks.c.key)).all()
    yield from _of_keys(rows, "network", network_of, "its identity does")
    known = {row.key for row in rows}
    for row in connection.execute(select(targets).order_by(targets.c.key)):
        network = None
        with suppress(ValueError, AttributeError):  # a damaged runtime is reported with its target
            network = json.loads(row.runtime).get("network")
        if network is not None and network not in known:
            yield f"target {row.key}: its network {network} is unknown"


def _of_keys(
    rows: Iterable[Row[Any]],
    kind: str,
    decode: Callable[[Row[Any]], System | Target | NetworkFingerprint],
    facts: str,
) -> Iterator[str]:
    """Rows that do not decode, or whose ``facts`` (in words) do not give their key."""
    for row in rows:
        try:
            with decoding(f"{kind} {row.key}"):
                if decode(row).key != row.key:
                    yield f"{kind} {row.key}: {facts} not give this key"
        except StoreError as exc:
            yield str(exc)


def _of_bricks(connection: Connection, rekey: Rekey | None) -> Iterator[str]:
    # Models may be large: they are read one by one, not all at once.
    query = select(bricks).order_by(bricks.c.key).execution_options(yield_per=100)
    for row in connection.execute(query):
        if not row.key.startswith(BRICK_PREFIX):
            yield f"brick {row.key}: its key does not start with {BRICK_PREFIX}"
        try:
            with decoding(f"brick {row.key}"):
                brick = brick_of(row, check=False)
                weight_bytes = weight_bytes_of(brick)
        except StoreError as exc:
            yield str(exc)
            continue
        if not checksum_matches(row):
            yield f"brick {row.key}: {CHANGED}"
        if not brick.model:
            yield f"brick {row.key}: its model is empty"
        if weight_bytes != row.weight_bytes:
            yield f"brick {row.key}: its weights take {weight_bytes} bytes, not {row.weight_bytes}"
        if row.flops is not None and row.flops < 0:
            yield f"brick {row.key}: its flops are negative"
        if rekey is not None:
            yield from _of_identity(brick, rekey)


def _of_identity(brick: Brick, rekey: Rekey) -> Iterator[str]:
    try:
        key = rekey(brick)
    except Exception as exc:  # a damaged model may break the caller's reader in any way
        yield f"brick {brick.key}: its key cannot be recomputed ({type(exc).__name__})"
        return
    if key != brick.key:
        yield f"brick {brick.key}: its model gives the key {key}"


def _of_plans(connection: Connection, known: set[str] | None) -> Iterator[str]:
    query = select(plans).order_by(plans.c.id).execution_options(yield_per=100)
    for row in connection.execute(query):
        name = f"plan {row.digest[:16]} ({row.granularity}, {row.target_key})"
        try:
            with decoding(name):
                plan = plan_of(row, check=False)
                keys = plan.keys
        except StoreError as exc:
            yield str(exc)
            continue
        if not checksum_matches(row):
            yield f"{name}: {CHANGED}"
        if (plan.digest, plan.granularity) != (row.digest, row.granularity):
            yield f"{name}: its text is of {plan.digest[:16]} ({plan.granularity})"
        missing = [key for key in keys if known is not None and key not in known]
        if missing:
            yield f"{name}: {len(missing)} of its bricks are unknown, {missing[0]} first"


def _of_measurements(connection: Connection, known: set[str] | None) -> Iterator[str]:
    counts = _counts(connection)
    for row in connection.execute(select(measurements).order_by(measurements.c.id)):
        name = f"measurement of {row.brick_key} on {row.target_key}"
        has_row = row.brick_key.startswith(BRICK_PREFIX)
        if known is not None and has_row and row.brick_key not in known:
            yield f"{name}: the brick is unknown"
        if row.state not in (OPEN, DONE, FAILED):
            yield f"{name}: its state {row.state!r} is unknown"
        count = None if counts is None else counts.get(row.id, 0)
        if row.state == DONE and count == 0:
            yield f"{name}: it is finished and has no samples"
        elif count is not None and count != row.round_count:
            yield f"{name}: it has {count} of its {row.round_count} rounds"
        if row.state == FAILED and not row.reason:
            yield f"{name}: it failed without a reason"


def _of_rounds(connection: Connection) -> Iterator[str]:
    query = select(rounds, measurements.c.brick_key, measurements.c.target_key).join(measurements)
    query = query.order_by(rounds.c.measurement_id, rounds.c.number)
    for row in connection.execute(query.execution_options(yield_per=1000)):
        name = f"measurement of {row.brick_key} on {row.target_key}, round {row.number}"
        try:
            with decoding(name):
                samples = round_of(row, check=False).host_s
        except StoreError as exc:
            yield str(exc)
            continue
        if not checksum_matches(row):
            yield f"{name}: {CHANGED}"
        if len(samples) != row.sample_count:
            yield f"{name}: it has {len(samples)} samples, not {row.sample_count}"
