"""Quantities with their intervals, and targets, in words and as rows of tables."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bricks.errors import printable
from bricks.report.columns import Column
from bricks.report.tables import measured_text, number, seconds

if TYPE_CHECKING:
    from bricks.compose.estimate import Provenance
    from bricks.system import Target
    from bricks.units.interval import Interval

# Writes a number with its unit; an optional one writes a dash for None.
Unit = Callable[[float], str]
OptionalUnit = Callable[[float | None], str]


def interval_text(of: Interval | None, unit: Unit = seconds) -> str | None:
    """Both ends: ``1.20 ms … 1.40 ms``; the upper one may be infinite. None without an interval."""
    if of is None:
        return None
    return f"{unit(of.low)} … {'no end' if math.isinf(of.high) else unit(of.high)}"


@dataclass(frozen=True, slots=True)
class FigureRow:
    """A predicted quantity with its name for people, its ``unit``, and the ``observed`` value."""

    title: str
    predicted: Interval
    unit: OptionalUnit
    observed: float | None = None

    @property
    def ratio(self) -> str | None:
        """Predicted over observed; None without an observation."""
        return number(self.predicted.value / self.observed, 3) if self.observed else None


def figure_columns(title: str = "") -> list[Column[FigureRow]]:
    """Columns of predicted quantities with their intervals; ``title`` is that of their names."""
    return [
        Column(title, lambda row: row.title, left=True),
        Column("predicted", lambda row: row.unit(row.predicted.value)),
        Column("interval", lambda row: interval_text(row.predicted, row.unit)),
    ]


def value_text(of: Interval, unit: Unit = seconds) -> str:
    """A value with its interval: ``1.30 ms (1.20 ms … 1.40 ms)``."""
    return f"{unit(of.value)} ({interval_text(of, unit)})"


def target_text(target: Target) -> str:
    """A system with its runtime: ``c7i.large, onnxruntime 1.23.2, 2 threads``."""
    return printable(f"{target.system.name}, {runtime_text(target)}")


def runtime_text(target: Target) -> str:
    """The runtime, its version and its threads."""
    runtime = target.runtime
    copies = f", {runtime.copies} copies" if runtime.copies > 1 else ""
    inputs = ", inputs repeated" if runtime.repeat_inputs else ""
    threads = count_text(runtime.threads, "thread")
    return f"{runtime.backend} {runtime.version}, {threads}{copies}{inputs}"


def rate_text(value: float | None) -> str:
    """A rate per second: ``12.5/s``."""
    return "–" if value is None else f"{value:.4g}/s"


def count_text(count: int, noun: str) -> str:
    """``count`` with its ``noun`` in the singular or the plural: ``1 thread``, ``2 threads``."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def names_text(names: Sequence[str], most: int) -> str:
    """The first ``most`` names, and the number of further ones: ``Conv, Relu and 3 more``."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def provenance_text(of: Provenance) -> str:
    """The measured shares of an estimate, by origin."""
    return measured_text(of.measured_share, of.published_share)
