"""Claims, rounds and results: what makes "measured once per target" true.

A measurement is a row, open until it is done or failed; the unique constraint over target, key and
protocol admits one. The process that inserts the row holds it. A row that its owner abandoned is
taken over by an UPDATE that only succeeds while owner and lease are still those that were judged.
Each function works inside a transaction that the caller opened. Must not know what a key stands
for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Integer,
    Row,
    Select,
    and_,
    bindparam,
    cast,
    delete,
    func,
    select,
    update,
)

from bricks.errors import CacheDamaged, StoreError, first_line
from bricks.samples.machine_state import SAME_STATE_FACTOR
from bricks.samples.measurement import PROTOCOL, Failure, Measurement, Round
from bricks.store.engine import chunks, insert_or_ignore
from bricks.store.owners import Claim, Owner, Watch, lease_columns
from bricks.store.rows import decoding, round_of, round_row
from bricks.store.schema import DONE, FAILED, NOBODY, OPEN, measurements, rounds

# A round, and the wall time in seconds that it took in all.
TimedRound = tuple[Round, float]


def _among(target_key: str, keys: Sequence[str]) -> ColumnElement[bool]:
    return and_(
        measurements.c.target_key == target_key,
        measurements.c.protocol == PROTOCOL,
        measurements.c.brick_key.in_(keys),
    )


def _owned(owner: Owner) -> ColumnElement[bool]:
    return and_(measurements.c.owner_token == owner.token, measurements.c.state == OPEN)


def _held(query: Select[Any]) -> Select[Any]:
    """A query of measurements that keeps others from changing its rows until the end.

    Always in the same order, and of many keys the chunks are sorted too: two transactions that lock
    the same rows cannot wait for each other.
    SQLite, which has no such locks, lets one write at a time anyhow.
    """
    return query.order_by(measurements.c.brick_key).with_for_update()


def _owner_columns(owner: Owner, lease_s: float) -> dict[str, Any]:
    return {
        "owner_token": owner.token,
        "owner_host": owner.host,
        "owner_pid": owner.pid,
        "owner_started_s": owner.started_s,
        **lease_columns(lease_s),
    }


def _held_by_another(row: Row[Any], owner: Owner, watch: Watch) -> bool:
    """Whether another owner has a claim on the row that counts."""
    if row.owner_token in (NOBODY, owner.token):
        return False
    other = Owner(row.owner_host, row.owner_pid, row.owner_started_s, row.owner_token)
    return watch.counts(other, row.lease_until_s, row.lease_until_monotonic_s)


def claim(
    connection: Connection,
    target_key: str,
    keys: Sequence[str],
    owner: Owner,
    lease_s: float,
    watch: Watch,
) -> list[Claim]:
    """Claim those of ``keys`` that are neither settled nor held by another owner, in order."""
    mine = _owner_columns(owner, lease_s)
    new = {"target_key": target_key, "protocol": PROTOCOL, "state": OPEN, **mine}
    new |= {"wall_s": 0.0, "round_count": 0}
    watch.look_again()
    claimed: dict[str, Row[Any]] = {}
    for chunk in chunks(sorted(keys)):
        insert_or_ignore(connection, measurements, [{**new, "brick_key": key} for key in chunk])
        query = select(measurements).where(_among(target_key, chunk), measurements.c.state == OPEN)
        for row in connection.execute(_held(query)).all():
            free = not _held_by_another(row, owner, watch)
            if row.owner_token == owner.token or (free and _take_over(connection, row, mine)):
                claimed[row.brick_key] = row
    sampled = _rounds_of(connection, list(claimed.values()))
    return [
        Claim(key, sampled.get(claimed[key].id, ()), claimed[key].wall_s)
        for key in dict.fromkeys(keys)
        if key in claimed
    ]


def _take_over(connection: Connection, row: Row[Any], mine: Mapping[str, Any]) -> bool:
    result = connection.execute(
        update(measurements)
        .where(
            measurements.c.id == row.id,
            measurements.c.state == OPEN,
            measurements.c.owner_token == row.owner_token,
            measurements.c.lease_until_s == row.lease_until_s,
        )
        .values(mine)
    )
    return result.rowcount == 1


def _rounds_of(connection: Connection, rows: Sequence[Row[Any]]) -> dict[int, tuple[Round, ...]]:
    """The rounds of each measurement, by its number, in the order they were taken."""
    by_id = {row.id: row for row in rows}
    found: dict[int, list[Round]] = {}
    for chunk in chunks(by_id):
        query = (
            select(rounds)
            .where(rounds.c.measurement_id.in_(chunk))
            .order_by(rounds.c.measurement_id, rounds.c.number)
        )
        for row in connection.execute(query):
            with decoding(f"the measurement of {by_id[row.measurement_id].brick_key}"):
                found.setdefault(row.measurement_id, []).append(round_of(row))
    for number, row in by_id.items():
        count = len(found.get(number, ()))
        if count != row.round_count or (row.state == DONE and not count):
            raise CacheDamaged(
                f"the measurement of {row.brick_key} is damaged in the cache ({count} of its "
                f"{row.round_count} rounds can be found): run 'bricks cache verify'"
            )
    return {number: tuple(taken) for number, taken in found.items()}


def renew(connection: Connection, target_key: str, owner: Owner, lease_s: float) -> None:
    """Prolong all open claims of ``owner``: one renewal is enough for all of them."""
    mine = select(measurements.c.id).where(measurements.c.target_key == target_key, _owned(owner))
    connection.execute(_held(mine)).all()  # so that the update locks nothing in an order of its own
    connection.execute(
        update(measurements)
        .where(measurements.c.target_key == target_key, _owned(owner))
        .values(lease_columns(lease_s))
    )


def _ids_owned(
    connection: Connection, target_key: str, keys: Sequence[str], owner: Owner
) -> dict[str, int]:
    """Row numbers of ``keys``; StoreError unless the owner holds each of them."""
    found: dict[str, int] = {}
    for chunk in chunks(sorted(keys)):
        query = select(measurements.c.brick_key, measurements.c.id)
        query = query.where(_among(target_key, chunk), _owned(owner))
        found.update((key, number) for key, number in connection.execute(_held(query)))
    lost = [key for key in dict.fromkeys(keys) if key not in found]
    if lost:
        raise StoreError(
            f"{len(lost)} of {len(set(keys))} measurements, {lost[0]} first, are not claimed by "
            "this run any more: another run took them over; run again to go on from there"
        )
    return found


def append(
    connection: Connection, target_key: str, walk: Mapping[str, TimedRound], owner: Owner
) -> None:
    """Add one round to each measurement in ``walk``, which ``owner`` holds."""
    _add(connection, _ids_owned(connection, target_key, list(walk), owner), walk)


def supplement(connection: Connection, target_key: str, walk: Mapping[str, TimedRound]) -> None:
    """Add one round to each measurement in ``walk`` that is done; others are left alone.

    Needs no claim: two runs that measure the same key again do each other no harm.
    """
    ids: dict[str, int] = {}
    for chunk in chunks(sorted(walk)):
        query = select(measurements.c.brick_key, measurements.c.id).where(
            _among(target_key, chunk), measurements.c.state == DONE
        )
        ids.update((key, number) for key, number in connection.execute(_held(query)))
    _add(connection, ids, {key: walk[key] for key in ids})


def _add(connection: Connection, ids: Mapping[str, int], walk: Mapping[str, TimedRound]) -> None:
    counts = _round_counts(connection, list(ids.values()))
    added: list[dict[str, Any]] = []
    for key, (taken, _) in walk.items():
        if not taken.samples:  # time was spent, on creating a session say, and nothing sampled
            continue
        try:
            columns = round_row(taken)
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
                {"row": ids[key], "wall_s_delta": wall_s, "rounds_more": bool(taken.samples)}
                for key, (taken, wall_s) in walk.items()
            ],
        )


def _round_counts(connection: Connection, ids: Sequence[int]) -> dict[int, int]:
    counts: dict[int, int] = {}
    for chunk in chunks(ids):
        query = (
            select(rounds.c.measurement_id, func.count())
            .where(rounds.c.measurement_id.in_(chunk))
            .group_by(rounds.c.measurement_id)
        )
        counts.update((number, count) for number, count in connection.execute(query))
    return counts


def finish(connection: Connection, target_key: str, keys: Sequence[str], owner: Owner) -> None:
    """Declare measurements done; StoreError for one that isn't owned or has no sample."""
    ids = _ids_owned(connection, target_key, keys, owner)
    counts = _round_counts(connection, list(ids.values()))
    empty = [key for key, number in ids.items() if not counts.get(number)]
    if empty:
        raise StoreError(f"the measurement of {empty[0]} has no samples: it cannot be finished")
    _settle(connection, target_key, keys, {"state": DONE})


