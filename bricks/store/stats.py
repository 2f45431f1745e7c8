"""Counts of a cache's rows.

Works inside a transaction that the caller opened. Must not know how damage is found: counts of a
damaged file may be too low, so the caller checks it first.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, func, select

from bricks.errors import CacheDamaged
from bricks.store import layout
from bricks.store.engine import row_count, size_bytes
from bricks.store.layout import DONE, FAILED, OPEN
from bricks.store.schema import bricks, measurements, networks, plans, rounds, systems, targets

_COUNTED = (systems, networks, targets, plans, bricks)


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
