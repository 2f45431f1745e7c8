"""Durations are written with three digits and the largest unit of which they have one."""

from __future__ import annotations

import pytest

from bricks.report.tables import duration, seconds


@pytest.mark.parametrize(
    ("value_s", "text"),
    [
        (12.3, "12.3 s"), (1.0, "1.00 s"), (0.2, "200 ms"), (1e-3, "1.00 ms"), (1e-4, "100 µs"),
        (2.5e-6, "2.50 µs"), (4e-7, "400 ns"), (0.0, "0 ns"), (None, "–"),
    ],
)  # fmt: skip
def test_seconds(value_s: float | None, text: str) -> None:
    assert seconds(value_s) == text


def test_longer_ones_are_in_minutes_hours_and_days() -> None:
    every = (41.0, 306.0, 50_400.0, 276_480.0)
    assert list(map(duration, every)) == ["41.0 s", "5.1 min", "14 h", "3.2 days"]