def fail(connection: Connection, target_key: str, key: str, reason: str, owner: Owner) -> None:
    """Declare that something cannot be measured; the reason is kept as one line."""
    _ids_owned(connection, target_key, [key], owner)
    line = first_line(Exception(reason)) if reason.strip() else "no reason was given"
    _settle(connection, target_key, [key], {"state": FAILED, "reason": line})


def _settle(
    connection: Connection, target_key: str, keys: Sequence[str], values: Mapping[str, Any]
) -> None:
    for chunk in chunks(keys):
        connection.execute(
            update(measurements)
            .where(_among(target_key, chunk))
            .values(owner_token=NOBODY, **values)
        )


def release(connection: Connection, target_key: str, keys: Sequence[str], owner: Owner) -> None:
    """Give open claims back, rounds included; what isn't owned (any more) is left alone."""
    for chunk in chunks(sorted(keys)):
        mine = select(measurements.c.id).where(_among(target_key, chunk), _owned(owner))
        ids = connection.execute(_held(mine)).scalars().all()
        change = update(measurements).where(measurements.c.id.in_(ids))
        connection.execute(change.values(owner_token=NOBODY))


def settled(connection: Connection, target_key: str, keys: Sequence[str]) -> set[str]:
    """Those of ``keys`` that are measured or have failed; their rounds are not read."""
    found: set[str] = set()
    for chunk in chunks(keys):
        among = _among(target_key, chunk), measurements.c.state != OPEN
        query = select(measurements.c.brick_key).where(*among)
        found.update(connection.execute(query).scalars())
    return found


