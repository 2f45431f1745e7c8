"""Exports rows of a cache as records of plain JSON, for another cache; counts them.

A reader of the records needs nothing but them: a record names keys, and the records of these keys
come before it. Each function works inside a transaction that the caller opened. Counts of a damaged
file may be too low, so the caller checks it first. Must not know how records are written to files
(``results_file.py``), nor how they are merged (``merge.py``).
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Select, func, select

from bricks.errors import CacheDamaged
from bricks.store import layout
from bricks.store.engine import row_count, size_bytes
from bricks.store.layout import DONE, FAILED, OPEN
from bricks.store.measurements import watched_of
from bricks.store.records import round_record
from bricks.store.rows import (
    SYSTEM_COLUMNS,
    brick_of,
    decoding,
    network_of,
    plan_of,
    rounds_by_id,
    rounds_lost,
    target_of,
)
from bricks.store.schema import bricks, measurements, networks, plans, rounds, systems, targets
from bricks.store.views import CHUNK, ConnectionView, chunks

if TYPE_CHECKING:
    from bricks.decompose.plan import Brick
    from bricks.store.results_file import Record
    from bricks.system.target import Target

_COUNTED = (systems, networks, targets, plans, bricks)


def records(
    connection: Connection,
    target_keys: Collection[str],
    keys: Collection[str] | None = None,
    digits: int | None = None,
) -> Iterator[Record]:
    """All settled measurements on the targets, with the plans and bricks that they refer to.

    The records come in the order of :data:`~bricks.store.results_file.KINDS`, and the same content
    gives the same records; only rounds keep the order in which they were taken. With ``keys``, the
    records are the targets and the settled measurements of these bricks alone, for a cache that has
    the bricks already. With ``digits``, samples have no more significant digits than these. Raises
    CacheDamaged for a row that is damaged.
    """
    chosen = sorted(target_keys)
    yield from _targets(connection, chosen, digits)
    if keys is None:
        yield from _bricks(connection, chosen)
        for row in connection.execute(_plans_query(chosen)):
            with decoding(f"the plan of {row.digest}"):
                plan = plan_of(row).to_json()
            yield "plan", {"target": row.target_key, "wall_s": row.wall_s, "plan": plan}
    yield from _measurements(connection, chosen, keys, digits)


def _targets(connection: Connection, chosen: Sequence[str], digits: int | None) -> Iterator[Record]:
    query = select(targets, *(systems.c[name] for name in SYSTEM_COLUMNS)).join(systems)
    query = query.where(targets.c.key.in_(chosen)).order_by(targets.c.key)
    decoded: list[Target] = []
    for row in connection.execute(query):
        with decoding(f"target {row.key}"):
            decoded.append(target_of(row))
    for system in sorted({t.system.key: t.system for t in decoded}.values(), key=lambda s: s.key):
        yield "system", system.to_json()
    network_keys = {target.runtime.network for target in decoded} - {None}
    query = select(networks).where(networks.c.key.in_(network_keys)).order_by(networks.c.key)
    for row in connection.execute(query):
        with decoding(f"network {row.key}"):
            yield "network", network_of(row).to_json()
    for target in decoded:
        runtime = target.runtime.to_json()
        record = {"key": target.key, "system": target.system.key, "runtime": runtime}
        seen = watched_of(ConnectionView(connection), target.key)
        hosts = [host if digits is None else host.rounded(digits) for host in seen]
        yield "target", record | ({"watched": [host.to_json() for host in hosts]} if hosts else {})


def _bricks(connection: Connection, chosen: Sequence[str]) -> Iterator[Record]:
    """Records of the bricks measured on the ``chosen`` targets, or used by one of their plans."""
    query = select(measurements.c.brick_key).where(
        measurements.c.target_key.in_(chosen), measurements.c.state != OPEN
    )
    keys = set(connection.execute(query).scalars())
    for row in connection.execute(_plans_query(chosen)):
        with decoding(f"the plan of {row.digest}"):
            keys.update(plan_of(row).keys)
    for chunk in chunks(keys):
        query = select(bricks).where(bricks.c.key.in_(chunk)).order_by(bricks.c.key)
        for row in connection.execute(query):
            with decoding(f"brick {row.key}"):
                yield "brick", brick_record(brick_of(row))


def brick_record(brick: Brick) -> dict[str, Any]:
    """A brick as in a record of a results file."""
    return {"key": brick.key, "model": b64encode(brick.model).decode(), **brick.to_json()}


def _plans_query(chosen: Sequence[str]) -> Select[Any]:
    order = plans.c.target_key, plans.c.granularity, plans.c.digest
    return select(plans).where(plans.c.target_key.in_(chosen)).order_by(*order)


def _measurements(
    connection: Connection,
    chosen: Sequence[str],
    keys: Collection[str] | None,
    digits: int | None,
) -> Iterator[Record]:
    query = select(measurements).where(
        measurements.c.target_key.in_(chosen), measurements.c.state != OPEN
    )
    order = measurements.c.target_key, measurements.c.brick_key, measurements.c.protocol
    rows = connection.execute(query.order_by(*order)).all()
    if keys is not None:
        chosen_keys = set(keys)
        rows = [row for row in rows if row.brick_key in chosen_keys]
    for begin in range(0, len(rows), CHUNK):
        chunk = rows[begin : begin + CHUNK]
        rounds_taken = rounds_by_id(ConnectionView(connection), [row.id for row in chunk])
        for row in chunk:
            record = {
                "target": row.target_key,
                "brick": row.brick_key,
                "protocol": row.protocol,
                "wall_s": row.wall_s,
            }
            if row.state == FAILED:
                record["reason"] = row.reason or ""
            else:
                rounds = rounds_taken.get(row.id, [])
                if len(rounds) != row.round_count or not rounds:
                    raise rounds_lost(row, len(rounds))
                if digits is not None:
                    rounds = [round_.rounded(digits) for round_ in rounds]
                record["rounds"] = list(map(round_record, rounds))
            yield "measurement", record


@dataclass(frozen=True, slots=True)
class CacheStats:
    """Counts of a cache's rows; ``open_claims`` are measurements begun and not settled."""

    path: str
    schema_version: int
    size_bytes: int
    systems: int
    networks: int
    targets: int
    plans: int
    bricks: int
    measurements: int
    failures: int
    open_claims: int
    samples: int


def stats_of(connection: Connection, label: str) -> CacheStats:
    """Counts and size of the cache called ``label``; CacheDamaged for rows in an unknown state."""
    states = dict.fromkeys((OPEN, DONE, FAILED), 0)
    grouped = select(measurements.c.state, func.count()).group_by(measurements.c.state)
    states.update((state, count) for state, count in connection.execute(grouped))
    if len(states) > 3:
        raise CacheDamaged(
            f"the cache {label} is damaged (measurements are in an unknown state): "
            "run 'bricks cache verify'"
        )
    samples = connection.execute(select(func.sum(rounds.c.sample_count))).scalar()
    return CacheStats(
        path=label,
        schema_version=layout.SCHEMA_VERSION,
        size_bytes=size_bytes(connection),
        **{table.name: row_count(connection, table) for table in _COUNTED},
        measurements=states[DONE],
        failures=states[FAILED],
        open_claims=states[OPEN],
        samples=int(samples or 0),
    )
