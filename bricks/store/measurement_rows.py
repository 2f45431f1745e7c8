"""Rows of measurements and of their rounds: selected, locked, read, and added to.

A measurement is a row, open until it is done or failed; the unique constraint over target, key and
protocol admits one. Each function works inside a transaction that the caller opened. Must not know
what a key stands for, nor who may change a row.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, and_, bindparam, func, select, update

from bricks.errors import StoreError
from bricks.samples.measurement import PROTOCOL, Round
from bricks.store.engine import insert_or_ignore
from bricks.store.layout import OPEN
from bricks.store.rows import round_row, to_text
from bricks.store.schema import measurements, rounds, watched
from bricks.store.views import chunks
from bricks.system.host_conditions import HostConditions, mean_conditions

# A round, and the wall time in seconds that it took in all.
TimedRound = tuple[Round, float]


def of_keys(target_key: str, keys: Sequence[str]) -> ColumnElement[bool]:
    """The condition that selects ``keys`` on a target, measured by the current protocol."""
    return and_(
        measurements.c.target_key == target_key,
        measurements.c.protocol == PROTOCOL,
        measurements.c.brick_key.in_(keys),
    )


def opened_row(target_key: str) -> dict[str, Any]:
    """The columns of a measurement that begins; its key and owner are the caller's to add."""
    new = {"target_key": target_key, "protocol": PROTOCOL, "state": OPEN}
    return {**new, "wall_s": 0.0, "round_count": 0}


def locked(query: Select[Any]) -> Select[Any]:
    """``query`` with locks on its rows, so that no other transaction changes them.

    Rows are locked in the order of their keys, so two transactions cannot deadlock. SQLite has no
    row locks, and admits one writer at a time.
    """
    return query.order_by(measurements.c.brick_key).with_for_update()


def round_counts(connection: Connection, ids: Collection[int]) -> dict[int, int]:
    """The number of rounds of each measurement with rounds, by its row number."""
    counts: dict[int, int] = {}
    for chunk in chunks(ids):
        query = (
            select(rounds.c.measurement_id, func.count())
            .where(rounds.c.measurement_id.in_(chunk))
            .group_by(rounds.c.measurement_id)
        )
        counts.update((number, count) for number, count in connection.execute(query))
    return counts


def add_rounds(
    connection: Connection, target_key: str, ids: Mapping[str, int], walk: Mapping[str, TimedRound]
) -> None:
    """Add one round to each key of a walk; ``ids`` has the row number of each.

    Raises StoreError for a round whose numbers cannot be true.
    """
    counts = round_counts(connection, ids.values())
    added: list[dict[str, Any]] = []
    for key, (round_, _) in walk.items():
        if not round_.host_s:  # time was spent, on creating a session say, and nothing sampled
            continue
        try:
            columns = round_row(round_)
        except ValueError as exc:
            raise StoreError(f"cannot keep a round of {key}: {exc}") from exc
        row = {"measurement_id": ids[key], "number": counts.get(ids[key], 0)}
        added.append({**row, **columns})
    if added:
        connection.execute(rounds.insert(), added)
    if walk:
        connection.execute(
            update(measurements)
            .where(measurements.c.id == bindparam("row"))
            .values(
                wall_s=measurements.c.wall_s + bindparam("wall_s_delta"),
                round_count=measurements.c.round_count + bindparam("rounds_more"),
            ),
            [
                {"row": ids[key], "wall_s_delta": wall_s, "rounds_more": bool(round_.host_s)}
                for key, (round_, wall_s) in walk.items()
            ],
        )
        add_watched(connection, target_key, [round_.host for round_, _ in walk.values()])


def add_watched(
    connection: Connection, target_key: str, every: Iterable[HostConditions | None]
) -> None:
    """Add conditions in which a host was watched, as a mean for each second."""
    by_second: dict[int, list[HostConditions]] = {}
    for of in every:
        if of is not None and of.taken_s is not None and None not in of.kernels_s:
            by_second.setdefault(of.taken_s, []).append(of)
    means = {second: mean_conditions(of) for second, of in by_second.items()}
    rows = [
        {"target_key": target_key, "taken_s": second, "host": to_text(mean.to_json())}
        for second, mean in means.items()
        if mean is not None
    ]
    if rows:
        insert_or_ignore(connection, watched, rows)
