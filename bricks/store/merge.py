"""Merges records of plain JSON from another cache into rows.

Merging is idempotent: existing rows are left unchanged, and a measurement that both caches have
keeps the rounds of both. No record is trusted: keys of systems, targets and bricks are computed
again from their facts, so a measurement of one system never counts for another. Each function works
inside a transaction that the caller opened. Must not know how records are written to files, nor
which bricks are sound; the caller passes ``mismatch``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby, islice
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Row, Table, select, update

from bricks.decompose.plan import Brick, Plan
from bricks.store.audit import BRICK_PREFIX
from bricks.store.engine import insert_or_ignore, row_count
from bricks.store.layout import DONE, FAILED, NOBODY, OPEN
from bricks.store.measurement_rows import add_watched
from bricks.store.owners import Owner, Watch, lease_columns
from bricks.store.plans import bricks_in
from bricks.store.records import SettledMeasurement
from bricks.store.records import brick_of as brick_record
from bricks.store.records import network_of as network_record
from bricks.store.records import system_of as system_record
from bricks.store.records import target_of as target_record
from bricks.store.results_file import KINDS, Record
from bricks.store.rows import (
    brick_row,
    fingerprint_row,
    plan_row,
    round_row,
    rounds_by_id,
    system_of,
    target_row,
)
from bricks.store.schema import (
    bricks,
    measurements,
    networks,
    plans,
    rounds,
    systems,
    targets,
    watched,
)
from bricks.store.views import CHUNK, ConnectionView, chunks
from bricks.system.host_conditions import HostConditions

if TYPE_CHECKING:
    from bricks.samples.measurement import Round

# The problem of a brick in one line; None if its content has its key.
Mismatch = Callable[[Brick], str | None]

# The tables that merging writes to, in the order in which other transactions write to them.
WRITTEN = (measurements, rounds, watched, systems, networks, targets, bricks, plans)


@dataclass(slots=True)
class Merged:
    """Numbers of new rows by table.

    ``known`` counts measurements without new rounds; ``busy`` counts measurements that another
    process is making now, which were left unchanged.
    """

    systems: int = 0
    networks: int = 0
    targets: int = 0
    bricks: int = 0
    plans: int = 0
    measurements: int = 0
    rounds: int = 0
    known: int = 0
    busy: int = 0


def merge(
    connection: Connection, records: Iterable[Record], mismatch: Mismatch, watch: Watch
) -> Merged:
    """Merge ``records``, which come in the order of their kinds in a file.

    Raises ValueError for a record that cannot be true, and StoreError for a damaged row that it
    refers to; the caller then ends the transaction.
    """
    merged = Merged()
    into: dict[str, Callable[[list[dict[str, Any]]], None]] = {
        "system": partial(_merge_systems, connection, merged),
        "network": partial(_merge_networks, connection, merged),
        "target": partial(_merge_targets, connection, merged),
        "brick": partial(_merge_bricks, connection, merged, mismatch),
        "plan": partial(_merge_plans, connection, merged),
        "measurement": _MeasurementMerge(connection, merged, watch).merge,
    }
    reached = 0
    for kind, group in groupby(records, key=lambda record: record[0]):
        if kind not in into:
            raise ValueError(f"it holds a record of an unknown kind, {kind!r}")
        if KINDS.index(kind) < reached:
            raise ValueError(f"a record of kind {kind} comes after those that refer to it")
        reached = KINDS.index(kind)
        while chunk := [data for _, data in islice(group, CHUNK)]:
            into[kind](chunk)
    return merged


def _merge_systems(connection: Connection, merged: Merged, records: list[dict[str, Any]]) -> None:
    for data in records:
        system = system_record(data)
        row = {**fingerprint_row(system), "price_per_hour": system.price_per_hour}
        merged.systems += _insert(connection, systems, [row])


def _merge_networks(connection: Connection, merged: Merged, records: list[dict[str, Any]]) -> None:
    rows = [fingerprint_row(network_record(data)) for data in records]
    merged.networks += _insert(connection, networks, rows)


def _merge_targets(connection: Connection, merged: Merged, records: list[dict[str, Any]]) -> None:
    for data in records:
        query = select(systems).where(systems.c.key == data["system"])
        row = connection.execute(query).one_or_none()
        if row is None:
            raise ValueError(f"the target {data['key']} is of a system that is nowhere")
        target = target_record(data, system_of(row))
        key = target.runtime.network
        query = select(networks.c.key).where(networks.c.key == key)
        if key is not None and connection.execute(query).one_or_none() is None:
            raise ValueError(f"the target {target.key} is of a network that is nowhere")
        merged.targets += _insert(connection, targets, [target_row(target)])
        add_watched(connection, target.key, map(HostConditions.from_json, data.get("watched", ())))


def _merge_bricks(
    connection: Connection, merged: Merged, mismatch: Mismatch, records: list[dict[str, Any]]
) -> None:
    known = _known_bricks(connection, [str(data["key"]) for data in records])
    new = []
    for data in records:
        if data["key"] in known:
            continue
        brick = brick_record(data)
        problem = mismatch(brick)
        if problem is not None:
            raise ValueError(f"brick {brick.key} cannot be true: {problem}")
        new.append(brick_row(brick))
    merged.bricks += _insert(connection, bricks, new)


def _merge_plans(connection: Connection, merged: Merged, records: list[dict[str, Any]]) -> None:
    rows = []
    for data in records:
        plan = Plan.from_json(data["plan"])
        missing = set(plan.keys) - _known_bricks(connection, plan.keys)
        if missing:
            raise ValueError(f"the plan of {plan.model} names {min(missing)}, which is nowhere")
        problem = plan.problem(bricks_in(ConnectionView(connection), plan.keys))
        if problem is not None:
            raise ValueError(f"the plan of {plan.model} cannot be true: {problem}")
        rows.append(plan_row(plan, str(data["target"]), float(data["wall_s"])))
    merged.plans += _insert(connection, plans, rows)


def _row(settled: SettledMeasurement, target_key: str, protocol: int) -> dict[str, Any]:
    return {
        "target_key": target_key,
        "brick_key": settled.key,
        "protocol": protocol,
        "state": DONE if settled.reason is None else FAILED,
        "reason": settled.reason,
        "wall_s": settled.wall_s,
        "round_count": len(settled.rounds),
        "owner_token": NOBODY,
        "owner_host": "",
        "owner_pid": 0,
        "owner_started_s": 0.0,
        **lease_columns(0.0),
    }


class _MeasurementMerge:
    def __init__(self, connection: Connection, merged: Merged, watch: Watch) -> None:
        self._connection, self._merged, self._watch = connection, merged, watch

    def merge(self, records: list[dict[str, Any]]) -> None:
        by_group: dict[tuple[str, int], dict[str, SettledMeasurement]] = {}
        for data in records:
            group = str(data["target"]), int(data["protocol"])
            measurement = SettledMeasurement.of(data)
            if (
                by_group.setdefault(group, {}).setdefault(measurement.key, measurement)
                is not measurement
            ):
                raise ValueError(f"it holds two measurements of {measurement.key} on {group[0]}")
        self._watch.refresh()
        for (target_key, protocol), settled in by_group.items():
            query = select(targets.c.key).where(targets.c.key == target_key)
            if self._connection.execute(query).one_or_none() is None:
                raise ValueError(
                    f"it has measurements on the target {target_key}, which is nowhere"
                )
            missing = {key for key in settled if key.startswith(BRICK_PREFIX)}
            missing -= _known_bricks(self._connection, missing)
            if missing:
                raise ValueError(f"it has a measurement of {min(missing)}, which is nowhere")
            rows = self._rows(target_key, protocol, settled)
            new = [
                _row(measurement, target_key, protocol)
                for key, measurement in settled.items()
                if key not in rows
            ]
            if new:
                self._connection.execute(measurements.insert(), new)
                self._merged.measurements += len(new)
                fresh = self._rows(target_key, protocol, [row["brick_key"] for row in new])
                self._add({row.id: (settled[key].rounds, 0) for key, row in fresh.items()})
            known_rounds = rounds_by_id(
                ConnectionView(self._connection), [row.id for row in rows.values()]
            )
            for key, row in rows.items():
                self._join(row, settled[key], known_rounds.get(row.id, []))

    def _rows(self, target_key: str, protocol: int, keys: Iterable[str]) -> dict[str, Row[Any]]:
        query = select(measurements).where(
            measurements.c.target_key == target_key,
            measurements.c.protocol == protocol,
            measurements.c.brick_key.in_(list(keys)),
        )
        rows = self._connection.execute(query.with_for_update()).all()
        return {row.brick_key: row for row in rows}

    def _join(self, row: Row[Any], incoming: SettledMeasurement, known: Sequence[Round]) -> None:
        """Add the ``incoming`` rounds to a measurement that this cache has, unless it has them."""
        more = list((Counter(incoming.rounds) - Counter(known)).elements())
        if row.state == OPEN and row.owner_token != NOBODY:
            owner = Owner(row.owner_host, row.owner_pid, row.owner_started_s, row.owner_token)
            if self._watch.is_valid(owner, row.lease_until_s, row.lease_until_monotonic_s):
                self._merged.busy += 1
                return
        settles = row.state == OPEN or (row.state == FAILED and incoming.reason is None)
        if not more and not settles:
            self._merged.known += 1
            return
        values: dict[str, Any] = {}
        if settles:
            state = DONE if incoming.reason is None else FAILED
            values = {"state": state, "reason": incoming.reason, "owner_token": NOBODY}
            self._merged.measurements += 1
        share = len(more) / len(incoming.rounds) if incoming.rounds else 1.0
        values |= {
            "wall_s": row.wall_s + share * incoming.wall_s,
            "round_count": len(known) + len(more),
        }
        self._connection.execute(
            update(measurements).where(measurements.c.id == row.id).values(values)
        )
        self._add({row.id: (more, len(known))})

    def _add(self, new_rounds: Mapping[int, tuple[Sequence[Round], int]]) -> None:
        rows = [
            {"measurement_id": number, "number": first + i, **round_row(round_)}
            for number, (more, first) in new_rounds.items()
            for i, round_ in enumerate(more)
        ]
        if rows:
            self._connection.execute(rounds.insert(), rows)
            self._merged.rounds += len(rows)


def _known_bricks(connection: Connection, keys: Collection[str]) -> set[str]:
    known: set[str] = set()
    for chunk in chunks(keys):
        query = select(bricks.c.key).where(bricks.c.key.in_(chunk))
        known.update(connection.execute(query).scalars())
    return known


def _insert(connection: Connection, table: Table, rows: list[dict[str, Any]]) -> int:
    """Insert the ``rows`` that do not exist yet; returns their number."""
    before = row_count(connection, table)
    insert_or_ignore(connection, table, rows)
    return row_count(connection, table) - before
