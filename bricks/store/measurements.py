"""Measurements of a cache: results of keys on targets, and rounds added to what is measured.

Must not know what a key stands for.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from bricks.samples.measurement import PROTOCOL, Failure, Measurement, Round
from bricks.store.layout import DONE, FAILED, OPEN
from bricks.store.rows import decoding, rounds_of
from bricks.store.views import CacheView, Row, chunks, listed
from bricks.system.host_conditions import HostConditions

if TYPE_CHECKING:
    from bricks.store.database import Database
    from bricks.store.measurement_rows import TimedRound


# Seconds of watching that are read, at most: ten hours of measuring.
_MOST_WATCHED = 36_000


class Measurements:
    """The settled measurements and failures that a cache has of each target."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def results(self, target_key: str, keys: Sequence[str]) -> dict[str, Measurement | Failure]:
        """The settled results of ``keys`` on this target, in the order of ``keys``.

        By the current protocol.
        """
        with self._database.viewing() as view:
            settled = {row.brick_key: row for row in _settled(view, "*", target_key, keys)}
            done = [row for row in settled.values() if row.state == DONE]
            sampled = rounds_of(view, done)
        return {
            key: _result(settled[key], sampled.get(settled[key].id, ()))
            for key in dict.fromkeys(keys)
            if key in settled
        }

    def settled(self, target_key: str, keys: Sequence[str]) -> set[str]:
        """The settled subset of ``keys``, in a fraction of the time of :meth:`results`."""
        with self._database.viewing() as view:
            return {row.brick_key for row in _settled(view, "brick_key", target_key, keys)}

    def failures(self, target_key: str, keys: Sequence[str]) -> list[Failure]:
        """The failures among the results of ``keys``, in the order of ``keys``."""
        columns = "brick_key, state, reason"
        with self._database.viewing() as view:
            by_key = {
                row.brick_key: Failure(row.brick_key, row.reason or "")
                for row in _settled(view, columns, target_key, keys)
                if row.state == FAILED
            }
        return [by_key[key] for key in dict.fromkeys(keys) if key in by_key]

    def supplement(self, target_key: str, walk: Mapping[str, TimedRound]) -> None:
        """Add one round to each measured key of a walk; other keys are left unchanged.

        For keys that are measured again. Needs no
        claim: two runs that measure the same key again do each other no harm.
        """
        from sqlalchemy import select

        from bricks.store.measurement_rows import add_rounds, locked, of_keys
        from bricks.store.schema import measurements

        ids: dict[str, int] = {}
        with self._database.writing() as connection:
            for chunk in chunks(sorted(walk)):
                query = select(measurements.c.brick_key, measurements.c.id).where(
                    of_keys(target_key, chunk), measurements.c.state == DONE
                )
                ids.update((key, number) for key, number in connection.execute(locked(query)))
            add_rounds(connection, target_key, ids, {key: walk[key] for key in ids})

    def watched(self, target_key: str) -> list[HostConditions]:
        """The conditions that this target's host was watched in, the last ones first."""
        with self._database.viewing() as view:
            return watched_of(view, target_key)

    def watch(self, target_key: str, every: Sequence[HostConditions]) -> None:
        """Add conditions that were observed while nothing else was measured."""
        from bricks.store.measurement_rows import add_watched

        with self._database.writing() as connection:
            add_watched(connection, target_key, every)

    def costs(self, target_key: str) -> dict[str, float]:
        """The wall time in seconds of each measured key on this target, in order of beginning."""
        statement = f"SELECT brick_key, wall_s FROM measurements WHERE {_DONE} ORDER BY id"
        with self._database.viewing() as view:
            return {
                key: float(wall_s)
                for key, wall_s in view.rows(
                    statement, {"target": target_key, "protocol": PROTOCOL, "done": DONE}
                )
            }

    def forget_failures(self, target_key: str, keys: Sequence[str]) -> int:
        """Delete failures, so that they are tried again; returns their number."""
        from sqlalchemy import delete

        from bricks.store.measurement_rows import of_keys
        from bricks.store.schema import measurements

        forgotten = 0
        with self._database.writing() as connection:
            for chunk in chunks(sorted(keys)):
                of = of_keys(target_key, chunk), measurements.c.state == FAILED
                forgotten += connection.execute(delete(measurements).where(*of)).rowcount
        return forgotten

    def learned(self, target_key: str) -> None:
        """Nothing: what is learned from a cache is not kept, because its content changes."""


def watched_of(view: CacheView, target_key: str) -> list[HostConditions]:
    """The conditions that a target's host was watched in, the last ones first."""
    statement = "SELECT * FROM watched WHERE target_key = :target ORDER BY taken_s DESC"
    rows = view.rows(f"{statement} LIMIT {_MOST_WATCHED}", {"target": target_key})
    with decoding(f"the conditions of {target_key}"):
        return [HostConditions.from_json(json.loads(row.host)) for row in rows]


def _result(row: Row, rounds_taken: tuple[Round, ...]) -> Measurement | Failure:
    if row.state == FAILED:
        return Failure(row.brick_key, row.reason or "")
    with decoding(f"the measurement of {row.brick_key}"):
        if row.state != DONE:
            raise ValueError(f"its state {row.state!r} is unknown")
        return Measurement(row.brick_key, rounds_taken, float(row.wall_s))


def _settled(view: CacheView, columns: str, target_key: str, keys: Sequence[str]) -> Iterator[Row]:
    """The ``columns`` of settled measurements of ``keys`` on a target, by the current protocol."""
    for chunk in chunks(keys):
        these, values = listed(chunk)
        yield from view.rows(
            f"SELECT {columns} FROM measurements WHERE target_key = :target"
            f" AND protocol = :protocol AND state != :open AND brick_key IN {these}",
            {"target": target_key, "protocol": PROTOCOL, "open": OPEN, **values},
        )


_DONE = "target_key = :target AND protocol = :protocol AND state = :done"
