"""Claims on measurements: what makes "measured once per target" true.

The process that inserts the row of a measurement owns it until it is done or failed. A row that
its owner abandoned is taken over by an UPDATE that only succeeds while owner and lease are the
validated ones. Must not know what a key stands for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sqlalchemy import ColumnElement, Connection, Row, and_, select, update

from bricks.errors import StoreError, first_line
from bricks.store.engine import insert_or_ignore
from bricks.store.layout import DONE, FAILED, NOBODY, OPEN
from bricks.store.measurement_rows import (
    TimedRound,
    add_rounds,
    locked,
    of_keys,
    opened_row,
    round_counts,
)
from bricks.store.owners import Claim, Owner, Watch, host_id, lease_columns, process_name
from bricks.store.rows import rounds_of
from bricks.store.schema import measurements
from bricks.store.views import ConnectionView, chunks

if TYPE_CHECKING:
    from bricks.store.database import Database


class Claims:
    """The claims of processes on measurements of a cache, and their changes to these.

    ``watch`` judges whether a claim of another owner still counts.
    """

    def __init__(self, database: Database, watch: Watch) -> None:
        self._database = database
        self._watch = watch

    def claim(self, target_key: str, keys: Sequence[str], owner: Owner) -> list[Claim]:
        """Claim, at once, all ``keys`` that are not settled and not claimed by another owner.

        The caller measures what it claimed, and then calls :meth:`finish`, :meth:`fail` or
        :meth:`release`. A claim whose process died or whose lease ran out is taken over, with the
        rounds so far; keys that ``owner`` has claimed already are returned again.
        """
        with self._database.writing() as connection:
            claimed = self._claimed(connection, target_key, keys, owner)
            sampled = rounds_of(ConnectionView(connection), list(claimed.values()))
        return [
            Claim(key, sampled.get(claimed[key].id, ()), claimed[key].wall_s)
            for key in dict.fromkeys(keys)
            if key in claimed
        ]

    def _claimed(
        self, connection: Connection, target_key: str, keys: Sequence[str], owner: Owner
    ) -> dict[str, Row[Any]]:
        """The rows claimed by ``owner`` from now on, by key."""
        mine = {
            "owner_token": owner.token,
            "owner_host": owner.host,
            "owner_pid": owner.pid,
            "owner_started_s": owner.started_s,
            **lease_columns(self._watch.lease_s),
        }
        new = opened_row(target_key) | mine
        self._watch.refresh()
        claimed: dict[str, Row[Any]] = {}
        for chunk in chunks(sorted(keys)):
            insert_or_ignore(connection, measurements, [{**new, "brick_key": key} for key in chunk])
            query = select(measurements).where(
                of_keys(target_key, chunk), measurements.c.state == OPEN
            )
            for row in connection.execute(locked(query)).all():
                free = not self._claimed_by_another(row, owner)
                if row.owner_token == owner.token or (free and _take_over(connection, row, mine)):
                    claimed[row.brick_key] = row
        return claimed

    def _claimed_by_another(self, row: Row[Any], owner: Owner) -> bool:
        if row.owner_token in (NOBODY, owner.token):
            return False
        other = Owner(row.owner_host, row.owner_pid, row.owner_started_s, row.owner_token)
        return self._watch.is_valid(other, row.lease_until_s, row.lease_until_monotonic_s)

    def owners(self, target_key: str, keys: Sequence[str]) -> list[str]:
        """Processes that have open claims on ``keys``, for people."""
        owners: set[tuple[str, int]] = set()
        claimed = measurements.c.state == OPEN, measurements.c.owner_token != NOBODY
        query = select(measurements.c.owner_host, measurements.c.owner_pid).where(*claimed)
        with self._database.reading() as connection:
            for chunk in chunks(sorted(keys)):
                rows = connection.execute(query.where(of_keys(target_key, chunk)).distinct())
                owners |= {(row.owner_host, row.owner_pid) for row in rows}
        here = host_id()
        return [
            process_name(pid) if host == here else f"process {pid} on {host}"
            for host, pid in sorted(owners)
        ]

    def append_rounds(self, target_key: str, walk: Mapping[str, TimedRound], owner: Owner) -> None:
        """Add one round to each key of a walk: its raw samples and wall time, in seconds.

        Renews the leases of ``owner``. Raises StoreError, and keeps nothing, when a key is not
        claimed any more.
        """
        with self._database.writing() as connection:
            # Renewing comes first: it locks all rows of the owner in their order, and appending
            # needs no others. In the other order, a process that claims could wait for one row
            # while this one waits for another: a deadlock.
            self._renew(connection, target_key, owner)
            ids = _ids_owned(connection, target_key, list(walk), owner)
            add_rounds(connection, target_key, ids, walk)

    def renew(self, target_key: str, owner: Owner) -> None:
        """Prolong the leases of ``owner`` during a long time without a round."""
        with self._database.writing() as connection:
            self._renew(connection, target_key, owner)

    def _renew(self, connection: Connection, target_key: str, owner: Owner) -> None:
        owned = measurements.c.target_key == target_key, _owned(owner)
        # Held first, so that the update locks nothing in an order of its own.
        connection.execute(locked(select(measurements.c.id).where(*owned))).all()
        lease = lease_columns(self._watch.lease_s)
        connection.execute(update(measurements).where(*owned).values(lease))

    def finish(self, target_key: str, keys: Sequence[str], owner: Owner) -> None:
        """Declare claimed measurements done; each needs samples."""
        with self._database.writing() as connection:
            ids = _ids_owned(connection, target_key, keys, owner)
            counts = round_counts(connection, ids.values())
            empty = [key for key, number in ids.items() if not counts.get(number)]
            if empty:
                raise StoreError(
                    f"the measurement of {empty[0]} has no samples: it cannot be finished"
                )
            _settle(connection, target_key, keys, {"state": DONE})

    def fail(self, target_key: str, key: str, reason: str, owner: Owner) -> None:
        """Declare that a claimed key cannot be measured; ``reason`` becomes one line."""
        line = first_line(Exception(reason)) if reason.strip() else "no reason was given"
        with self._database.writing() as connection:
            _ids_owned(connection, target_key, [key], owner)
            _settle(connection, target_key, [key], {"state": FAILED, "reason": line})

    def release(self, target_key: str, keys: Sequence[str], owner: Owner) -> None:
        """Give claims back unfinished; the next owner goes on with their rounds.

        Keys without a claim of ``owner`` are left unchanged.
        """
        with self._database.writing() as connection:
            for chunk in chunks(sorted(keys)):
                owned = select(measurements.c.id).where(of_keys(target_key, chunk), _owned(owner))
                ids = connection.execute(locked(owned)).scalars().all()
                change = update(measurements).where(measurements.c.id.in_(ids))
                connection.execute(change.values(owner_token=NOBODY))


def _owned(owner: Owner) -> ColumnElement[bool]:
    return and_(measurements.c.owner_token == owner.token, measurements.c.state == OPEN)


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


def _ids_owned(
    connection: Connection, target_key: str, keys: Sequence[str], owner: Owner
) -> dict[str, int]:
    """Row numbers of ``keys``; StoreError unless the owner has a claim on each of them."""
    ids: dict[str, int] = {}
    for chunk in chunks(sorted(keys)):
        query = select(measurements.c.brick_key, measurements.c.id)
        query = query.where(of_keys(target_key, chunk), _owned(owner))
        ids.update((key, number) for key, number in connection.execute(locked(query)))
    lost = [key for key in dict.fromkeys(keys) if key not in ids]
    if lost:
        raise StoreError(
            f"{len(lost)} of {len(set(keys))} measurements, {lost[0]} first, are not claimed by "
            "this run any more: another run took them over; run again to go on from there"
        )
    return ids


def _settle(
    connection: Connection, target_key: str, keys: Sequence[str], values: Mapping[str, Any]
) -> None:
    for chunk in chunks(keys):
        connection.execute(
            update(measurements)
            .where(of_keys(target_key, chunk))
            .values(owner_token=NOBODY, **values)
        )