def failures(connection: Connection, target_key: str, keys: Sequence[str]) -> list[Failure]:
    """The failures among ``keys``, in the order given; no rounds are read."""
    found: dict[str, Failure] = {}
    for chunk in chunks(keys):
        query = select(measurements.c.brick_key, measurements.c.reason)
        query = query.where(_among(target_key, chunk), measurements.c.state == FAILED)
        found.update((key, Failure(key, why or "")) for key, why in connection.execute(query))
    return [found[key] for key in dict.fromkeys(keys) if key in found]


def results(
    connection: Connection, target_key: str, keys: Sequence[str]
) -> dict[str, Measurement | Failure]:
    """Measurements and failures of those of ``keys`` that are settled, in the order given."""
    settled: dict[str, Row[Any]] = {}
    for chunk in chunks(keys):
        query = select(measurements).where(_among(target_key, chunk), measurements.c.state != OPEN)
        settled.update((row.brick_key, row) for row in connection.execute(query))
    sampled = _rounds_of(connection, [row for row in settled.values() if row.state == DONE])
    found: dict[str, Measurement | Failure] = {}
    for key in dict.fromkeys(keys):
        row = settled.get(key)
        if row is None:
            continue
        if row.state == FAILED:
            found[key] = Failure(key, row.reason or "")
            continue
        with decoding(f"the measurement of {key}"):
            if row.state != DONE:
                raise ValueError(f"its state {row.state!r} is unknown")
            found[key] = Measurement(key, sampled.get(row.id, ()), float(row.wall_s))
    return found


def _steady() -> ColumnElement[bool]:
    before, after = rounds.c.reference_s, rounds.c.reference_end_s
    near = before <= SAME_STATE_FACTOR * after, after <= SAME_STATE_FACTOR * before
    return and_(before > 0, *near)


def keys_in_states(connection: Connection, target_key: str, factor: float) -> list[str]:
    """Keys, in order, with rounds whose references differ by more than ``factor``.

    Rounds during which the reference changed do not count.
    """
    low, high = func.min(rounds.c.reference_s), func.max(rounds.c.reference_s)
    query = (
        select(measurements.c.brick_key)
        .join(rounds, rounds.c.measurement_id == measurements.c.id)
        .where(
            measurements.c.target_key == target_key,
            measurements.c.protocol == PROTOCOL,
            measurements.c.state == DONE,
            _steady(),
        )
        .group_by(measurements.c.brick_key)
        .having(high > factor * low)
        .order_by(measurements.c.brick_key)
    )
    return list(connection.execute(query).scalars())


def reference_counts(connection: Connection, target_key: str) -> dict[float, int]:
    """How many rounds were taken at each latency of the reference, in seconds, to 100 ns.

    Rounds during which it changed do not count.
    """
    steps = cast(func.round(1e7 * rounds.c.reference_s), Integer)
    query = (
        select(steps, func.count())
        .join(measurements, rounds.c.measurement_id == measurements.c.id)
        .where(
            measurements.c.target_key == target_key,
            measurements.c.protocol == PROTOCOL,
            _steady(),
        )
        .group_by(steps)
    )
    return {max(1, step) / 1e7: count for step, count in connection.execute(query)}


def costs(connection: Connection, target_key: str) -> dict[str, float]:
    """Wall seconds by key of all that is measured, in the order in which it was begun."""
    query = select(measurements.c.brick_key, measurements.c.wall_s).where(
        measurements.c.target_key == target_key,
        measurements.c.protocol == PROTOCOL,
        measurements.c.state == DONE,
    )
    rows = connection.execute(query.order_by(measurements.c.id))
    return {row.brick_key: float(row.wall_s) for row in rows}


def forget_failures(connection: Connection, target_key: str, keys: Sequence[str]) -> int:
    """Delete failures, so that they can be tried again; returns how many there were."""
    forgotten = 0
    for chunk in chunks(sorted(keys)):
        result = connection.execute(
            delete(measurements).where(_among(target_key, chunk), measurements.c.state == FAILED)
        )
        forgotten += result.rowcount
    return forgotten
