"""Figures with their intervals, and where they hold, in words."""

from __future__ import annotations

import math
from collections.abc import Callable

from bricks.compose.estimate import Provenance
from bricks.errors import printable
from bricks.report.tables import measured_text, seconds
from bricks.system import Target
from bricks.units.interval import Interval

Unit = Callable[[float], str]
# Also writes what there is not.
Written = Callable[[float | None], str]


def ends(of: Interval | None, unit: Unit = seconds) -> str | None:
    """Both ends: ``1.20 ms … 1.40 ms``, the upper one may be none; None without an interval."""
    if of is None:
        return None
    return f"{unit(of.low)} … {'no end' if math.isinf(of.high) else unit(of.high)}"


def with_ends(of: Interval, unit: Unit = seconds) -> str:
    """The value and both ends: ``1.30 ms (1.20 ms … 1.40 ms)``."""
    return f"{unit(of.value)} ({ends(of, unit)})"


def place(target: Target) -> str:
    """A system with its runtime: ``c7i.large, onnxruntime 1.23.2, 2 threads``."""
    return f"{printable(target.system.name)}, {runtime_words(target)}"


def runtime_words(target: Target) -> str:
    """The runtime, its version and its threads."""
    runtime = target.runtime
    threads = f"{runtime.threads} {'thread' if runtime.threads == 1 else 'threads'}"
    return f"{runtime.backend} {runtime.version}, {threads}"


def place_of_page(target: Target) -> str:
    """The same for the head of a page."""
    runtime = target.runtime
    return printable(
        f"{target.system.name}, {runtime.backend} {runtime.version}, threads: {runtime.threads}"
    )


def rate_text(value: float | None) -> str:
    """So many a second."""
    return "–" if value is None else f"{value:.4g}/s"


def counted(number: int, what: str) -> str:
    """So many of ``what``."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def provenance_text(of: Provenance) -> str:
    """How much of it is measured, here or by others."""
    return measured_text(of.measured_share, of.published_share)
