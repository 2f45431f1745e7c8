"""Measurements of a cache: results of keys on targets, and rounds added to what is measured.

Must not know what a key stands for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bricks.samples.machine_state import SAME_STATE_FACTOR
from bricks.samples.measurement import PROTOCOL, Failure, Measurement, Round
from bricks.store.layout import DONE, FAILED, OPEN
from bricks.store.rounds import rounds_of
from bricks.store.rows import decoding
from bricks.store.views import chunks, listed

if TYPE_CHECKING:
    from bricks.store.database import Database
    from bricks.store.measurement_rows import TimedRound
    from bricks.store.views import CacheView, Row


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

        For keys that are measured again because the machine is in another state now. Needs no
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
            add_rounds(connection, ids, {key: walk[key] for key in ids})

    def keys_in_states(self, target_key: str, factor: float) -> list[str]:
        """Keys with rounds on this target whose reference latencies differ by more than ``factor``.

        In order. Rounds during which the reference changed do not count.
        """
        statement = f"""
            SELECT measurements.brick_key
            FROM measurements JOIN rounds ON rounds.measurement_id = measurements.id
            WHERE {_DONE} AND {_STEADY}
            GROUP BY measurements.brick_key
            HAVING max(rounds.reference_s) > :factor * min(rounds.reference_s)
            ORDER BY measurements.brick_key
        """
        values = {**_done(target_key), "same": SAME_STATE_FACTOR, "factor": factor}
        with self._database.viewing() as view:
            return [row.brick_key for row in view.rows(statement, values)]

    def reference_counts(self, target_key: str) -> dict[float, int]:
        """The number of rounds by latency of the reference workload, in seconds, rounded to 100 ns.

        Rounds during which it changed do not count.
        """
        statement = f"""
            SELECT CAST(round(1e7 * rounds.reference_s) AS INTEGER) AS step, count(*) AS count
            FROM measurements JOIN rounds ON rounds.measurement_id = measurements.id
            WHERE target_key = :target AND protocol = :protocol AND {_STEADY}
            GROUP BY step
        """
        values = {"target": target_key, "protocol": PROTOCOL, "same": SAME_STATE_FACTOR}
        with self._database.viewing() as view:
            return {max(1, step) / 1e7: count for step, count in view.rows(statement, values)}

    def costs(self, target_key: str) -> dict[str, float]:
        """The wall time in seconds of each measured key on this target, in order of beginning."""
        statement = f"SELECT brick_key, wall_s FROM measurements WHERE {_DONE} ORDER BY id"
        with self._database.viewing() as view:
            return {key: float(wall_s) for key, wall_s in view.rows(statement, _done(target_key))}

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


def _result(row: Row, rounds_taken: tuple[Round, ...]) -> Measurement | Failure:
    """The result in a settled measurement's row, with its rounds."""
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


def _done(target_key: str) -> dict[str, Any]:
    return {"target": target_key, "protocol": PROTOCOL, "done": DONE}


# Rounds that began and ended in one machine state.
_STEADY = (
    "rounds.reference_s > 0 AND rounds.reference_s <= :same * rounds.reference_end_s"
    " AND rounds.reference_end_s <= :same * rounds.reference_s"
)
