"""Rounds of measurements, read in the order in which they were taken.

A round that is damaged or lost is an error that names its measurement. Must not know what a key
stands for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bricks.errors import CacheDamaged
from bricks.store.layout import DONE
from bricks.store.rows import decoding, round_of
from bricks.store.views import chunks, listed

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from bricks.samples.measurement import Round
    from bricks.store.views import CacheView, Row


def rounds_of(view: CacheView, rows: Sequence[Row]) -> dict[int, tuple[Round, ...]]:
    """The rounds of each measurement by its row number, in the order in which they were taken.

    Raises CacheDamaged for a round that is damaged, or lost.
    """
    by_id = {row.id: row for row in rows}
    by_measurement = rounds_by_id(
        view, by_id, lambda row: f"the measurement of {by_id[row.measurement_id].brick_key}"
    )
    for number, row in by_id.items():
        count = len(by_measurement.get(number, ()))
        if count != row.round_count or (row.state == DONE and not count):
            raise rounds_lost(row, count)
    return {number: tuple(of_measurement) for number, of_measurement in by_measurement.items()}


def rounds_lost(row: Row, count: int) -> CacheDamaged:
    """The error that says of a measurement that only ``count`` rounds can be found."""
    return CacheDamaged(
        f"the measurement of {row.brick_key} is damaged in the cache ({count} of its "
        f"{row.round_count} rounds can be found): run 'bricks cache verify'"
    )


def _by_number(row: Row) -> str:
    return f"round {row.number} of measurement {row.measurement_id}"


def rounds_by_id(
    view: CacheView, ids: Collection[int], name: Callable[[Row], str] = _by_number
) -> dict[int, list[Round]]:
    """The rounds of each measurement by its row number, in the order in which they were taken.

    Raises CacheDamaged for a round that is damaged, which it calls by ``name``.
    """
    by_measurement: dict[int, list[Round]] = {}
    for chunk in chunks(ids):
        these, values = listed(chunk)
        statement = f"SELECT * FROM rounds WHERE measurement_id IN {these}"
        for row in view.rows(f"{statement} ORDER BY measurement_id, number", values):
            with decoding(name(row)):
                by_measurement.setdefault(row.measurement_id, []).append(round_of(row))
    return by_measurement
