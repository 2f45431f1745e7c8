"""Measurements of a cache: results of keys on targets, and rounds added to what is measured.

Must not know what a key stands for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Integer, Row, and_, cast, delete, func, select

from bricks.samples.machine_state import SAME_STATE_FACTOR
from bricks.samples.measurement import PROTOCOL, Failure, Measurement, Round
from bricks.store.database import Database
from bricks.store.engine import chunks
from bricks.store.measurement_rows import TimedRound, add_rounds, locked, of_keys, rounds_of
from bricks.store.rows import decoding
from bricks.store.schema import DONE, FAILED, OPEN, measurements, rounds


class Measurements:
    """The settled measurements and failures that a cache has of each target."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def results(self, target_key: str, keys: Sequence[str]) -> dict[str, Measurement | Failure]:
        """The settled results of ``keys`` on this target, in the order of ``keys``.

        By the current protocol.
        """
        settled: dict[str, Row[Any]] = {}
        with self._database.reading() as connection:
            for chunk in chunks(keys):
                query = select(measurements).where(_settled(target_key, chunk))
                settled.update((row.brick_key, row) for row in connection.execute(query))
            done = [row for row in settled.values() if row.state == DONE]
            sampled = rounds_of(connection, done)
        return {
            key: _result(settled[key], sampled.get(settled[key].id, ()))
            for key in dict.fromkeys(keys)
            if key in settled
        }

    def settled(self, target_key: str, keys: Sequence[str]) -> set[str]:
        """The settled subset of ``keys``, in a fraction of the time of :meth:`results`."""
        settled: set[str] = set()
        with self._database.reading() as connection:
            for chunk in chunks(keys):
                query = select(measurements.c.brick_key).where(_settled(target_key, chunk))
                settled.update(connection.execute(query).scalars())
        return settled

    def failures(self, target_key: str, keys: Sequence[str]) -> list[Failure]:
        """The failures among the results of ``keys``, in the order of ``keys``."""
        by_key: dict[str, Failure] = {}
        with self._database.reading() as connection:
            for chunk in chunks(keys):
                query = select(measurements.c.brick_key, measurements.c.reason)
                query = query.where(of_keys(target_key, chunk), measurements.c.state == FAILED)
                rows = connection.execute(query)
                by_key.update((key, Failure(key, why or "")) for key, why in rows)
        return [by_key[key] for key in dict.fromkeys(keys) if key in by_key]

    def supplement(self, target_key: str, walk: Mapping[str, TimedRound]) -> None:
        """Add one round to each measured key of a walk; other keys are left unchanged.

        For keys that are measured again because the machine is in another state now. Needs no
        claim: two runs that measure the same key again do each other no harm.
        """
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
        low, high = func.min(rounds.c.reference_s), func.max(rounds.c.reference_s)
        query = (
            select(measurements.c.brick_key)
            .join(rounds, rounds.c.measurement_id == measurements.c.id)
            .where(_done(target_key), _steady())
            .group_by(measurements.c.brick_key)
            .having(high > factor * low)
            .order_by(measurements.c.brick_key)
        )
        with self._database.reading() as connection:
            return list(connection.execute(query).scalars())

    def reference_counts(self, target_key: str) -> dict[float, int]:
        """The number of rounds by latency of the reference workload, in seconds, rounded to 100 ns.

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
        with self._database.reading() as connection:
            return {max(1, step) / 1e7: count for step, count in connection.execute(query)}

    def costs(self, target_key: str) -> dict[str, float]:
        """The wall time in seconds of each measured key on this target, in order of beginning."""
        query = select(measurements.c.brick_key, measurements.c.wall_s).where(_done(target_key))
        with self._database.reading() as connection:
            rows = connection.execute(query.order_by(measurements.c.id)).all()
        return {row.brick_key: float(row.wall_s) for row in rows}

    def forget_failures(self, target_key: str, keys: Sequence[str]) -> int:
        """Delete failures, so that they are tried again; returns their number."""
        forgotten = 0
        with self._database.writing() as connection:
            for chunk in chunks(sorted(keys)):
                of = of_keys(target_key, chunk), measurements.c.state == FAILED
                forgotten += connection.execute(delete(measurements).where(*of)).rowcount
        return forgotten

    def learned(self, target_key: str) -> None:
        """Nothing: what is learned from a cache is not kept, because its content changes."""


def _result(row: Row[Any], rounds_taken: tuple[Round, ...]) -> Measurement | Failure:
    """The result in a settled measurement's row, with its rounds."""
    if row.state == FAILED:
        return Failure(row.brick_key, row.reason or "")
    with decoding(f"the measurement of {row.brick_key}"):
        if row.state != DONE:
            raise ValueError(f"its state {row.state!r} is unknown")
        return Measurement(row.brick_key, rounds_taken, float(row.wall_s))


def _settled(target_key: str, keys: Sequence[str]) -> ColumnElement[bool]:
    return and_(of_keys(target_key, keys), measurements.c.state != OPEN)


def _done(target_key: str) -> ColumnElement[bool]:
    return and_(
        measurements.c.target_key == target_key,
        measurements.c.protocol == PROTOCOL,
        measurements.c.state == DONE,
    )


def _steady() -> ColumnElement[bool]:
    before, after = rounds.c.reference_s, rounds.c.reference_end_s
    near = before <= SAME_STATE_FACTOR * after, after <= SAME_STATE_FACTOR * before
    return and_(before > 0, *near)
